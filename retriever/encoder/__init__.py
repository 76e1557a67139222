"""Turns text into raw vectors: model files, runtimes, batches and rerankers."""
