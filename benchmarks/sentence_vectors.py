"""Files of very many sentences, and their vectors in half the memory: the vectors come from the cache of all texts."""

import gzip
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retriever.errors import BadSource, Misuse, RetrieverError
from retriever.evaluate.models.encoders import TextEncoder
from retriever.evaluate.vectors import VectorCache
from retriever.progress import Progress, silent

TOGETHER = 20_000
WIKI = "wiki/wiki_sentences_*.txt.gz"

Halves = NDArray[np.float16]


def wiki_files(data: Path) -> list[Path]:
    found = sorted(data.glob(WIKI))
    if not found:
        raise Misuse(f"{data} has no {WIKI}; give files of sentences instead, a sentence a line.")
    return found


def sentence_files(sentences: Sequence[Path], data: Path | None) -> list[Path]:
    """The given files, or Wikipedia's in the data folder."""
    if bool(sentences) == bool(data):
        raise Misuse("give either files of sentences or --data DIR with Wikipedia's: one of the two.")
    return list(sentences) if data is None else wiki_files(data)


def read_file(path: Path) -> list[str]:
    """The lines of a text file, gzipped or not, without blank ones."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            return [line.strip() for line in file if line.strip()]
    except UnicodeDecodeError as error:
        raise BadSource(f"{path} is not UTF-8 ({error.reason} at byte {error.start}).") from error
    except (OSError, EOFError) as error:
        raise BadSource(f"{path} cannot be read: {error}") from error


def read_sentences(paths: Sequence[Path], count: int) -> list[str]:
    """The first `count` sentences of the files, or all if there are fewer; raises Misuse if there is none."""
    sentences: list[str] = []
    for path in paths:
        if len(sentences) >= count:
            break
        sentences += read_file(path)
    if not sentences:
        raise Misuse(f"there is no sentence in {', '.join(map(str, paths)) or 'no file'}.")
    return sentences[:count]


def sentence_vectors(
    paths: Sequence[Path], encoder: TextEncoder, count: int, cache: Path | None = None, progress: Progress = silent
) -> tuple[list[str], Halves]:
    """The first `count` sentences of the files, or all if there are fewer, and their vectors."""
    texts = read_sentences(paths, count)
    vectors = np.empty((len(texts), encoder.dimension), np.float16)
    for start in range(0, len(texts), TOGETHER):

        def further(stage: str, done: int, total: int | None, detail: str = "", start: int = start) -> None:
            progress(stage, start + done, len(texts), detail)

        found = VectorCache(cache).vectors(encoder, texts[start : start + TOGETHER], progress=further)
        with np.errstate(over="ignore"):
            vectors[start : start + TOGETHER] = found
    if not np.isfinite(vectors).all():
        raise RetrieverError(f"{encoder.label} gives vectors too large for float16.")
    return texts, vectors
