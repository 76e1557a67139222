"""A collection in Milvus, for more than one machine: documents, vectors, transform and refusals as in a folder.

Milvus has no transactions, so what must change together is one row. With NAME the name of the collection:

    NAME_settings    the state (settings and the published generation, one row), the transform's files, the lock
    NAME_documents   a row a document: what it says, its passages, its seal; words for BM25
    NAME_vectors     a row a distinct text: its raw vector, under the text's hash
    NAME_000007      the published index: a row a passage, mapped by the transform, with what filters ask for

A document is there when its row is; passages in the index that carry another seal than its row are passed over, so
nothing is visible by halves, whenever a writer or the cluster dies. A new transform or index is built beside the old
one, and the state's row switches to it.
"""
