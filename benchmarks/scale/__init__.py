"""Compare Ray with threads, Milvus with a folder, and plans with real runs. Measure a server under load."""
