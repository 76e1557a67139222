"""Measure recall and nDCG@10 of small FAISS indexes, before and after a transform."""
