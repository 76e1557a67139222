"""Storage of documents and vectors: in a folder (SQLite and FAISS) or in Milvus. Nothing here depends on an encoder."""
