"""Read documents from JSONL, CSV, TSV, Parquet, text and Markdown files, from folders, and from standard input."""

from typing import TYPE_CHECKING, Any

from retriever.corpus.document import Document, Keys, Skipped

if TYPE_CHECKING:
    from retriever.corpus.files import Corpus

__all__ = ["Corpus", "Document", "Keys", "Skipped"]


def __getattr__(name: str) -> Any:
    """Import `Corpus` on its first use, so that a search, which does not need it, does not import it."""
    if name != "Corpus":
        raise AttributeError(f"module 'retriever.corpus' has no attribute {name!r}")
    from retriever.corpus.files import Corpus

    return Corpus
