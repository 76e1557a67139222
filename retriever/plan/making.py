"""The parts of a rehearsal that make a collection: stored, fitted and published by the code that always does."""

import sqlite3
from collections.abc import Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.faiss.vectors import unit_rows
from indexes.folder.collection import Collection
from indexes.folder.generation import INDEX_FILE, NUMBERS_FILE
from indexes.sqlite.database import CACHE_KB
from retriever.corpus import Document
from retriever.encoder.encoder import Encoder
from retriever.ingest.fitted import FIT_SAMPLE, SHORT_TEXTS
from retriever.ingest.pipeline import Ingestion
from retriever.ingest.writer import Writer
from retriever.plan.given import SEED, Given
from retriever.plan.pages import vector_table_bytes
from retriever.plan.rates import Fitted, Published, Sampled, Stored
from retriever.plan.sample import made_up
from retriever.plan.usage import cpu_ms_between, cpu_seconds, forget_peak, peak_bytes
from retriever.progress import silent
from retriever.settings import CollectionSettings, IndexSettings
from retriever.transforms.choice import POOL, Evidence, choose
from retriever.transforms.spec import AUTO

REHEARSED_PASSAGES = FIT_SAMPLE
REHEARSED_CHARACTERS = 30_000_000
VECTORS_TABLE, DOCUMENTS_TABLE = "vectors", "documents"


def made(folder: Path, encoder: Encoder, transform: str) -> Collection:
    """A new collection, empty."""
    return Collection.create(folder, CollectionSettings(encoder.identity, IndexSettings(transform)).to_json())


def store(
    collection: Collection, documents: Sequence[Document], given: Given, sampled: Sampled, planned: int
) -> Stored:
    """The sample and more, in two halves: what the second takes, more of the same will take."""
    a_document = sampled.characters / sampled.documents
    wanted = REHEARSED_PASSAGES * sampled.documents / sampled.passages
    most = int(min(planned, max(sampled.documents, min(wanted, REHEARSED_CHARACTERS / a_document))))
    every = islice(chain(documents, made_up(documents, most)), most)
    store, half = collection.store, (most + 1) // 2
    Ingestion(store, given).run(list(islice(every, half)))
    before, cpu = _table_bytes(collection), 0.0
    for some in iter(lambda: list(islice(every, 1000)), []):
        began = cpu_seconds()
        Ingestion(store, given).run(some)
        cpu += cpu_seconds() - began
    after, rest = _table_bytes(collection), most - half
    if not rest:  # a single document
        return Stored(most, store.count("vectors"), 0.0, {}, sum(after.values()), 1024 * CACHE_KB)
    if VECTORS_TABLE not in after:  # then the whole is known, and the law says what of it are vectors
        for part, count in ((before, half), (after, most)):
            part[VECTORS_TABLE] = vector_table_bytes(
                count * sampled.texts / sampled.documents, given.identity.dimension
            )
            part[DOCUMENTS_TABLE] -= part[VECTORS_TABLE]
    slopes = {name: max(0.0, (size - before.get(name, 0)) / rest) for name, size in after.items()}
    slopes.pop(VECTORS_TABLE)
    fixed = sum(after.values()) - after.get(VECTORS_TABLE, 0) - most * sum(slopes.values())
    grown = {name: size for name, size in slopes.items() if size}
    return Stored(most, store.count("vectors"), cpu / rest * most, grown, max(0.0, fixed), 1024 * CACHE_KB)


def suiting(
    transform: str,
    encoder: Encoder,
    places: Sequence[Sequence[tuple[int, int, str]]],
    known: dict[str, NDArray[np.float32]],
) -> str:
    """The transform that suits the sample's own texts; those made up would mislead."""
    if transform != AUTO:
        return transform
    pairs = [(number, text) for number, own in enumerate(places) for _, _, text in own if text in known][:POOL]
    rows = np.stack([known[text] for _, text in pairs])
    evidence = Evidence([text for _, text in pairs], np.array([number for number, _ in pairs], np.int64), rows)
    return choose(evidence, encoder.encode, rows, seed=SEED).chosen


def publish(collection: Collection, encoder: Encoder, transform: str, spec: str) -> tuple[Fitted, Published, Any]:
    """Published as asked for, then with the transform that suits the sample, then once more, fitting nothing."""
    asked, suits = IndexSettings(transform), IndexSettings(spec)
    costs = []
    for wanted in (asked, suits, suits):
        forget_peak()
        began = cpu_seconds()
        fitted = Writer(collection, lambda: encoder, "cpu", silent).publish(wanted)
        costs.append((cpu_seconds() - began, peak_bytes()))
    generation = collection.generation()
    assert generation is not None
    grow = (INDEX_FILE, NUMBERS_FILE)
    extra = sum(file["bytes"] for name, file in generation.manifest["files"].items() if name not in grow)
    (whole, fit_peak), _, (build, build_peak) = costs
    fitted_on = generation.manifest["fitted_on"]["passages"]
    return (
        Fitted(str(fitted.spec), fitted_on, fitted.dimension_out, max(0.0, whole - build), fit_peak),
        Published(generation.count, build, build_peak, 2 * extra),
        fitted.apply,
    )


def fetch_ms(collection: Collection, numbers: NDArray[np.int64], apply: Any) -> float:
    """CPU of reading one vector from all over the table, and of mapping it."""
    rng = np.random.default_rng(SEED)
    some = np.sort(rng.choice(numbers, min(len(numbers), 1000), replace=False)).tolist()

    def fetch() -> None:
        unit_rows(apply(collection.store.vectors(some, collection.dimension))).astype(np.float64)

    return cpu_ms_between(fetch) / len(some)


def judges(stored: Stored) -> int:
    """How many queries judge an index of a collection as large."""
    return min(SHORT_TEXTS, stored.vectors)


def _table_bytes(collection: Collection) -> dict[str, float]:
    """Bytes by table and index; of the whole database alone where SQLite was made without `dbstat`."""
    connection = collection.store.db.conn
    try:
        return dict(connection.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name").fetchall())
    except sqlite3.OperationalError:
        pages, size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        return {DOCUMENTS_TABLE: pages * size}
