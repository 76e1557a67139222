"""Read documents from JSONL, CSV, TSV, Parquet, text and Markdown files, from folders, and from standard input."""

from typing import TYPE_CHECKING, Any

from retriever.corpus.document import Document, Keys, Skipped

if TYPE_CHECKING:
    from retriever.corpus.files import Corpus

__all__ = ["Corpus", "Document", "Keys", "Skipped"]


def __getattr__(name: str) -> Any:
    """Import `Corpus` on its first use, because a search does not read files."""
    if name != "Corpus":
        raise AttributeError(f"module 'retriever.corpus' has no attribute {name!r}")
    from retriever.corpus.files import Corpus

    return Corpus
