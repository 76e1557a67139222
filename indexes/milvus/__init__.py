"""A collection in Milvus, which several machines can use. It holds the same data as a collection in a folder.

Milvus has no transactions, so everything that must change together is in one row. The tables of a collection NAME are:

    NAME_settings    the state (settings and the published generation, one row), the transform's files, the write lock
    NAME_documents   one row per document: its text, its passages, its seal; indexed for BM25
    NAME_vectors     one row per distinct text: its raw vector, under the hash of the text
    NAME_000007      the published index: one row per passage, with its transformed vector and the values for filters

A document exists if its row exists. A search ignores rows of the index whose seal differs from the seal of the
document. A half-written change is therefore never visible, even if a writer or the cluster dies. A new transform or
index is built in a new table, next to the old one. Then one write to the state switches to the new table.
"""
