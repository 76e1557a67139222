"""Read files with very many sentences, and return their cached vectors, in float16 to halve the memory."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retriever.errors import Misuse, RetrieverError
from retriever.evaluate.data.tsv import read_lines
from retriever.evaluate.models.encoders import TextEncoder, VectorCache
from retriever.progress import Progress, silent

TOGETHER = 20_000
WIKI = "wiki/wiki_sentences_*.txt.gz"

Halves = NDArray[np.float16]


def sentence_files(sentences: Sequence[Path], data: Path | None) -> list[Path]:
    """Return the given files, or the files of Wikipedia sentences in the data folder."""
    if bool(sentences) == bool(data):
        raise Misuse("give either files of sentences or --data DIR with the Wikipedia sentences, but not both.")
    found = list(sentences) if data is None else sorted(data.glob(WIKI))
    if not found:
        raise Misuse(f"{data} has no {WIKI}; give text files with one sentence per line instead.")
    return found


def read_sentences(paths: Sequence[Path], count: int) -> list[str]:
    """Return the first `count` sentences of the files, or all if there are fewer. Raise Misuse if there are none."""
    sentences: list[str] = []
    for path in paths:
        if len(sentences) >= count:
            break
        sentences += read_lines(path)
    if not sentences:
        raise Misuse(f"no sentences were found in the files: {', '.join(map(str, paths)) or 'none was given'}.")
    return sentences[:count]


def sentence_vectors(
    paths: Sequence[Path], encoder: TextEncoder, count: int, cache: Path | None = None, progress: Progress = silent
) -> tuple[list[str], Halves]:
    """Return the first `count` sentences of the files, or all if there are fewer, and their vectors."""
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
