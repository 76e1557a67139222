"""The pipeline from documents to a published index."""
