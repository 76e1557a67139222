"""Ray beside threads, Milvus beside a folder, serving under load, plans beside real runs."""
