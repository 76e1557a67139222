"""Word tables: encoders without a transformer. A text is the mean of the rows of its words.

A table is learned from a corpus and the input embeddings of a BERT, without labels. It is stored as a StaticEmbedding
folder of sentence-transformers.
"""
