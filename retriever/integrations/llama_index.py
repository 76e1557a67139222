"""Use a collection as a LlamaIndex retriever. Install it with: pip install 'flow-retriever[llama-index]'.

from retriever.integrations.llama_index import CollectionRetriever

with Retriever.open("collections/notes") as notes:
    CollectionRetriever(notes, k=5, where={"year": 2020}).retrieve("what did we decide")

A node is the best passage of a hit. Its score is the relevance, from 0 to 1. Its metadata also has document_id, title,
start and end.
"""

import asyncio
from typing import Any

from retriever.hits import Hit
from retriever.retriever import Retriever

try:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
except ImportError as error:
    raise ImportError("LlamaIndex is not installed; run: pip install 'flow-retriever[llama-index]'") from error


class CollectionRetriever(BaseRetriever):
    """Returns the best documents of a collection. The other arguments are those of `Retriever.search`."""

    def __init__(self, retriever: Retriever, k: int = 5, **search_kwargs: Any) -> None:
        super().__init__()
        self._collection, self._options = retriever, {"k": k, **search_kwargs}

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        hits = self._collection.search(query_bundle.query_str, vector=query_bundle.embedding, **self._options)
        return [NodeWithScore(node=_node(hit), score=hit.relevance / 100) for hit in hits]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


def _node(hit: Hit) -> TextNode:
    own = {"document_id": hit.id, "title": hit.title, "start": hit.start, "end": hit.end}
    return TextNode(id_=f"{hit.id}:{hit.start}", text=hit.passage, metadata=hit.metadata | own)
