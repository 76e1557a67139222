"""nDCG@10 of small FAISS indexes on BEIR folders, by the codes alone and by their candidates re-scored.

The collections are those of `retriever bench retrieval`, in the same cache, and every transform is a `rebuild` of one,
so Flat has the figure of that benchmark. Candidates are passages, and a document counts by its best passage. Unlike
recall within a space, nDCG@10 compares spaces.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.quantization import codes
from benchmarks.quantization.cells import BENCH, FIT, REFINE, Space, dimension_of, inputs_of, measure_types, variants
from indexes.folder.collection import Collection
from retriever.evaluate.data.beir import BeirSet
from retriever.evaluate.data.trec import strictly_decreasing
from retriever.evaluate.fitting import code_digest
from retriever.evaluate.measures import effectiveness
from retriever.evaluate.measures.intervals import mean_figures
from retriever.evaluate.rankings import DEPTH, MAIN
from retriever.evaluate.results import RAW, Run
from retriever.evaluate.retrieval import build_collection, collection_folder
from retriever.evaluate.runs import Findings, Plan
from retriever.evaluate.systems import Model
from retriever.ingest.fitted import SEED
from retriever.retriever import Retriever
from retriever.transforms.families import load_transform


def run(
    plan: Plan,
    sets: Sequence[BeirSet],
    models: Sequence[Model],
    *,
    collections: Path,
    index_types: Sequence[str] = (),
    refine: Sequence[int] = REFINE,
    device: str = "auto",
) -> Findings:
    """Measure every index type in the space of every transform, on every set with every model."""
    findings = Findings(plan)
    findings.problems += [note for found in sets for note in found.topics.notes]
    for found in sets:
        for model in models:
            with contextlib.ExitStack() as stack:
                task = _Task(plan, found, model, collection_folder(collections, found, model), device, stack)
                task.measure(findings, index_types, refine)
    return findings


@dataclass
class _Task:
    """A corpus and its queries with one model; the collection is opened with the first space."""

    plan: Plan
    found: BeirSet
    model: Model
    folder: Path
    device: str
    stack: contextlib.ExitStack
    _opened: "_Passages | None" = None

    def measure(self, findings: Findings, index_types: Sequence[str], refine: Sequence[int]) -> None:
        inputs = {**self.found.files, "encoder": self.model.key, "code": code_digest(), **inputs_of(refine)}
        topics, dimension = self.found.topics, self.model.identity.dimension

        def figures(index: Any, space: Space) -> dict[str, float]:
            return self._figures(index, space, refine)

        for spec in self.plan.transforms:
            types = codes.types_for(index_types, dimension_of(spec, dimension), topics.documents)
            place = self.model.label, self.model.pooling, spec, FIT, SEED
            runs = {index_type: Run(BENCH, topics.dataset, index_type, *place) for index_type in types}
            measure_types(findings, runs, inputs, lambda spec=spec: self._open(spec), figures)  # type: ignore[misc]

    def _open(self, spec: str) -> Space:
        if self._opened is None:
            transform = None if Collection.is_begun(self.folder) else RAW
            built = build_collection(self.plan, self.found, self.model, self.folder, transform, self.device)
            collection = self.stack.enter_context(built)
            self.stack.enter_context(collection.collection.writing())  # nobody else rebuilds it meanwhile
            self._opened = _Passages(collection, list(self.found.topics.queries.values()))
        return self._opened.space(spec)

    def _figures(self, index: Any, space: Space, refine: Sequence[int]) -> dict[str, float]:
        """nDCG@10 × 100 by the codes alone and re-scored, each with its interval over queries."""
        refined_depths = {m: depth for m, depth in variants(MAIN, refine).items() if m != MAIN}
        found = codes.candidates(index, space.queries, [DEPTH, *refined_depths.values()])
        rankings: dict[str, Iterator[codes.Positions]] = {MAIN: iter(found[min(DEPTH, index.ntotal)])}
        for metric, depth in refined_depths.items():
            rankings[metric] = codes.rescored(space.documents, space.queries, found[min(depth, index.ntotal)])
        figures: dict[str, float] = {}
        for metric, ranked in rankings.items():
            figures |= mean_figures(metric, self._ndcg(ranked))
        return figures

    def _ndcg(self, ranked: Iterator[codes.Positions]) -> NDArray[np.float64]:
        assert self._opened is not None
        hits = {}
        for query, positions in zip(self.found.topics.queries, ranked, strict=True):
            own = query if query in self.found.repeated else None
            documents = [id_ for id_ in self._opened.documents_at(positions) if id_ != own][: codes.NEAREST]
            hits[query] = strictly_decreasing([(id_, float(-rank)) for rank, id_ in enumerate(documents)])
        by_query = effectiveness.scores(self.found.topics.judgements, hits)[MAIN]
        return np.array(list(by_query.values()), np.float64)


class _Passages:
    """The raw vectors of a collection, the documents of each vector, and the raw vectors of the queries."""

    def __init__(self, collection: Retriever, queries: Sequence[str]) -> None:
        self.collection = collection
        store = collection.collection.store
        numbers = store.used_vectors().tolist()
        self.vectors = store.vectors(numbers, collection.collection.dimension)
        passages = store.passages_of_vectors(numbers)
        ids = _ids(store.documents(list({own.document for found in passages.values() for own in found})))
        self.ids = [list(dict.fromkeys(ids[own.document] for own in passages.get(n, ()))) for n in numbers]
        self.queries = collection.encoder().encode(queries)

    def space(self, spec: str) -> Space:
        self.collection.rebuild(transform=spec)
        generation = self.collection.collection.generation()
        assert generation is not None
        chosen = (self.collection.info()["choice"] or {}).get("chosen")
        return Space.of(load_transform(generation), self.vectors, self.queries, chosen)

    def documents_at(self, positions: codes.Positions) -> list[str]:
        """The ids of the documents at these positions, each at the place of its best passage."""
        return list(dict.fromkeys(id_ for position in positions if position >= 0 for id_ in self.ids[position]))


def _ids(documents: Mapping[int, Mapping[str, Any]]) -> dict[int, str]:
    return {number: str(fields["id"]) for number, fields in documents.items()}
