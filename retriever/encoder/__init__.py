"""Text to raw vectors: model files, runtimes, batches, rerankers."""
