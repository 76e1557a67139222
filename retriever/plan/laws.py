"""Formulas that scale the measurements of a rehearsal to a collection of N documents with V vectors.

The rehearsal measures two collections. A "line" is the straight line through both measurements. The larger collection
has V2 vectors.

CPU of `retriever index`
    start, fitting          constant
    embedding and storing   line over N, plus reading, which is proportional to N
    building, flat          proportional to V
    building, other types   flat + V · (coding a vector + comparing it with the queries that measure recall)
                            + comparisons of k-means and of assigning vectors to lists + searches that tune the index
    building, hnsw          as other types, but coding a vector is proportional to log V
Disk
    SQLite                  line over N. It can be up to 12 % too low: when row numbers need one more byte, a page may
                            hold one vector fewer, e.g. with 384 dimensions from 16,384 vectors on
    index                   FAISS's own formula, plus 8 V for numbers
    other files             constant
Memory: the measured peak, plus the growth of
    building                index or training vectors, 32 V, SQLite's cache, FIT_COPIES of the raw vectors of the fit
    searching               index, 8 V, SQLite's cache
CPU of a query, without the encoder
    flat                    constant + scan. The scan is interpolated between measured sizes, and proportional to V
                            beyond the largest size
    other types             constant + time at V2 + growth of the scanned bytes, at the rate of flat. Scanned bytes are
                            the codes; for types with lists, the centroids and the codes in the probed lists
    hnsw                    constant + time at V2 · log V / log V2
The number of probed lists is assumed to stay as in the sample. The recall of a larger collection is unknown.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import numpy as np

from indexes.faiss.building import KMEANS_ROUNDS, TRAINING_SAMPLE
from indexes.faiss.recall import MOST_QUERIES
from indexes.faiss.types import estimated_bytes, factory_string
from indexes.faiss.vectors import empty_index, import_faiss
from indexes.sqlite.database import CACHE_KB
from retriever.ingest.fitted import FIT_SAMPLE

FLAT, HNSW = "flat", "hnsw"
START, EMBEDDING, FITTING, BUILDING = "start", "embedding and storing", "fitting", "building the index"
NUMBER_BYTES, NUMBERS_BUILDING = 8, 4
# Number of copies of the raw vectors, as 32-bit floats, that a fit holds at its peak. Measured on 1,000 to 20,000
# vectors.
FIT_COPIES = 6
# A binary search tries about five settings with half of the queries each. The other half measures the recall.
SEARCHES_TO_TUNE = 3 * MOST_QUERIES


@dataclass(frozen=True)
class Measured:
    """One of the two collections of the rehearsal."""

    documents: int
    passages: int
    vectors: int
    sqlite_bytes: int
    cpu: Mapping[str, float]
    """CPU seconds by part: embedding and storing all documents, fitting, and building the index."""


@dataclass(frozen=True)
class Trial:
    """The larger collection with another index type. `recall` is None if the sample is too small to measure it."""

    factory: str
    build_cpu: float
    query_ms: float
    """CPU milliseconds of one query in the index, including the exact scores of its candidates."""
    settings: Mapping[str, int]
    recall: float | None


@dataclass(frozen=True)
class Rates:
    """The measurements of a rehearsal.

    Fields whose names end with `_cpu` are CPU seconds. Those that end with `_ms` are CPU milliseconds per query.
    """

    sample: str
    sample_documents: int
    read_cpu: float
    """CPU seconds to read one document of the source."""
    encoder: Mapping[str, Any]
    precision_reason: str
    transform: str
    dimension: int
    """Dimension of the transformed vectors."""
    start_cpu: float
    build_peak_bytes: int
    """Peak memory of building the smaller collection."""
    other_bytes: int
    """Total size of the files that do not grow with the collection."""
    small: Measured
    large: Measured
    trials: Mapping[str, Trial]
    query_ms: float
    """CPU milliseconds of a query in the larger collection, without the encoder."""
    encoder_ms: float
    search_peak_bytes: int
    scans: Sequence[tuple[int, float]]
    """Pairs in ascending order: the number of vectors of a flat index, and the milliseconds of scanning them."""
    compare_cpu: float
    """CPU seconds to compare two vectors, if many are compared at once."""
    cores: int

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        parts = dict(found) | {name: Measured(**found[name]) for name in ("small", "large")}
        parts["trials"] = {name: Trial(**trial) for name, trial in found["trials"].items()}
        return cls(**parts | {"scans": tuple(map(tuple, found["scans"]))})


@dataclass(frozen=True)
class Law:
    """Predictions for collections like the sample. `documents` and `vectors` are numbers of documents and vectors."""

    rates: Rates

    def _line(self, small: float, large: float, documents: float) -> float:
        """Extrapolate the line through the measurements of the two collections. Its slope is never negative."""
        first, second = self.rates.small.documents, self.rates.large.documents
        slope = max(0.0, (large - small) / max(1, second - first))  # repeated ids may leave no difference
        return max(0.0, large + slope * (documents - second))

    def vectors(self, documents: float) -> float:
        return documents * self.rates.large.vectors / self.rates.large.documents

    def cpu(self, documents: float, index_type: str = FLAT) -> dict[str, float]:
        """Predict the CPU seconds of `retriever index` by part."""
        small, large = self.rates.small.cpu, self.rates.large.cpu
        embedding = self._line(small[EMBEDDING], large[EMBEDDING], documents) + documents * self.rates.read_cpu
        building = self.build_cpu(self.vectors(documents), index_type)
        fitting = max(small[FITTING], large[FITTING])
        return {START: self.rates.start_cpu, EMBEDDING: embedding, FITTING: fitting, BUILDING: building}

    def build_cpu(self, vectors: float, index_type: str) -> float:
        """Predict the CPU seconds of building an index from stored vectors and a fitted transform."""
        rehearsed, flat = self.rates.large.vectors, self.rates.large.cpu[BUILDING]
        if index_type == FLAT:
            return vectors / rehearsed * flat
        trial = self.rates.trials[index_type]
        known = self._judge_cpu(rehearsed, index_type) + self._list_cpu(rehearsed, trial.factory)
        coding = max(0.0, trial.build_cpu - flat - known) * (self._depth(vectors) if index_type == HNSW else 1)
        rest = self._judge_cpu(vectors, index_type) + self._list_cpu(vectors, self.factory(index_type, vectors))
        return vectors / rehearsed * (flat + coding) + rest

    def _judge_cpu(self, vectors: float, index_type: str) -> float:
        """Predict the CPU seconds of measuring recall.

        Every vector is compared with the queries. Then searches find the best settings of the index.
        """
        searches = SEARCHES_TO_TUNE if self.rates.trials[index_type].settings else MOST_QUERIES
        compared = MOST_QUERIES * vectors * self.rates.compare_cpu
        return compared + searches * self._index_ms(vectors, index_type) / 1000

    def _list_cpu(self, vectors: float, factory: str) -> float:
        """Predict the CPU seconds of making lists.

        K-means compares training vectors with every list in each round. Then each vector is assigned to a list.
        """
        compared = KMEANS_ROUNDS * min(vectors, TRAINING_SAMPLE) + vectors
        return compared * lists_of(factory) * self.rates.compare_cpu

    def sqlite_bytes(self, documents: float) -> float:
        return self._line(self.rates.small.sqlite_bytes, self.rates.large.sqlite_bytes, documents)

    def factory(self, index_type: str, vectors: float) -> str:
        return factory_string(index_type, int(vectors), self.rates.dimension)

    def index_bytes(self, vectors: float, index_type: str) -> float:
        """Predict the size of the FAISS index, which is the same on disk and in memory."""
        factory = self.factory(index_type, vectors)
        fixed, each, per_list = _sizes(factory, self.rates.dimension)
        return fixed + each * int(vectors) + per_list * lists_of(factory)

    def disk(self, documents: float, index_type: str = FLAT) -> float:
        """Predict the size of the whole collection."""
        vectors = self.vectors(documents)
        index = self.index_bytes(vectors, index_type) + NUMBER_BYTES * vectors
        if index_type != FLAT:  # the raw vectors that its candidates are scored with
            index += 2 * int(self.rates.encoder["dimension"]) * vectors
        return self.sqlite_bytes(documents) + index + self.rates.other_bytes

    def build_memory(self, documents: float, index_type: str = FLAT) -> float:
        """Predict the peak memory of `retriever index`."""
        before = self._building(self.rates.small.documents, FLAT)
        return max(0.0, self.rates.build_peak_bytes - before) + self._building(documents, index_type)

    def _building(self, documents: float, index_type: str) -> float:
        vectors, raw = self.vectors(documents), 4 * int(self.rates.encoder["dimension"])
        index = self.index_bytes(vectors, index_type)
        if index_type not in (FLAT, HNSW):
            mapped = 4 * self.rates.dimension * (1 if self.rates.transform == "none" else 2)
            index = max(index, min(vectors, TRAINING_SAMPLE) * (raw + mapped))
        fit = FIT_COPIES * raw * min(vectors, FIT_SAMPLE)
        return index + fit + NUMBERS_BUILDING * NUMBER_BYTES * vectors + self._cache(documents)

    def search_memory(self, documents: float, index_type: str = FLAT) -> float:
        """Predict the peak memory of a process that has read the whole index."""
        before = self._searching(self.rates.large.documents, FLAT)
        return max(0.0, self.rates.search_peak_bytes - before) + self._searching(documents, index_type)

    def _searching(self, documents: float, index_type: str) -> float:
        vectors = self.vectors(documents)
        return self.index_bytes(vectors, index_type) + NUMBER_BYTES * vectors + self._cache(documents)

    def _cache(self, documents: float) -> float:
        """Predict the bytes of the database that a connection keeps in memory."""
        return min(1024 * CACHE_KB, self.sqlite_bytes(documents))

    def query_ms(self, vectors: float, index_type: str = FLAT) -> float:
        """Predict the CPU milliseconds of one query, without the encoder."""
        constant = self.rates.query_ms - self._index_ms(self.rates.large.vectors, FLAT)
        return max(0.0, constant) + self._index_ms(vectors, index_type)

    def _index_ms(self, vectors: float, index_type: str) -> float:
        """Predict the CPU milliseconds of one query inside the index."""
        if index_type == FLAT:
            sizes, times = zip((0, 0.0), *self.rates.scans, strict=True)
            return float(np.interp(vectors, sizes, times) * max(1.0, vectors / sizes[-1]))
        trial = self.rates.trials[index_type]
        if index_type == HNSW:
            return trial.query_ms * self._depth(vectors)
        now = self._scanned(vectors, self.factory(index_type, vectors), trial)
        before = self._scanned(self.rates.large.vectors, trial.factory, trial)
        return max(0.0, trial.query_ms + self._index_ms(now, FLAT) - self._index_ms(before, FLAT))

    def _scanned(self, vectors: float, factory: str, trial: Trial) -> float:
        """Return the bytes that this index reads for a query, divided by the bytes of one vector in a flat index."""
        code, lists = _sizes(factory, self.rates.dimension)[1], lists_of(factory)
        share = min(1.0, trial.settings.get("nprobe", 1) / lists) if lists else 1.0
        return lists + share * vectors * code / (4 * self.rates.dimension)

    def _depth(self, vectors: float) -> float:
        """Return how many times longer a walk through an HNSW graph is than in the rehearsal."""
        return math.log2(max(vectors, 2)) / math.log2(max(self.rates.large.vectors, 2))


def lists_of(factory: str) -> int:
    """Return the number of lists of an IVF index, or 0 for other types."""
    found = re.search(r"IVF(\d+)", factory)
    return int(found[1]) if found else 0


@cache
def _sizes(factory: str, dimension: int) -> tuple[float, float, float]:
    """Return the bytes of an index: fixed, per vector, per list."""

    def size(lists: int, count: int) -> int:
        # Few lists are used here, because creating an index with millions of lists would take long.
        name = re.sub(r"IVF\d+", f"IVF{lists}", factory)
        return estimated_bytes(import_faiss(), empty_index(name, dimension), count)

    per_list = size(2, 0) - size(1, 0)
    return size(1, 0) - per_list, (size(1, 10**6) - size(1, 0)) / 10**6, per_list
