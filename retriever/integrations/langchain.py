"""Use a collection as a LangChain retriever. Install it with: pip install 'flow-retriever[langchain]'.

from retriever.integrations.langchain import CollectionRetriever

with Retriever.open("collections/notes") as notes:
    budget = CollectionRetriever(retriever=notes, search_kwargs={"k": 5, "where": ["year >= 2020"]})
    budget.invoke("what did we decide")  # a list of LangChain documents

A LangChain document is the best passage of a hit. Its metadata also has id, title, rank, relevance, score, start, end.
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

OWN = ("id", "title", "rank", "relevance", "score", "start", "end")


class CollectionRetriever(BaseRetriever, extra="forbid"):
    """Returns the best documents of a collection. `search_kwargs`, and `invoke`, take the options of a search."""

    retriever: Retriever
    k: int = 5
    search_kwargs: dict[str, Any] = Field(default_factory=dict)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **given: Any
    ) -> list[Document]:
        found = self.retriever.search(query, **{"k": self.k, **self.search_kwargs, **given})
        own = [hit.metadata | {name: getattr(hit, name) for name in OWN} for hit in found]
        return [Document(hit.passage, id=hit.id, metadata=more) for hit, more in zip(found, own, strict=True)]
