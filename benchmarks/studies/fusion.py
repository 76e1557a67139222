"""Compare ways of combining vectors and words without labels. This is the study behind `--mode hybrid`.

    python -m benchmarks fusion DATA/scifact COLLECTION

COLLECTION is a collection of the set's corpus, made by `retriever index` or `retriever bench retrieval`. Vectors and
words both score every document, so the depth of a search has no influence. Results: FUSION_STUDY.md.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexes.faiss.vectors import unit_rows
from indexes.sqlite.words import K1
from retriever.evaluate.data.beir import read_set
from retriever.evaluate.rankings import DEPTH, MAIN, scores
from retriever.evaluate.report.tables import show, text_table
from retriever.retriever import Retriever
from retriever.search.fusion import surprise

Scores = NDArray[np.float64]
"""Scores with a row for each query and a column for each document."""

NATS = 1 / (K1 + 1)
TAIL = 0.95


def both_sides(retriever: Retriever, queries: list[str]) -> tuple[list[str], Scores, Scores]:
    """Return the ids of the documents, and the scores of each query with each document by vectors and by words.

    The score by vectors is the cosine with the document's best passage. The score by words is BM25, or 0 for no match.
    """
    store = retriever.local.store
    rows = store.db.conn.execute("SELECT number, id FROM documents ORDER BY number").fetchall()
    column = {number: place for place, (number, _) in enumerate(rows)}
    transform, encoder = retriever._searcher.transform(), retriever.encoder()
    directions = unit_rows(transform.apply(encoder.encode_queries(queries)))
    dense = np.full((len(queries), len(rows)), -1.0)
    for numbers, raw in store.each_vector(retriever.local.dimension, used_only=True):
        cosines = directions @ unit_rows(transform.apply(raw)).T
        passages = store.passages_of_vectors(numbers.tolist())
        for place, number in enumerate(numbers.tolist()):
            for passage in passages[number]:
                own = dense[:, column[passage.document]]
                np.maximum(own, cosines[:, place], out=own)
    lexical = np.zeros_like(dense)
    for row, query in enumerate(queries):
        for number, score in retriever.local.words.best(query, len(rows)):
            lexical[row, column[number]] = score
    return [id_ for _, id_ in rows], dense, lexical


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


FUSIONS: dict[str, Callable[[Scores, Scores], Scores]] = {
    "dense alone": lambda dense, lexical: dense,
    "BM25 alone": lambda dense, lexical: lexical,
    "reciprocal ranks, 60": lambda dense, lexical: 1 / (60 + ranks(dense)) + (lexical > 0) / (60 + ranks(lexical)),
    "min-max, half each": lambda dense, lexical: spread(dense) + spread(lexical),
    "min-max, 0.7 dense": lambda dense, lexical: 0.7 * spread(dense) + 0.3 * spread(lexical),
    "z-scores": lambda dense, lexical: z(dense) + z(lexical),
    "tails of both, nats": lambda dense, lexical: tail(dense) + tail(lexical),
    "tail of dense + BM25, nats": lambda dense, lexical: tail(dense) + NATS * lexical,
    "surprise: Gaussian + BM25, nats": lambda dense, lexical: surprise(z(dense)) + NATS * lexical,
    "the same, weight of vectors 0.5": lambda dense, lexical: 0.5 * surprise(z(dense)) + NATS * lexical,
    "the same, weight of vectors 0.25": lambda dense, lexical: 0.25 * surprise(z(dense)) + NATS * lexical,
    "the same, weight of vectors 0.1": lambda dense, lexical: 0.1 * surprise(z(dense)) + NATS * lexical,
}


def run(data: Path, collection: Path) -> None:
    topics = read_set(data).topics
    with Retriever.open(collection) as retriever:
        ids, dense, lexical = both_sides(retriever, list(topics.queries.values()))
    table = text_table(f"{topics.dataset}, {collection.name}", ["fusion", "nDCG@10"])
    for name, fusion in FUSIONS.items():
        order = np.argsort(-fusion(dense, lexical), axis=1, kind="stable")[:, :DEPTH]
        hits = {
            query: [(ids[place], float(-rank)) for rank, place in enumerate(own)]
            for query, own in zip(topics.queries, order.tolist(), strict=True)
        }
        values = scores(topics.judgements, hits)[MAIN].values()
        table.add_row(name, f"{100 * sum(values) / len(values):.1f}")
    show(table)
