"""The loop of the quantization benchmark: measure index types in the space of each transform, unless they are known.

The split of a row is the index type.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.quantization import codes
from indexes.faiss.vectors import import_faiss, unit_rows
from retriever.errors import FitFailed, Misuse
from retriever.evaluate.fitting import Fitted, code_digest
from retriever.evaluate.models.encoders import TextEncoder
from retriever.evaluate.results import Run
from retriever.evaluate.runs import Experiment, Findings
from retriever.evaluate.systems import Model
from retriever.ingest.fitted import SEED
from retriever.transforms import Transform, parse
from retriever.transforms.spec import AUTO

BENCH = "quantization"
FIT = "documents"
BYTES, CODE_BYTES = "bytes_per_vector", "code_bytes"
MAPPED_TOGETHER = 20_000
OWN = "benchmarks.quantization"

Raw = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Space:
    """Unit vectors of documents and queries after a transform."""

    fitted: Fitted
    documents: codes.Vectors
    queries: codes.Vectors

    @classmethod
    def of(cls, transform: Transform, documents: Raw, queries: Raw, chosen: str | None = None) -> "Space":
        starts = range(0, len(documents), MAPPED_TOGETHER)
        mapped = [_mapped(transform, documents[start : start + MAPPED_TOGETHER]) for start in starts]
        return cls(Fitted(transform, chosen), np.concatenate(mapped), _mapped(transform, queries))

    @cached_property
    def nearest(self) -> codes.Positions:
        """Return the positions of every query's nearest documents, by an exact search."""
        index = codes.build(codes.FLAT, self.documents)
        return codes.candidates(index, self.queries, [codes.NEAREST])[min(codes.NEAREST, index.ntotal)]


def _mapped(transform: Transform, vectors: Raw) -> codes.Vectors:
    rows = transform.apply(vectors.astype(np.float32))
    if not np.isfinite(rows).all():
        raise FitFailed("the transformed vectors are not all finite")
    return unit_rows(rows)


def variants(metric: str, refine: Sequence[int]) -> dict[str, int]:
    """Return the number of candidates of each metric. The first uses codes alone, the others re-score."""
    return {metric: codes.NEAREST, **{f"{metric}_refine{factor}": codes.NEAREST * factor for factor in refine}}


@dataclass(frozen=True)
class Indexes:
    """The index types to measure (by default a ladder of sizes), and the factors of candidates to re-score."""

    types: Sequence[str]
    refine: Sequence[int]

    def check(self, experiment: Experiment) -> None:
        """Raise Misuse if FAISS lacks one of the types for the dimension of a space."""
        encoders, specs = experiment.encoders, experiment.transforms
        for dimension in {_dimension(spec, encoder.dimension) for encoder in encoders for spec in specs}:
            for index_type in self.types:
                codes.empty_index(index_type, dimension)


def _dimension(spec: str, dimension: int) -> int:
    """Return the number of dimensions after a transform, as far as its spec determines it."""
    return dimension if spec == AUTO else int(parse(spec).options.get("dimension", dimension))


class Subject(Protocol):
    """Documents and queries with one encoder, on which the indexes are measured."""

    dataset: str
    documents: int
    inputs: dict[str, str]
    """Digests of everything that the figures depend on besides the transform and the index."""

    @property
    def encoder(self) -> TextEncoder | Model: ...
    def space(self, spec: str) -> Space: ...
    def figures(self, index: Any, space: Space) -> Mapping[str, float]: ...


def measure(findings: Findings, subject: Subject, indexes: Indexes) -> None:
    """Measure an index of each type in the space of every transform. Notes say what could not be measured."""
    experiment, encoder = findings.experiment, subject.encoder
    factors, faiss = " ".join(map(str, indexes.refine)), str(import_faiss().__version__)
    inputs = {**subject.inputs, "refine": factors, "faiss": faiss, "own_code": code_digest(OWN)}
    for spec in experiment.transforms:
        place = encoder.label, encoder.pooling, spec, FIT, SEED
        ladder = codes.ladder(_dimension(spec, encoder.dimension), subject.documents)
        types = [*indexes.types, codes.FLAT] if indexes.types else ladder
        runs = {name: Run(BENCH, subject.dataset, name, *place) for name in types}
        missing = [name for name, run in runs.items() if not experiment.results.known(run, inputs)]
        space: Space | None = None
        try:
            space = subject.space(spec) if missing else None
        except (FitFailed, Misuse) as error:
            findings.add_note(runs[missing[0]], f"{error}; left out")
        for number, (name, run) in enumerate(runs.items()):
            if name in missing:
                if space is None:
                    continue
                experiment.progress(f"indexing {run.dataset}, {spec}", number, len(runs))
                try:
                    values, provenance = _figures(name, subject, space)
                except Misuse as error:
                    findings.add_note(run, f"{error}; left out")
                    continue
                experiment.results.add(run, values, {"inputs": inputs, **provenance})
            findings.take(run, measured=name in missing)


def _figures(index_type: str, subject: Subject, space: Space) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the figures of one index, and their provenance."""
    began = time.perf_counter()
    index = codes.build(index_type, space.documents)
    built = time.perf_counter()
    sizes = {BYTES: codes.file_bytes(index) / index.ntotal, CODE_BYTES: float(codes.code_bytes(index))}
    values = {**sizes, **subject.figures(index, space)}
    seconds = {"seconds_to_build": round(built - began, 3), "seconds": round(time.perf_counter() - began, 3)}
    return values, {**space.fitted.provenance, **seconds}
