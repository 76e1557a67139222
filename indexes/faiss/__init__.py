"""FAISS indexes: types, building, tuning, recall, GPU."""
