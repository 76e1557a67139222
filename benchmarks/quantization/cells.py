"""The loop of the quantization benchmark: measure index types in the space of each transform.

The split of a row is the index type. A figure that is already in the results with the same inputs is not measured
again.
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
from retriever.evaluate.fitting import code_digest
from retriever.evaluate.models.encoders import TextEncoder
from retriever.evaluate.results import Run
from retriever.evaluate.runs import Findings
from retriever.evaluate.systems import Model
from retriever.ingest.fitted import SEED
from retriever.settings import made_by
from retriever.transforms import Transform, parse
from retriever.transforms.spec import AUTO

BENCH = "quantization"
FIT = "documents"
BYTES, CODE_BYTES = "bytes_per_vector", "code_bytes"
REFINE = (4, 10, 40)
MAPPED_TOGETHER = 20_000
OWN = "benchmarks.quantization"


@dataclass(frozen=True)
class Space:
    """Unit vectors of documents and queries after a transform."""

    transform: Transform
    documents: codes.Vectors
    queries: codes.Vectors
    chosen: str | None = None
    """The spec that `auto` chose, or that `flow` chose with its strength."""

    @classmethod
    def of(
        cls,
        transform: Transform,
        documents: NDArray[np.floating[Any]],
        queries: NDArray[np.floating[Any]],
        chosen: str | None = None,
    ) -> "Space":
        starts = range(0, len(documents), MAPPED_TOGETHER)
        mapped = [_mapped(transform, documents[start : start + MAPPED_TOGETHER]) for start in starts]
        return cls(transform, np.concatenate(mapped), _mapped(transform, queries), chosen)

    @cached_property
    def nearest(self) -> codes.Positions:
        return codes.exact_nearest(self.documents, self.queries)


def _mapped(transform: Transform, vectors: NDArray[np.floating[Any]]) -> codes.Vectors:
    rows = transform.apply(vectors.astype(np.float32))
    if not np.isfinite(rows).all():
        raise FitFailed("the transformed vectors are not all finite")
    return unit_rows(rows)


def refined(metric: str, factor: int) -> str:
    """Return the name of a metric for `factor` times as many candidates, re-scored with their full vectors."""
    return f"{metric}_refine{factor}"


def variants(metric: str, refine: Sequence[int]) -> dict[str, int]:
    """Return the metrics of one index with their numbers of candidates. The metric of the codes alone is first."""
    return {metric: codes.NEAREST, **{refined(metric, factor): codes.NEAREST * factor for factor in refine}}


def dimension_of(spec: str, dimension: int) -> int:
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


def measure(findings: Findings, subject: Subject, index_types: Sequence[str], refine: Sequence[int]) -> None:
    """Measure an index of each type in the space of every transform. Notes say what could not be measured."""
    factors, faiss = " ".join(map(str, refine)), str(import_faiss().__version__)
    inputs = {**subject.inputs, "refine": factors, "faiss": faiss, "own_code": code_digest(OWN)}
    encoder = subject.encoder
    for spec in findings.experiment.transforms:
        types = codes.types_for(index_types, dimension_of(spec, encoder.dimension), subject.documents)
        place = encoder.label, encoder.pooling, spec, FIT, SEED
        runs = {name: Run(BENCH, subject.dataset, name, *place) for name in types}
        _measure_space(findings, subject, spec, runs, inputs)


def _measure_space(
    findings: Findings, subject: Subject, spec: str, runs: Mapping[str, Run], inputs: Mapping[str, str]
) -> None:
    experiment = findings.experiment
    missing = [index_type for index_type, run in runs.items() if not experiment.results.known(run, inputs)]
    space: Space | None = None
    try:
        space = subject.space(spec) if missing else None
    except (FitFailed, Misuse) as error:
        findings.add_note(runs[missing[0]], f"{error}; left out")
    for number, (index_type, run) in enumerate(runs.items()):
        if index_type in missing:
            if space is None:
                continue
            experiment.progress(f"indexing {run.dataset}, {run.transform}", number, len(runs))
            try:
                experiment.results.add(run, *_figures(index_type, subject, space, inputs))
            except Misuse as error:
                findings.add_note(run, f"{error}; left out")
                continue
        findings.take(run, measured=index_type in missing)


def _figures(
    index_type: str, subject: Subject, space: Space, inputs: Mapping[str, str]
) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the figures of one index, and their provenance."""
    began = time.perf_counter()
    index = codes.build(index_type, space.documents)
    built = time.perf_counter()
    sizes = {BYTES: codes.file_bytes(index) / index.ntotal, CODE_BYTES: float(codes.code_bytes(index))}
    values = {**sizes, **subject.figures(index, space)}
    provenance: dict[str, Any] = {
        "inputs": dict(inputs),
        "made_by": made_by(),
        "transform_fingerprint": space.transform.fingerprint,
        "fitted_on": space.transform.fitted_on,
        "notes": list(space.transform.notes),
        "seconds_to_build": round(built - began, 3),
        "seconds": round(time.perf_counter() - began, 3),
    }
    if space.chosen:
        provenance["chosen"] = space.chosen
    return values, provenance
