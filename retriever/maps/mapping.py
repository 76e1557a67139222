"""Making the map of a collection.

The vector of a document is the mean of the transformed vectors of its passages. Up to LAID_OUT documents are laid out
together. If a collection has more, a seeded sample is laid out. The other documents are placed near their nearest
neighbours in the sample. A map belongs to a generation. If documents change later, they are placed near their
neighbours until the collection is published again.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.faiss.recall import Nearest, Queries
from indexes.faiss.vectors import unit_rows
from indexes.folder.collection import Collection
from indexes.sqlite.documents import DocumentStore
from retriever.errors import NotACollection
from retriever.maps import layout, topics
from retriever.maps.layout import Matrix, Numbers, Places
from retriever.maps.map import Cluster, Map, Preserved, cache, cached
from retriever.progress import Progress, silent
from retriever.transforms import Transform, load_transform

LAID_OUT = 20_000
MEASURED = 1000
READ_TOGETHER = 4096
STILL_VALID = 0.5
"""If a smaller share of the documents is unchanged, the map is made from scratch."""
READ_FOR_LABELS = 200
LABEL_TEXT = 1000
SIDE = 65_535
SEED = 0
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class DocumentState:
    """The number of each document, and a hash of its vectors (its signature). They are compared with those of a map."""

    def __init__(self, store: DocumentStore) -> None:
        self.store = store
        documents, self._vectors = store.passage_vectors()
        self.numbers, self._starts = np.unique(documents, return_index=True)
        # The hash is over the numbers of the vectors, in any order. The number of a vector is never reused.
        mixed = (self._vectors.astype(np.uint64) + np.uint64(1)) * _MULTIPLIER
        mixed = (mixed ^ (mixed >> np.uint64(29))) * _MULTIPLIER
        self.signatures = np.add.reduceat(mixed, self._starts) if len(mixed) else mixed

    def __len__(self) -> int:
        return len(self.numbers)


class Documents(DocumentState):
    """The documents of a collection, with their vectors, which are read on demand."""

    def __init__(self, store: DocumentStore, transform: Transform) -> None:
        super().__init__(store)
        self._transform = transform
        self._ends = np.append(self._starts[1:], len(self._vectors))

    def rows(self, places: Numbers, seen: Callable[[int], None] = lambda done: None) -> Matrix:
        """Return the unit vectors of the documents at these positions in `numbers`."""
        rows = np.zeros((len(places), self._transform.dimension_out), np.float32)
        for start in range(0, len(places), READ_TOGETHER):
            some = places[start : start + READ_TOGETHER]
            counts = self._ends[some] - self._starts[some]
            vectors = np.concatenate([self._vectors[self._starts[p] : self._ends[p]] for p in some])
            different, which = np.unique(vectors, return_inverse=True)
            stored = self.store.vectors(different.tolist(), self._transform.dimension_in)
            mapped = unit_rows(self._transform.apply(stored))
            sums = np.add.reduceat(mapped[which], np.append(0, np.cumsum(counts)[:-1]), axis=0)
            rows[start : start + len(some)] = unit_rows(sums)
            seen(start + len(some))
        return rows


def map_of(collection: Collection, progress: Progress = silent) -> Map:
    """Return a map of the current documents. Use or update the cached map of the published generation if possible."""

    def load(generation: Any) -> tuple[str, Transform]:
        published = collection.published()
        if generation is None or published is None:
            raise NotACollection(f"{collection.folder} has no index yet, so there is nothing to make a map of.")
        return published[2], load_transform(generation)

    generation, transform = collection.with_generation(load)
    documents = Documents(collection.store, transform)
    found = cached(generation)
    if found is not None and found.shows(documents.numbers, documents.signatures):
        return found
    made = (_updated(found, documents, progress) if found else None) or _made(generation, documents, progress)
    cache(made)
    return made


def _made(generation: str, documents: Documents, progress: Progress) -> Map:
    count, rng = len(documents), np.random.default_rng(SEED)
    sample = np.sort(rng.permutation(count)[:LAID_OUT])
    measured = np.sort(rng.permutation(count)[:MEASURED])
    progress("reading", 0, len(sample))
    vectors = documents.rows(sample, lambda done: progress("reading", done, len(sample)))
    points, groups = np.zeros((count, 2)), np.zeros(count, np.int64)
    points[sample] = layout.lay_out(vectors, lambda done, total: progress("laying out", done, total), SEED)
    groups[sample] = topics.groups(vectors, SEED)

    nearest = Nearest(Queries(documents.rows(measured), "documents", measured), count)
    for start in range(0, len(sample), READ_TOGETHER):
        nearest.see(sample[start : start + READ_TOGETHER], vectors[start : start + READ_TOGETHER])
    rest = np.setdiff1d(np.arange(count), sample)
    points[rest], beside = _placed(documents, rest, vectors, points[sample], progress, nearest.see)
    groups[rest] = groups[sample[beside]]

    drawn = _scaled(points)
    true = nearest.held_out()
    neighbours = true.numbers if true else np.zeros((0, 0), np.int64)
    within_10, within_50 = (layout.preserved(drawn, measured, neighbours, within) for within in (10, 50))
    return Map(
        generation=generation,
        numbers=documents.numbers,
        signatures=documents.signatures,
        x=drawn[:, 0].copy(),
        y=drawn[:, 1].copy(),
        cluster=groups.astype(np.uint8),
        clusters=_clusters(documents, groups, progress),
        kept=Preserved(within_10, within_50, len(neighbours)),
        placed=len(rest),
    )


def _placed(
    documents: Documents,
    new: Numbers,
    known: Matrix,
    points: Places,
    progress: Progress,
    see: Callable[[Numbers, Matrix], None] = lambda places, rows: None,
) -> tuple[Places, Numbers]:
    """Place each new document near its nearest neighbours among the `known` vectors, whose points are `points`.

    Return the new points, and for each new document the row of its nearest neighbour in `known`.
    """
    found, beside = np.zeros((len(new), 2)), np.zeros(len(new), np.int64)
    for start in range(0, len(new), READ_TOGETHER):
        part = slice(start, start + READ_TOGETHER)
        rows = documents.rows(new[part])
        see(new[part], rows)
        found[part], beside[part] = layout.placed_among(rows, known, points, SEED + start)
        progress("placing", start + len(rows), len(new))
    return found, beside


def _updated(old: Map, documents: Documents, progress: Progress) -> Map | None:
    """Return the old map with new and changed documents placed near their neighbours.

    Return None if too many documents have changed.
    """
    known = dict(zip(zip(old.numbers.tolist(), old.signatures.tolist(), strict=True), range(len(old)), strict=True))
    now = zip(documents.numbers.tolist(), documents.signatures.tolist(), strict=True)
    before = np.array([known.get(document, -1) for document in now], np.int64)
    same, new = np.flatnonzero(before >= 0), np.flatnonzero(before < 0)
    if len(same) < STILL_VALID * max(len(documents), len(old)) or not len(same):
        return None
    x, y = np.zeros(len(documents), np.uint16), np.zeros(len(documents), np.uint16)
    cluster = np.zeros(len(documents), np.uint8)
    x[same], y[same], cluster[same] = (part[before[same]] for part in (old.x, old.y, old.cluster))
    if len(new):
        among = same[np.sort(np.random.default_rng(SEED).permutation(len(same))[:LAID_OUT])]
        progress("placing", 0, len(new))
        drawn = np.stack([x[among], y[among]], axis=1).astype(np.float64)
        points, beside = _placed(documents, new, documents.rows(among), drawn, progress)
        x[new], y[new] = np.clip(np.rint(points), 0, SIDE).astype(np.uint16).T
        cluster[new] = cluster[among[beside]]
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


def _scaled(points: Places) -> NDArray[np.uint16]:
    """Scale and centre the points, to integers from 0 to SIDE. Both axes are scaled by the same factor."""
    if not len(points):
        return np.zeros((0, 2), np.uint16)
    low, high = points.min(axis=0), points.max(axis=0)
    width = max(float((high - low).max()), 1e-12)
    scaled = np.clip((points - (low + high) / 2) / width + 0.5, 0, 1)
    return np.asarray(np.rint(SIDE * scaled), np.uint16)


def _clusters(documents: Documents, groups: Numbers, progress: Progress) -> tuple[Cluster, ...]:
    """Return the clusters. Their labels come from the texts of a seeded sample of their documents."""
    if not len(groups):
        return ()
    rng = np.random.default_rng(SEED)
    sizes = np.bincount(groups)
    texts = []
    for number in range(len(sizes)):
        progress("naming", number, len(sizes))
        sample = rng.permutation(documents.numbers[groups == number])[:READ_FOR_LABELS]
        stored = documents.store.documents(sample.tolist()).values()
        texts.append([f"{one['title']}\n{one['text'][:LABEL_TEXT]}" for one in stored])
    labels = topics.labels(texts)
    return tuple(Cluster(number, labels[number], int(size)) for number, size in enumerate(sizes))
