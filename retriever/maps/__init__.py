"""Maps of collections: every document is a point on a plane, and similar documents are near each other."""
