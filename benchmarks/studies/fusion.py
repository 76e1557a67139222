"""Compare ways of combining vectors and words without labels. This is the study behind `--mode hybrid`.

    python -m benchmarks fusion DATA/scifact COLLECTION

COLLECTION is a collection of the set's corpus, made by `retriever index` or `retriever bench retrieval`. Both vectors
and words score every document, so the depth of a search has no influence. Results: FUSION_STUDY.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from benchmarks.studies.parts import ndcg
from indexes.faiss.vectors import unit_rows
from indexes.sqlite.words import K1
from retriever.evaluate.data.beir import read_set
from retriever.evaluate.rankings import DEPTH
from retriever.evaluate.report.tables import show, text_table
from retriever.retriever import Retriever

Scores = NDArray[np.float64]
"""Scores with a row for each query and a column for each document."""

NATS = 1 / (K1 + 1)
TAIL = 0.95


def surprise(own: Scores) -> Scores:
    """Return -log P(N(0, 1) > z) in nats."""
    return np.asarray(-log_ndtr(-own))


@dataclass(frozen=True)
class Sides:
    """The scores of both sides of a search: a row for each query, a column for each document."""

    ids: list[str]
    dense: Scores
    """The cosine with the document's best passage."""
    bm25: Scores
    """0 for no match."""
    share: Scores
    """BM25 as a share of the score that no document can exceed."""

    @property
    def strength(self) -> Scores:
        """The strength of meaning: 0 for the mean cosine of a query, 1 for a cosine of 1."""
        mean = self.dense.mean(axis=1, keepdims=True)
        return np.asarray(np.clip((self.dense - mean) / (1 - mean), 0, 1))


def both_sides(retriever: Retriever, queries: list[str]) -> Sides:
    """Let both sides score every document for each query."""
    store, words = retriever.local.store, retriever.local.words
    rows = store.db.conn.execute("SELECT number, id FROM documents ORDER BY number").fetchall()
    column = {number: place for place, (number, _) in enumerate(rows)}
    transform = retriever._searcher.transform()
    directions = unit_rows(transform.apply(retriever.query_vectors(queries)))
    dense = np.full((len(queries), len(rows)), -1.0)
    for numbers, raw in store.each_vector(retriever.local.dimension, used_only=True):
        cosines = directions @ unit_rows(transform.apply(raw)).T
        passages = store.passages_of_vectors(numbers.tolist())
        for place, number in enumerate(numbers.tolist()):
            for passage in passages[number]:
                own = dense[:, column[passage.document]]
                np.maximum(own, cosines[:, place], out=own)
    bm25 = np.zeros_like(dense)
    for row, query in enumerate(queries):
        for number, score in words.best(query, len(rows)):
            bm25[row, column[number]] = score
    ceilings = np.array([words.ceiling(query) for query in queries])
    return Sides([id_ for _, id_ in rows], dense, bm25, bm25 / np.maximum(ceilings, 1e-9)[:, None])


def z(own: Scores) -> Scores:
    return np.asarray((own - own.mean(axis=1, keepdims=True)) / np.maximum(own.std(axis=1, keepdims=True), 1e-9))


def ranks(own: Scores) -> Scores:
    order = np.argsort(-own, axis=1, kind="stable")
    places = np.empty_like(order)
    np.put_along_axis(places, order, np.arange(own.shape[1])[None, :].repeat(len(own), 0), axis=1)
    return np.asarray(1.0 + places, np.float64)


def spread(own: Scores) -> Scores:
    """Scale the scores of each query so that rank 1 has 1 and rank 100 has 0. Lower ranks also have 0."""
    best = -np.sort(-own, axis=1)[:, :DEPTH]
    return np.clip((own - best[:, -1:]) / np.maximum(best[:, :1] - best[:, -1:], 1e-9), 0, None)


def tail(own: Scores) -> Scores:
    """Convert scores to nats with an exponential tail that is fitted to each query's highest scores."""
    start = np.quantile(own, TAIL, axis=1, keepdims=True)
    mean = np.nanmean(np.where(own > start, own - start, np.nan), axis=1, keepdims=True)
    return np.asarray(np.where(own > start, -np.log(1 - TAIL) + (own - start) / mean, own - start))


def bounded(power: float, weight: float) -> Callable[[Sides], Scores]:
    """Return the sum of both sides on a scale from 0 to 1. The cosine decides between documents of equal sums."""
    return lambda sides: weight * sides.strength**power + (1 - weight) * sides.share + 1e-9 * sides.dense


FUSIONS: dict[str, Callable[[Sides], Scores]] = {
    "dense alone": lambda sides: sides.dense,
    "BM25 alone": lambda sides: sides.bm25,
    "reciprocal ranks, 60": lambda sides: 1 / (60 + ranks(sides.dense)) + (sides.bm25 > 0) / (60 + ranks(sides.bm25)),
    "min-max, half each": lambda sides: spread(sides.dense) + spread(sides.bm25),
    "z-scores": lambda sides: z(sides.dense) + z(sides.bm25),
    "tails of both, nats": lambda sides: tail(sides.dense) + tail(sides.bm25),
    "surprise: Gaussian + BM25, nats": lambda sides: surprise(z(sides.dense)) + NATS * sides.bm25,
    "the same, weight of vectors 0.2": lambda sides: 0.2 * surprise(z(sides.dense)) + NATS * sides.bm25,
    **{
        f"bounded, power {power:g}, weight {weight:g}": bounded(power, weight)
        for power in (1, 2, 3)
        for weight in (0.3, 0.5, 0.7)
    },
}


def run(data: Path, collection: Path, split: str | None) -> None:
    topics = read_set(data, split).topics
    with Retriever.open(collection) as retriever:
        sides = both_sides(retriever, list(topics.queries.values()))
    table = text_table(f"{topics.dataset}, {collection.name}", ["fusion", "nDCG@10"])
    for name, fusion in FUSIONS.items():
        table.add_row(name, f"{ndcg(topics, sides.ids, fusion(sides)):.1f}")
    show(table)
