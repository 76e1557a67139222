"""A folder as a collection: the SQLite database and the FAISS generations built from it."""
