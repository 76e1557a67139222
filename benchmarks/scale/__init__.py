"""Ray and threads, Milvus and a folder, serving under load, plans and real runs."""
