"""A collection in a folder: an SQLite database, and FAISS indexes (generations) that are built from it."""
