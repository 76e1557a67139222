"""Evaluate collections and encoders: retrieval, question answering, sentence similarity and isotropy."""
