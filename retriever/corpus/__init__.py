"""Documents from files: JSONL, CSV, TSV, Parquet, text and Markdown, folders of them, BEIR folders, stdin."""

from typing import TYPE_CHECKING, Any

from retriever.corpus.document import Document, Keys, Skipped

if TYPE_CHECKING:
    from retriever.corpus.files import Corpus

__all__ = ["Corpus", "Document", "Keys", "Skipped"]


def __getattr__(name: str) -> Any:
    """Import `Corpus` on first use, because a search needs no reader of files."""
    if name != "Corpus":
        raise AttributeError(f"module 'retriever.corpus' has no attribute {name!r}")
    from retriever.corpus.files import Corpus

    return Corpus
