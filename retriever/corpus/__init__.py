"""Documents from files: JSONL, CSV, TSV, Parquet, text and Markdown, folders of them, BEIR folders, stdin."""

from retriever.corpus.document import Document, Keys, Skipped
from retriever.corpus.reading import Corpus

__all__ = ["Corpus", "Document", "Keys", "Skipped"]
