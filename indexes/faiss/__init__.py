"""FAISS indexes: their types, how they are built, tuned and measured, and search on a GPU."""
