"""A cache for the vectors of very many sentences: one file of float16 rows for each file of sentences.

    DIR/sentences/<SHA-256 of a file's sentences>-<key of the encoder>.npy

has the vectors of the first sentences of that file, as many as were ever needed. It is rewritten atomically every few
thousand sentences, so a killed run continues. `retriever.evaluate.vectors` keeps single texts in SQLite instead, which
is too slow for a million.
"""

import gzip
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retriever.errors import BadSource, Damaged, Misuse, RetrieverError
from retriever.evaluate.models.encoders import TextEncoder
from retriever.evaluate.vectors import default_cache
from retriever.files import atomic_write
from retriever.progress import Progress, silent

SAVED_EVERY = 20_000
WIKI = "wiki/wiki_sentences_*.txt.gz"

Halves = NDArray[np.float16]


@dataclass(frozen=True)
class Shard:
    path: Path
    sentences: list[str]
    sha256: str


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


def read_shard(path: Path) -> Shard:
    """The lines of a text file, gzipped or not, without blank ones."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            sentences = [line.strip() for line in file if line.strip()]
    except UnicodeDecodeError as error:
        raise BadSource(f"{path} is not UTF-8 ({error.reason} at byte {error.start}).") from error
    except (OSError, EOFError) as error:
        raise BadSource(f"{path} cannot be read: {error}") from error
    return Shard(path, sentences, hashlib.sha256("\n".join(sentences).encode()).hexdigest())


def read_shards(paths: Sequence[Path], count: int) -> list[Shard]:
    """The first shards, as many as `count` sentences need; raises Misuse if there is no sentence."""
    shards: list[Shard] = []
    for path in paths:
        if sum(len(shard.sentences) for shard in shards) >= count:
            break
        shards.append(read_shard(path))
    if not any(shard.sentences for shard in shards):
        raise Misuse(f"there is no sentence in {', '.join(map(str, paths)) or 'no file'}.")
    return shards


def read_sentences(paths: Sequence[Path], count: int) -> list[str]:
    """The first `count` sentences of the files, or all if there are fewer."""
    return [text for shard in read_shards(paths, count) for text in shard.sentences][:count]


def sentence_vectors(
    paths: Sequence[Path], encoder: TextEncoder, count: int, cache: Path | None = None, progress: Progress = silent
) -> tuple[list[str], Halves]:
    """The first `count` sentences of the files, or all if there are fewer, and their vectors."""
    shards = read_shards(paths, count)
    wanted = [min(len(s.sentences), count - sum(len(b.sentences) for b in shards[:n])) for n, s in enumerate(shards)]
    texts = [text for shard, own in zip(shards, wanted, strict=True) for text in shard.sentences[:own]]
    vectors = np.empty((len(texts), encoder.dimension), np.float16)
    folder = (cache or default_cache()) / "sentences"
    row = 0
    for shard, own in zip(shards, wanted, strict=True):
        path = folder / f"{shard.sha256}-{encoder.key}.npy"
        _complete(path, shard, own, encoder, (row, len(texts)), progress)
        vectors[row : row + own] = _stored(path, encoder)[:own]
        row += own
    return texts, vectors


def _complete(
    path: Path, shard: Shard, wanted: int, encoder: TextEncoder, place: tuple[int, int], progress: Progress
) -> None:
    """Embed the missing ones of the first `wanted` sentences; `place` is their offset and the total for progress."""
    before, total = place
    stage = f"embedding with {encoder.label}, {encoder.pooling}"
    while (have := len(_stored(path, encoder))) < wanted:
        texts = shard.sentences[have : min(wanted, have + SAVED_EVERY)]
        added = np.empty((len(texts), encoder.dimension), np.float16)
        done = 0
        for positions, vectors in encoder.encode_batches(texts):
            with np.errstate(over="ignore"):
                added[positions] = vectors
            done += len(positions)
            progress(stage, before + have + done, total)
        if not np.isfinite(added).all():
            raise RetrieverError(
                f"{encoder.label} gives vectors too large for float16, or not finite, in {shard.path}."
            )
        _write(path, np.concatenate([_stored(path, encoder)[:have], added]))


def _stored(path: Path, encoder: TextEncoder) -> Halves:
    """The vectors in a file, memory-mapped; none if there is no file."""
    if not path.is_file():
        return np.empty((0, encoder.dimension), np.float16)
    try:
        found: Halves = np.load(path, mmap_mode="r", allow_pickle=False)
        if found.dtype != np.float16 or found.ndim != 2 or found.shape[1] != encoder.dimension:
            raise ValueError(f"{found.dtype} {found.shape}, not float16 rows of {encoder.dimension}")
    except (ValueError, EOFError, OSError) as error:
        raise Damaged(f"{path} cannot be used ({error}); delete it to embed again.") from error
    return found


def _write(path: Path, vectors: Halves) -> None:
    try:
        with atomic_write(path) as aside, aside.open("wb") as file:
            np.save(file, vectors)
    except (FileExistsError, NotADirectoryError):
        raise Misuse(f"--cache {path.parent} is a file; give a folder.") from None
