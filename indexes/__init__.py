"""Documents and vectors on disk: SQLite tables, FAISS generations; nothing of BERT or flows."""
