"""Evaluation of collections and encoders: retrieval, question answering, sentence similarity, isotropy."""
