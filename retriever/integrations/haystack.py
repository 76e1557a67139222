"""Use a collection as a Haystack component. Install it with: pip install 'flow-retriever[haystack]'.

from retriever.integrations.haystack import CollectionRetriever

pipeline = Pipeline()
pipeline.add_component("notes", CollectionRetriever("collections/notes", top_k=5))
pipeline.run({"notes": {"query": "what did we decide"}})

A document is the best passage of a hit. Its score is the relevance, from 0 to 1. Its meta also has document_id, title,
start and end. To load a written pipeline, Haystack needs allowed_modules=["retriever.integrations.haystack"].
"""

import os
from typing import Any

from retriever.hits import Hit
from retriever.retriever import Retriever

os.environ.setdefault("HAYSTACK_TELEMETRY_ENABLED", "False")  # read when haystack is imported

try:
    from haystack import Document, component, default_to_dict
except ImportError as error:
    raise ImportError("Haystack is not installed; run: pip install 'flow-retriever[haystack]'") from error


@component
class CollectionRetriever:
    """Returns the best documents of a collection: an open retriever, or its folder, which is opened when it is needed.

    `search_kwargs` are further arguments of `Retriever.search`.
    """

    def __init__(self, index: Retriever | str, top_k: int = 10, search_kwargs: dict[str, Any] | None = None) -> None:
        self.index, self.top_k, self.search_kwargs = index, top_k, search_kwargs or {}

    def warm_up(self) -> None:
        """Open the collection."""
        if not isinstance(self.index, Retriever):
            self.index = Retriever.open(self.index)

    @component.output_types(documents=list[Document])
    def run(self, query: str, top_k: int | None = None, where: list[str] | None = None) -> dict[str, list[Document]]:
        """Return the documents that answer the query best."""
        self.warm_up()
        options = {**self.search_kwargs, **({} if where is None else {"where": where})}
        hits = self.index.search(query, self.top_k if top_k is None else top_k, **options)  # type: ignore[union-attr]
        return {"documents": [_document(hit) for hit in hits]}

    def to_dict(self) -> dict[str, Any]:
        """Return the component as a dictionary, in which the collection is its folder."""
        index = self.index.collection.name if isinstance(self.index, Retriever) else self.index
        return default_to_dict(self, index=index, top_k=self.top_k, search_kwargs=self.search_kwargs)


def _document(hit: Hit) -> Document:
    own = {"document_id": hit.id, "title": hit.title, "start": hit.start, "end": hit.end}
    return Document(f"{hit.id}:{hit.start}", hit.passage, meta=hit.metadata | own, score=hit.relevance / 100)
