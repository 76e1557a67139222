"""Make any BERT searchable without labels.

from retriever import Retriever

with Retriever.build([{"id": "1", "text": "Cats purr."}], "collections/pets") as pets:
    print(pets.search("feline noises"))
"""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retriever.asynchronous import AsyncRetriever
    from retriever.corpus.document import Document, Keys, Skipped
    from retriever.corpus.files import Corpus
    from retriever.hits import Answer, Hit, Hits
    from retriever.retriever import Retriever

__all__ = ["Answer", "AsyncRetriever", "Corpus", "Document", "Hit", "Hits", "Keys", "Retriever", "Skipped"]

# When ONNX Runtime is imported, its telemetry starts a thread that sends a device id and events to Microsoft. This
# variable disables the telemetry. It is set here, before any module of this package can import ONNX Runtime.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

_MODULES = {
    "Answer": "retriever.hits",
    "AsyncRetriever": "retriever.asynchronous",
    "Corpus": "retriever.corpus.files",
    "Document": "retriever.corpus.document",
    "Hit": "retriever.hits",
    "Hits": "retriever.hits",
    "Keys": "retriever.corpus.document",
    "Retriever": "retriever.retriever",
    "Skipped": "retriever.corpus.document",
}


def __getattr__(name: str) -> object:
    """Import a public name on its first use, so that `import retriever` is fast."""
    if name not in _MODULES:
        raise AttributeError(f"module 'retriever' has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module(_MODULES[name]), name)
    return found
