"""A map of a collection: every document a point, like beside like, in groups that are named by their own words.

A document is the mean of its passages in the space that is searched. Up to LAID_OUT documents are laid out; of more, a
seeded choice is, and the rest are placed among their nearest of these. A map is made for a generation. Documents that
change afterwards are placed among their neighbours, until the collection is published again.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.faiss.recall import Nearest, Queries
from indexes.faiss.vectors import unit_rows
from indexes.folder.collection import Collection
from indexes.sqlite.documents import DocumentStore
from retriever.errors import NotACollection
from retriever.maps import layout, topics
from retriever.maps.files import cached, keep
from retriever.maps.layout import Matrix, Numbers, Places
from retriever.progress import Progress, silent
from retriever.transforms import Transform
from retriever.transforms.families import load_transform

LAID_OUT = 20_000
MEASURED = 1000
READ_TOGETHER = 4096
# So much of a map must still hold for the rest to be placed on it.
STILL_TRUE = 0.5
READ_FOR_LABELS = 200
LABEL_TEXT = 1000
SIDE = 65_535
SEED = 0
_SCATTER = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Cluster:
    """A group of documents and the words that are its own."""

    number: int
    label: str
    documents: int


@dataclass(frozen=True)
class Kept:
    """How true a map is: the share of a document's ten nearest in the space that are so near on the map."""

    within_10: float | None
    within_50: float | None
    measured_on: int
    """How many documents were asked; 0 where there is nothing to measure."""


@dataclass(frozen=True)
class Map:
    """The points, one a document in the order of the numbers that the collection gives its documents."""

    generation: str
    """The hash of the generation that it was made for."""
    numbers: Numbers
    signatures: NDArray[np.uint64]
    """What each document's vectors were when it was placed."""
    x: NDArray[np.uint16]
    y: NDArray[np.uint16]
    cluster: NDArray[np.uint8]
    clusters: tuple[Cluster, ...]
    kept: Kept
    placed: int
    """How many documents were placed among their neighbours, and not laid out with the others."""

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def key(self) -> str:
        """Changes whenever any point does."""
        parts = (self.numbers, self.signatures, self.x, self.y, self.cluster)
        return hashlib.sha256(b"".join([self.generation.encode(), *(p.tobytes() for p in parts)])).hexdigest()[:32]

    def place_of(self, number: int) -> int | None:
        """The point that stands for a document."""
        place = int(np.searchsorted(self.numbers, number))
        return place if place < len(self.numbers) and self.numbers[place] == number else None


class Documents:
    """The documents of a collection as vectors, read when they are asked for."""

    def __init__(self, collection: Collection, transform: Transform) -> None:
        self.store, self._dimension, self._transform = collection.store, collection.dimension, transform
        documents, self._vectors = self.store.passage_vectors()
        self.numbers, self._starts = np.unique(documents, return_index=True)
        self.signatures = _signatures(self._vectors, self._starts)
        self._ends = np.append(self._starts[1:], len(documents))

    def __len__(self) -> int:
        return len(self.numbers)

    def rows(self, places: Numbers, seen: Callable[[int], None] = lambda done: None) -> Matrix:
        """The unit vectors of the documents at these places."""
        blocks = []
        for start in range(0, len(places), READ_TOGETHER):
            blocks.append(self._block(places[start : start + READ_TOGETHER]))
            seen(start + len(blocks[-1]))
        return np.concatenate(blocks) if blocks else np.zeros((0, self._transform.dimension_out), np.float32)

    def _block(self, places: Numbers) -> Matrix:
        counts = self._ends[places] - self._starts[places]
        vectors = np.concatenate([self._vectors[self._starts[p] : self._ends[p]] for p in places])
        different, which = np.unique(vectors, return_inverse=True)
        mapped = unit_rows(self._transform.apply(self.store.vectors(different.tolist(), self._dimension)))
        sums = np.add.reduceat(mapped[which], np.append(0, np.cumsum(counts)[:-1]), axis=0)
        return unit_rows(sums)


def document_state(store: DocumentStore) -> tuple[Numbers, NDArray[np.uint64]]:
    """The numbers of the documents there are, and what tells whether a document's vectors have changed."""
    documents, vectors = store.passage_vectors()
    numbers, starts = np.unique(documents, return_index=True)
    return numbers, _signatures(vectors, starts)


def _signatures(vectors: Numbers, starts: Numbers) -> NDArray[np.uint64]:
    """A hash of the vectors of each document, whatever their order; the number of a vector is never used again."""
    mixed = (vectors.astype(np.uint64) + np.uint64(1)) * _SCATTER
    mixed = (mixed ^ (mixed >> np.uint64(29))) * _SCATTER
    return np.add.reduceat(mixed, starts) if len(mixed) else mixed


def map_of(collection: Collection, progress: Progress = silent) -> Map:
    """The map of the published generation with the documents of now, from the cache where it holds it."""

    def look(generation: Any) -> tuple[str, Transform]:
        published = collection.published()
        if generation is None or published is None:
            raise NotACollection(f"{collection.folder} has no index yet, so there is nothing to make a map of.")
        return published[2], load_transform(generation)

    generation, transform = collection.with_generation(look)
    documents = Documents(collection, transform)
    found = cached(generation)
    if found is not None:
        if np.array_equal(found.numbers, documents.numbers) and np.array_equal(found.signatures, documents.signatures):
            return found
        found = _brought_up_to_date(found, documents, progress)
    made = found or _made(generation, documents, progress)
    keep(made)
    return made


def _made(generation: str, documents: Documents, progress: Progress) -> Map:
    count, rng = len(documents), np.random.default_rng(SEED)
    laid = np.sort(rng.permutation(count)[:LAID_OUT])
    asked = np.sort(rng.permutation(count)[:MEASURED])
    progress("reading", 0, len(laid))
    vectors = documents.rows(laid, lambda done: progress("reading", done, len(laid)))
    first = layout.lay_out(vectors, lambda done, total: progress("laying out", done, total), SEED)
    group = topics.groups(vectors, SEED)

    places, groups = np.zeros((count, 2)), np.zeros(count, np.int64)
    places[laid], groups[laid] = first, group
    nearest = Nearest(Queries(documents.rows(asked), "documents", asked), count)
    is_laid = np.zeros(count, bool)
    is_laid[laid] = True
    for start in range(0, len(laid), READ_TOGETHER):
        nearest.see(laid[start : start + READ_TOGETHER], vectors[start : start + READ_TOGETHER])
    rest = np.flatnonzero(~is_laid)
    for start in range(0, len(rest), READ_TOGETHER):
        some = rest[start : start + READ_TOGETHER]
        rows = documents.rows(some)
        nearest.see(some, rows)
        places[some], beside = layout.placed_among(rows, vectors, first, SEED + start)
        groups[some] = group[beside]
        progress("placing", start + len(some), len(rest))

    x, y = _on_paper(places)
    true = nearest.held_out()
    neighbours = true.numbers if true else np.zeros((0, 0), np.int64)
    paper = np.stack([x, y], axis=1)
    within_10, within_50 = (layout.preserved(paper, asked, neighbours, within) for within in (10, 50))
    kept = Kept(within_10, within_50, len(neighbours))
    clusters = _clusters(documents, groups, progress)
    return Map(
        generation, documents.numbers, documents.signatures, x, y, groups.astype(np.uint8), clusters, kept, len(rest)
    )


def _brought_up_to_date(old: Map, documents: Documents, progress: Progress) -> Map | None:
    """The old map with what has changed placed among its neighbours; None where too much has."""
    known = dict(zip(old.numbers.tolist(), zip(range(len(old)), old.signatures.tolist(), strict=True), strict=True))
    before = np.array(
        [
            place if signature == now else -1
            for number, now in zip(documents.numbers.tolist(), documents.signatures.tolist(), strict=True)
            for place, signature in [known.get(number, (-1, None))]
        ],
        np.int64,
    )
    stayed, new = np.flatnonzero(before >= 0), np.flatnonzero(before < 0)
    if len(stayed) < STILL_TRUE * max(len(documents), len(old)) or not len(stayed):
        return None
    x, y = np.zeros(len(documents), np.uint16), np.zeros(len(documents), np.uint16)
    cluster = np.zeros(len(documents), np.uint8)
    x[stayed], y[stayed], cluster[stayed] = (part[before[stayed]] for part in (old.x, old.y, old.cluster))
    if len(new):
        among = stayed[np.sort(np.random.default_rng(SEED).permutation(len(stayed))[:LAID_OUT])]
        progress("placing", 0, len(new))
        vectors = documents.rows(among)
        paper = np.stack([x[among], y[among]], axis=1).astype(np.float64)
        for start in range(0, len(new), READ_TOGETHER):
            some = new[start : start + READ_TOGETHER]
            places, beside = layout.placed_among(documents.rows(some), vectors, paper, SEED + start)
            x[some], y[some] = np.clip(np.rint(places), 0, SIDE).astype(np.uint16).T
            cluster[some] = cluster[among[beside]]
            progress("placing", start + len(some), len(new))
    sizes = np.bincount(cluster, minlength=len(old.clusters))
    return replace(
        old,
        numbers=documents.numbers,
        signatures=documents.signatures,
        x=x,
        y=y,
        cluster=cluster,
        clusters=tuple(replace(one, documents=int(sizes[one.number])) for one in old.clusters),
        placed=old.placed + len(new),
    )


def _on_paper(places: Places) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """Places as whole numbers from 0 to SIDE, both axes at one scale, in the middle of the paper."""
    if not len(places):
        return np.zeros(0, np.uint16), np.zeros(0, np.uint16)
    low, high = places.min(axis=0), places.max(axis=0)
    width = max(float((high - low).max()), 1e-12)
    scaled = np.clip((places - (low + high) / 2) / width + 0.5, 0, 1)
    x, y = np.rint(scaled * SIDE).astype(np.uint16).T
    return np.ascontiguousarray(x), np.ascontiguousarray(y)


def _clusters(documents: Documents, groups: Numbers, progress: Progress) -> tuple[Cluster, ...]:
    """The groups with their names, which are read from a seeded choice of their documents."""
    if not len(groups):
        return ()
    rng = np.random.default_rng(SEED)
    sizes = np.bincount(groups)
    texts = []
    for number in range(len(sizes)):
        progress("naming", number, len(sizes))
        some = rng.permutation(documents.numbers[groups == number])[:READ_FOR_LABELS]
        stored = documents.store.documents(some.tolist()).values()
        texts.append([f"{one['title']}\n{one['text'][:LABEL_TEXT]}" for one in stored])
    named = topics.labels(texts)
    return tuple(Cluster(number, named[number], int(size)) for number, size in enumerate(sizes))
