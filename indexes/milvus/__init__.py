"""A collection in Milvus, for more than one machine. It holds what a collection in a folder holds.

Milvus has no transactions, so everything that must change together is one row. With NAME the name of the collection:

    NAME_settings    the state (settings and the published generation, one row), the transform's files, the write lock
    NAME_documents   one row per document: its text, its passages, its seal; indexed for BM25
    NAME_vectors     one row per distinct text: its raw vector, under the hash of the text
    NAME_000007      the published index: one row per passage, with its transformed vector and the values for filters

A document exists if its row does. A search ignores rows of the index whose seal differs from the document's, so a
half-written change is never visible, even if a writer or the cluster dies. A new transform or index is built beside
the old one. Then one write to the state switches to it.
"""
