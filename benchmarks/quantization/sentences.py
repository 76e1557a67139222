"""Recall of small FAISS indexes over sentences, in the encoder's raw space and through each transform.

The first sentences are documents; the following ones that are not among them are queries. Recall@10 is the share of a
query's 10 nearest by exact search in the same space that are the first 10 by their codes, or that are among the best
40, 100 or 400 candidates, which the stored vectors then re-score. Recall says what codes lose, not which space is worth
searching: `benchmarks.quantization.tasks` measures that.

A transform is fitted as for a collection of the sentences, never on a query.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.quantization import codes
from benchmarks.quantization.cells import (
    BENCH,
    BYTES,
    FIT,
    REFINE,
    Space,
    dimension_of,
    inputs_of,
    measure_types,
    variants,
)
from benchmarks.sentence_vectors import Halves, read_shards, sentence_vectors
from retriever.errors import Misuse
from retriever.evaluate.fitting import code_digest, fit_as_published
from retriever.evaluate.measures.intervals import mean_figures
from retriever.evaluate.models.encoders import TextEncoder
from retriever.evaluate.results import Row, Run
from retriever.evaluate.runs import Findings, Plan, digest
from retriever.ingest.fitted import SEED
from retriever.settings import made_by

SENTENCES = "sentences"
RECALL = "recall@10"
QUERIES = 500
TARGET = 95.0
LEAST, ANY = "least", "any"


@dataclass(frozen=True)
class Sentences:
    """Documents and queries from files with one sentence per line."""

    paths: Sequence[Path]
    documents: int
    queries: int = QUERIES

    @cached_property
    def _all(self) -> list[str]:
        wanted = self.documents + self.queries
        texts = [text for shard in read_shards(self.paths, wanted) for text in shard.sentences][:wanted]
        if len(texts) < wanted:
            raise Misuse(
                f"there are {len(texts):,} sentences, and --documents {self.documents} with {self.queries:,} held out "
                f"as queries needs {wanted:,}; give more --sentences or fewer --documents."
            )
        return texts

    @property
    def texts(self) -> list[str]:
        return self._all[: self.documents]

    @cached_property
    def query_positions(self) -> list[int]:
        """Positions of the queries: the sentences after the documents that are not documents themselves."""
        known = set(self.texts)
        found = [number for number in range(self.documents, len(self._all)) if self._all[number] not in known]
        if not found:
            raise Misuse("every sentence held out as a query is also one of the documents.")
        return found

    @cached_property
    def digest(self) -> str:
        return digest([str(self.documents), *self._all])

    @property
    def dataset(self) -> str:
        return f"{SENTENCES}-{self.documents}"

    def vectors(self, encoder: TextEncoder, plan: Plan) -> tuple[Halves, Halves]:
        wanted = self.documents + self.queries
        _, found = sentence_vectors(self.paths, encoder, wanted, plan.cache.folder, plan.progress)
        return found[: self.documents], found[self.query_positions]


def run(
    plan: Plan, sentences: Sentences, *, index_types: Sequence[str] = (), refine: Sequence[int] = REFINE
) -> Findings:
    """Measure every index type in the space of every transform; the notes say what could not be measured."""
    findings = Findings(plan)
    if left_out := sentences.queries - len(sentences.query_positions):
        findings.problems.append(
            f"of {sentences.queries:,} sentences held out as queries {left_out:,} are documents too and left out"
        )
    for encoder in plan.encoders:
        _measure(findings, sentences, encoder, index_types, refine)
    least = least_bytes(findings.rows, refine)
    for run in dict.fromkeys(one.run for one in least):
        own = [one for one in least if one.run == run]
        types = {one.metric: one.index_type for one in own}
        values = {row.metric: row.value for row in least_rows(own)}
        plan.results.add(run, values, {"made_by": made_by(), "index_types": types})
    return findings


def _measure(
    findings: Findings, sentences: Sentences, encoder: TextEncoder, index_types: Sequence[str], refine: Sequence[int]
) -> None:
    plan = findings.plan
    vectors: list[tuple[Halves, Halves]] = []  # of the encoder, once a space is open

    def open_space(spec: str) -> Space:
        if not vectors:
            vectors.append(sentences.vectors(encoder, plan))
        documents, queries = vectors[0]
        fitted = fit_as_published(
            spec, sentences.texts, documents, lambda texts: plan.cache.vectors(encoder, texts), progress=plan.progress
        )
        return Space.of(fitted.transform, documents, queries, fitted.chosen)

    def figures(index: Any, space: Space) -> dict[str, float]:
        return recall_figures(index, space, refine)

    inputs = {
        "sentences": sentences.digest,
        "encoder": encoder.key,
        "transform_code": code_digest(),
        **inputs_of(refine),
    }
    for spec in plan.transforms:
        types = codes.types_for(index_types, dimension_of(spec, encoder.dimension), sentences.documents)
        place = encoder.label, encoder.pooling, spec, FIT, SEED
        runs = {index_type: Run(BENCH, sentences.dataset, index_type, *place) for index_type in types}
        measure_types(findings, runs, inputs, lambda spec=spec: open_space(spec), figures)  # type: ignore[misc]


def recall_figures(index: Any, space: Space, refine: Sequence[int]) -> dict[str, float]:
    """Recall@10 × 100 by the codes alone and re-scored, each with its interval over queries."""
    depths = variants(RECALL, refine)
    found = codes.candidates(index, space.queries, depths.values())
    figures: dict[str, float] = {}
    for metric, depth in depths.items():
        shares = codes.shares_found(space.nearest, found[min(depth, index.ntotal)])
        figures |= mean_figures(metric, shares)
    return figures


@dataclass(frozen=True)
class Least:
    """The smallest measured index whose recall reaches TARGET; bytes are None if there is none."""

    run: Run
    kind: str
    """ANY, or one of `codes.KINDS`."""
    metric: str
    bytes: float | None
    index_type: str | None


def least_bytes(rows: Sequence[Row], refine: Sequence[int]) -> list[Least]:
    """For each space, kind of code and refinement, the smallest index that reaches TARGET. Nothing is interpolated."""
    spaces: dict[Run, dict[str, dict[str, float]]] = {}
    for row in rows:
        space = row.run._replace(split=LEAST)
        spaces.setdefault(space, {}).setdefault(row.split, {})[row.metric] = row.value
    found = []
    for space, types in spaces.items():
        for kind in (ANY, *codes.KINDS):
            own = {name: values for name, values in types.items() if kind in (ANY, codes.kind(name))}
            for metric in variants(RECALL, refine) if own else ():
                enough = [(values[BYTES], name) for name, values in own.items() if values.get(metric, 0.0) >= TARGET]
                place = space if kind == ANY else space._replace(split=f"{LEAST} {kind}")
                found.append(Least(place, kind, metric, *(min(enough) if enough else (None, None))))
    return found


def least_rows(found: Sequence[Least]) -> list[Row]:
    """Rows whose split is `least`, or `least PQ` etc. for one kind of code."""
    return [
        Row(*one.run, f"{BYTES}_at_{one.metric}_of_{TARGET:g}", one.bytes) for one in found if one.bytes is not None
    ]
