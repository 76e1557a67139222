"""Text in, hits out: make any BERT searchable without labels.

from retriever import Retriever

with Retriever.build([{"id": "1", "text": "Cats purr."}], "collections/pets") as pets:
    print(pets.search("feline noises"))
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from retriever.corpus import Corpus, Document, Keys, Skipped
    from retriever.retriever import Retriever
    from retriever.search.searcher import Answer, Hit, Hits

__all__ = ["Answer", "Corpus", "Document", "Hit", "Hits", "Keys", "Retriever", "Skipped"]

_HOMES = {
    "Answer": "retriever.search.searcher",
    "Corpus": "retriever.corpus",
    "Document": "retriever.corpus",
    "Hit": "retriever.search.searcher",
    "Hits": "retriever.search.searcher",
    "Keys": "retriever.corpus",
    "Retriever": "retriever.retriever",
    "Skipped": "retriever.corpus",
}


def __getattr__(name: str) -> Any:
    """Import the API's names when they are asked for, so that `retriever --help` needs none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module 'retriever' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
