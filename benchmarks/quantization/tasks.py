"""Measure nDCG@10 of small FAISS indexes on BEIR folders.

Documents are ranked by the codes of the index alone, and after re-scoring the candidates with their full vectors. The
collections are those of `retriever bench retrieval`, rebuilt for each transform, so a Flat index has the same figure as
there. Candidates are passages, and a document counts by its best passage.
"""

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.quantization import codes
from benchmarks.quantization.cells import Indexes, Space, measure, variants
from indexes.folder.collection import Collection
from retriever.evaluate.data.beir import BeirSet
from retriever.evaluate.data.trec import strictly_decreasing
from retriever.evaluate.fitting import code_digest
from retriever.evaluate.measures.intervals import mean_figures
from retriever.evaluate.rankings import DEPTH, MAIN, scores
from retriever.evaluate.results import RAW
from retriever.evaluate.retrieval import build_collection, collection_folder
from retriever.evaluate.runs import Experiment, Findings
from retriever.evaluate.systems import Model
from retriever.retriever import Retriever
from retriever.transforms import load_transform


def run(
    experiment: Experiment, sets: Sequence[BeirSet], models: Sequence[Model], indexes: Indexes, cache: Path, device: str
) -> Findings:
    """Measure every index type in the space of every transform, on every set with every model."""
    findings = Findings(experiment)
    findings.problems += [note for found in sets for note in found.topics.notes]
    for found in sets:
        for model in models:
            with contextlib.ExitStack() as stack:
                folder = collection_folder(cache, found, model)
                measure(findings, _Task(experiment, found, model, folder, device, indexes.refine, stack), indexes)
    return findings


@dataclass
class _Task:
    """A corpus and its queries with one model. The collection is opened for the first space."""

    experiment: Experiment
    found: BeirSet
    encoder: Model
    folder: Path
    device: str
    refine: Sequence[int]
    stack: contextlib.ExitStack

    def __post_init__(self) -> None:
        self.dataset, self.documents = self.found.topics.dataset, self.found.topics.documents
        self.inputs = {**self.found.files, "encoder": self.encoder.key, "code": code_digest()}

    @cached_property
    def _passages(self) -> "_Passages":
        transform = None if Collection.is_begun(self.folder) else RAW
        built = build_collection(self.experiment, self.found, self.encoder, self.folder, transform, self.device)
        collection = self.stack.enter_context(built)
        self.stack.enter_context(collection.collection.writing())  # no other process may rebuild it meanwhile
        return _Passages(collection, list(self.found.topics.queries.values()))

    def space(self, spec: str) -> Space:
        collection = self._passages.collection
        collection.rebuild(transform=spec)
        generation = collection.collection.generation()
        assert generation is not None
        info: Any = collection.info()
        chosen = (info["choice"] or {}).get("chosen")
        return Space.of(load_transform(generation), self._passages.vectors, self._passages.queries, chosen)

    def figures(self, index: Any, space: Space) -> dict[str, float]:
        """Return nDCG@10 × 100 without and with re-scoring, each with its confidence interval over queries."""
        depths = {**variants(MAIN, self.refine), MAIN: DEPTH}
        found = codes.candidates(index, space.queries, depths.values())
        figures: dict[str, float] = {}
        for metric, depth in depths.items():
            own = found[min(depth, index.ntotal)]
            ranked = own if metric == MAIN else codes.rescored(space.documents, space.queries, own)
            figures |= mean_figures(metric, self._ndcg(ranked))
        return figures

    def _ndcg(self, ranked: Iterable[codes.Positions]) -> NDArray[np.float64]:
        hits = {}
        for query, positions in zip(self.found.topics.queries, ranked, strict=True):
            own = query if query in self.found.repeated else None
            documents = [id_ for id_ in self._passages.documents_at(positions) if id_ != own][: codes.NEAREST]
            hits[query] = strictly_decreasing([(id_, float(-rank)) for rank, id_ in enumerate(documents)])
        by_query = scores(self.found.topics.judgements, hits)[MAIN]
        return np.array(list(by_query.values()), np.float64)


class _Passages:
    """The raw vectors of a collection, the documents of each vector, and the raw vectors of the queries."""

    def __init__(self, collection: Retriever, queries: Sequence[str]) -> None:
        self.collection = collection
        store = collection.collection.store
        numbers = store.used_vectors().tolist()
        self.vectors = store.vectors(numbers, collection.collection.dimension)
        passages = store.passages_of_vectors(numbers)
        documents = store.documents(list({own.document for found in passages.values() for own in found}))
        ids = {number: str(fields["id"]) for number, fields in documents.items()}
        self.ids = [list(dict.fromkeys(ids[own.document] for own in passages.get(n, ()))) for n in numbers]
        self.queries = collection.query_vectors(queries)

    def documents_at(self, positions: codes.Positions) -> list[str]:
        """Return the ids of the documents at these positions, each at the place of its best passage."""
        return list(dict.fromkeys(id_ for position in positions if position >= 0 for id_ in self.ids[position]))
