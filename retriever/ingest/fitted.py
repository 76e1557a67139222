"""Fit a transform to the vectors of a collection, and hold everything that is stored with it.

The fit uses a random sample of the passages, and short texts that are cut from passages. The short texts stand for
queries, because queries are short and their vectors differ from those of whole passages. The vectors of the short
texts are stored with the index. A later index can therefore be measured without the encoder.
"""

import contextlib
import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from indexes.faiss.vectors import save_array
from indexes.generation import Generation
from indexes.protocol import AnyCollection
from indexes.rows import PassageRow
from indexes.stores import AnyStore
from retriever.corpus.passages import encoded_text
from retriever.corpus.short_texts import MOST_OF_A_PASSAGE, short_texts
from retriever.encoder.functions import is_brought
from retriever.encoder.model_files import LEARNED
from retriever.errors import Damaged, EncoderUnavailable, Mismatch, first_line
from retriever.progress import Progress
from retriever.transforms import Transform, load, load_transform
from retriever.transforms.agreement import Fits
from retriever.transforms.choice import POOL, Choice, Evidence, Look, choose_for
from retriever.transforms.novelty import JSON_FILE as NOVELTY_FILE
from retriever.transforms.novelty import Novelty, ShortTexts, measure
from retriever.transforms.spec import AUTO

SEED = 0
# Large enough to estimate a covariance of a thousand dimensions and to train a flow, but small in memory.
FIT_SAMPLE = 20_000
# Maximum number of short texts.
SHORT_TEXTS = 1000
# If no transform is learned from them, fewer short texts are enough: so many, or one for so many passages.
FEW_SHORT_TEXTS = 300
PASSAGES_A_SHORT_TEXT = 40
FEWEST_FOR_SHORT = 50
QUERIES_FILE = "queries.npy"
WITHOUT_SHORT = (
    "the encoder was unavailable, so the transform was fitted on passages alone; short queries may differ from them"
)
WORDS_ARE_WHITE = "the word table is already whitened with the words of this text"
NOT_COMPARABLE = "the documents brought their vectors, and without an encoder no transform can be compared with another"
# Maximum number of characters of a title in a text for the fit. No encoder reads more.
LONGEST_TITLE = 10_000

Encode = Callable[[Sequence[str]], NDArray[np.float32]]


@dataclass(frozen=True)
class Fitted:
    """A fitted transform, the files it is stored in, and what it was fitted on."""

    transform: Transform
    write: Callable[[Path], list[str]]
    """Writes all files into a folder and returns their names."""
    fitted_on: Mapping[str, int]
    """The number of passages and of short texts that the transform was fitted on."""
    queries: NDArray[np.float16] | None
    """Raw vectors of the short texts."""
    choice: Mapping[str, Any] | None
    """The evidence for the choice of the transform; None if it was not chosen automatically."""

    @classmethod
    def from_generation(cls, collection: AnyCollection, generation: Generation) -> Self:
        """Load the transform of the published generation, without fitting."""
        transform, novelty = load_transform(generation), Novelty.of(generation)
        queries = _load_queries(generation.folder, collection.dimension)
        counts, choice = generation.manifest["fitted_on"], collection.store.setting("choice")
        return cls(transform, _writer(transform, novelty, queries), counts, queries, choice)

    @classmethod
    def from_files(
        cls, collection: AnyCollection, files: Mapping[str, bytes], fitted_on: Mapping[str, int] | None
    ) -> Self:
        """Load the transform from the contents of its files. Raise `Damaged` if a file is damaged.

        `fitted_on` is None if the counts are lost. The short texts then count as passages.
        """

        def write(folder: Path) -> list[str]:
            for name, data in files.items():
                (folder / name).write_bytes(data)
            return list(files)

        with TemporaryDirectory() as name:
            folder = Path(name)
            write(folder)
            transform = load(folder)
            if NOVELTY_FILE in files:
                Novelty.load(folder)
            queries = _load_queries(folder, collection.dimension)
        counts = fitted_on or {"passages": transform.fitted_on}
        return cls(transform, write, counts, queries, collection.store.setting("choice"))

    @classmethod
    def fit(cls, collection: AnyCollection, transform: str, encode: Encode, device: str, progress: Progress) -> Self:
        """Fit a transform to a collection. If `transform` is "auto", choose a transform first."""
        from threadpoolctl import threadpool_limits

        # The matrices are so small that further threads of BLAS mostly wait, and they wait busily.
        with threadpool_limits(1, user_api="blas"):
            return cls._fit(collection, transform, encode, device, progress)

    @classmethod
    def _fit(cls, collection: AnyCollection, transform: str, encode: Encode, device: str, progress: Progress) -> Self:
        return_free_memory()
        numbers, places = _sample(collection)
        passages = collection.store.vectors(numbers.tolist(), collection.dimension, checked=True)
        settled = _settled(collection.encoder)
        unread = is_brought(collection.encoder)
        evidence = Evidence([], np.zeros(0, np.int64), passages[:0]) if unread else _evidence(collection)
        short, note, look = None, "", None
        if transform == AUTO and not settled:
            progress("choosing a transform", 0, 1)
            look = Look.at(evidence, encode, SEED)
        if len(passages) >= FEWEST_FOR_SHORT and not unread:
            count = short_text_count(len(passages), transform, look)
            short, note = _encode_short_texts(evidence.texts, count, transform, encode, progress)
        if transform == "flow" and short:
            look = Look.at(evidence, encode, SEED)
        sample = passages if short is None else np.concatenate([passages, short.vectors])
        fits = Fits(sample, SEED, device, lambda done, total: progress("fitting the transform", done, total))
        chosen: Choice | None = None
        if transform == AUTO and settled:
            chosen = Choice("none", settled, (), 0, len(evidence.texts), 0.0)
        elif look:
            chosen = choose_for(
                transform,
                look,
                fits,
                with_short_texts=short is not None,
                progress=lambda done, total: progress("choosing a transform", done, total),
            )
        fitted = fits.fit(chosen.chosen if chosen else transform)
        if note and fitted.family != "none":
            fitted = type(fitted)(replace(fitted.state, notes=(*fitted.notes, note)))
        counts = {
            "passages": len(passages),
            "short_texts": len(short.texts) if short and fitted.family != "none" else 0,
        }
        queries = None if short is None else short.vectors.astype(np.float16)
        del sample, fits, evidence
        progress("measuring ordinary text", 0, 1)
        novelty = _measure_novelty(collection, places, passages, short)
        progress("measuring ordinary text", 1, 1)
        del passages
        return_free_memory()
        choice = chosen.to_json() if chosen else None
        return cls(fitted, _writer(fitted, novelty, queries), counts, queries, choice)


def _settled(encoder: Mapping[str, Any]) -> str:
    """Return the reason why "auto" is "none" with this encoder, without a comparison. Empty if there is a choice."""
    return WORDS_ARE_WHITE if encoder["pooling"] == LEARNED else NOT_COMPARABLE if is_brought(encoder) else ""


def short_text_count(passages: int, transform: str, look: Look | None) -> int:
    """Return how many short texts are cut from this number of passages."""
    most = SHORT_TEXTS
    if transform == "none" or (look and look.tuned):
        most = max(FEW_SHORT_TEXTS, passages // PASSAGES_A_SHORT_TEXT)
    return min(most, SHORT_TEXTS, MOST_OF_A_PASSAGE * passages)


def return_free_memory() -> None:
    """Make glibc return freed memory to the system, because the next index may be as large as the collection."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def _writer(
    transform: Transform, novelty: Novelty | None, queries: NDArray[np.float16] | None
) -> Callable[[Path], list[str]]:
    def write(folder: Path) -> list[str]:
        written = [*transform.save(folder), *(novelty.save(folder) if novelty else [])]
        if queries is not None:
            save_array(folder / QUERIES_FILE, queries)
            written.append(QUERIES_FILE)
        return written

    return write


def _load_queries(folder: Path, dimension: int) -> NDArray[np.float16] | None:
    """Load the raw vectors of the short texts. Return None if the collection had too few passages for short texts."""
    path = folder / QUERIES_FILE
    if not path.exists():
        return None
    try:
        queries = np.asarray(np.load(path, allow_pickle=False), np.float16)
        if queries.ndim != 2 or queries.shape[1] != dimension or not np.isfinite(queries).all():
            raise ValueError(f"each vector must have {dimension} finite numbers")
    except (ValueError, EOFError, OSError) as error:
        raise Damaged(f"{path} cannot be read: {first_line(error)}; run: retriever verify --repair") from error
    return queries


def _sample(collection: AnyCollection) -> tuple[NDArray[np.int64], list[PassageRow]]:
    """Return the numbers of the vectors in use, and the first passage of each, in the order of the documents.

    If there are more than FIT_SAMPLE, return a uniform random sample. Threads store vectors in the order in which they
    are finished, so a transform that was trained in that order would differ from run to run.
    """
    numbers = collection.store.used_vectors()
    if len(numbers) > FIT_SAMPLE:
        rng = np.random.default_rng(SEED)
        numbers = rng.choice(numbers, FIT_SAMPLE, replace=False)
    passages = collection.store.passages_of_vectors(numbers.tolist())
    first = [passages[number][0] for number in numbers.tolist()]
    order = sorted(range(len(numbers)), key=lambda place: (first[place].document, first[place].position))
    return numbers[order], [first[place] for place in order]


def _encode_short_texts(
    passages: Sequence[str], count: int, transform: str, encode: Encode, progress: Progress
) -> tuple[ShortTexts | None, str]:
    """Cut `count` short texts from the passages and encode them.

    If the encoder is unavailable, return None and a note.
    """
    texts = short_texts(passages, count, SEED + 1)
    if not texts:
        return None, ""
    progress("embedding short texts", 0, len(texts))
    try:
        vectors = encode(texts)
    except (EncoderUnavailable, Mismatch):
        if transform == AUTO:
            raise
        return None, WITHOUT_SHORT
    progress("embedding short texts", len(texts), len(texts))
    return ShortTexts(texts, vectors), ""


def _measure_novelty(
    collection: AnyCollection, passages: Sequence[PassageRow], sample: NDArray[np.float32], short: ShortTexts | None
) -> Novelty | None:
    """Measure the novelty of ordinary text. The novelty of a query is later compared with it."""
    store = collection.store

    def texts_of(rows: NDArray[np.int64]) -> list[str]:
        chosen = [passages[row] for row in rows]
        return [text for _, text in _texts(store, [(p.document, p.start, p.end) for p in chosen])]

    documents = np.array([passage.document for passage in passages], np.int64)
    return measure(sample, documents, texts_of, short, last_vector=store.last_vector(), seed=SEED)


def _evidence(collection: AnyCollection) -> Evidence:
    """Draw random passages with their texts, documents and raw vectors."""
    store = collection.store
    chosen = store.passage_sample(POOL, SEED)
    spans = [(passage.document, passage.start, passage.end) for passage in chosen]
    return Evidence(
        [encoded_text(title, text) for title, text in _texts(store, spans)],
        np.array([passage.document for passage in chosen], np.int64),
        store.vectors([passage.vector for passage in chosen], collection.dimension, checked=True),
    )


def _texts(store: AnyStore, spans: Sequence[tuple[int, int, int]]) -> list[tuple[str, str]]:
    """Return the title and text of each span (document, start, end)."""
    found: list[tuple[str, str]] = [("", "")] * len(spans)
    by_document: dict[int, list[int]] = {}
    for place, (number, _, _) in enumerate(spans):
        by_document.setdefault(number, []).append(place)
    for number, fields in store.documents_in_turn(list(by_document)):
        for place in by_document[number]:
            _, start, end = spans[place]
            found[place] = (fields["title"][:LONGEST_TITLE], fields["text"][start:end])
    return found
