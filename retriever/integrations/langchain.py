"""Use a collection as a LangChain retriever. Install it with: pip install 'flow-retriever[langchain]'.

from retriever.integrations.langchain import CollectionRetriever

with Retriever.open("collections/notes") as notes:
    budget = CollectionRetriever(retriever=notes, k=5, options={"mode": "hybrid", "where": ["year >= 2020"]})
    budget.invoke("what did we decide")  # a list of LangChain documents
    chain = budget | (lambda found: " … ".join(document.page_content for document in found)) | prompt | model

A LangChain document holds the best passage of a hit; its metadata also has id, title, rank, score, start and end.
"""

from typing import Any

from retriever.retriever import Retriever

try:
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from pydantic import Field
except ImportError as error:
    raise ImportError("LangChain is not installed; run: pip install 'flow-retriever[langchain]'") from error

OWN = ("id", "title", "rank", "score", "start", "end")


class CollectionRetriever(BaseRetriever):
    """Returns the k best documents of a collection. `options` are the options of `Retriever.search`."""

    retriever: Retriever
    k: int = 5
    options: dict[str, Any] = Field(default_factory=dict)

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        return [
            Document(hit.passage, id=hit.id, metadata=hit.metadata | {name: getattr(hit, name) for name in OWN})
            for hit in self.retriever.search(query, self.k, **self.options)
        ]
