"""Measure the recall of small FAISS indexes over sentences, with raw vectors and with each transform.

The first sentences are documents, and the sentences after them are queries. The true neighbours of a query are the 10
documents that an exact search in the same space finds. Recall@10 is the share of them among the index's first 10
results, or with re-scoring among its first 40, 100 or 400 candidates. Recall shows how much the compression loses, not
which space is best for searching: see `tasks`. A transform is fitted as for a collection, never on a query.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from benchmarks.quantization import codes
from benchmarks.quantization.cells import BYTES, Indexes, Space, measure, variants
from benchmarks.sentence_vectors import Halves, read_sentences, sentence_vectors
from retriever.errors import Misuse
from retriever.evaluate.fitting import code_digest, fit_as_published
from retriever.evaluate.measures.intervals import mean_figures
from retriever.evaluate.models.encoders import TextEncoder
from retriever.evaluate.results import Row, Run
from retriever.evaluate.runs import Experiment, Findings, digest
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
        texts = read_sentences(self.paths, wanted)
        if len(texts) < wanted:
            needed = f"{wanted:,} are needed: {self.documents:,} documents (--documents) and {self.queries:,} queries"
            advice = "Give more --sentences or fewer --documents."
            raise Misuse(f"there are only {len(texts):,} sentences, but {needed}. {advice}")
        return texts

    @property
    def texts(self) -> list[str]:
        return self._all[: self.documents]

    @cached_property
    def query_positions(self) -> list[int]:
        """Return the positions of the queries: sentences after the documents that are not also documents."""
        known = set(self.texts)
        found = [number for number in range(self.documents, len(self._all)) if self._all[number] not in known]
        if not found:
            raise Misuse("every sentence held out as a query is also one of the documents.")
        return found

    @cached_property
    def digest(self) -> str:
        return digest([str(self.documents), *self._all])


def run(experiment: Experiment, sentences: Sentences, indexes: Indexes) -> Findings:
    """Measure every index type in the space of every transform. Notes say what could not be measured."""
    findings = Findings(experiment)
    if left_out := sentences.queries - len(sentences.query_positions):
        held_out = f"{left_out:,} of {sentences.queries:,} sentences held out as queries"
        findings.problems.append(f"{held_out} are also documents and are left out")
    for encoder in experiment.encoders:
        measure(findings, _Encoded(experiment, sentences, encoder, indexes.refine), indexes)
    least = least_bytes(findings.rows, indexes.refine)
    for run in dict.fromkeys(one.run for one in least):
        own = [one for one in least if one.run == run]
        provenance = {"made_by": made_by(), "index_types": {one.metric: one.index_type for one in own}}
        experiment.results.add(run, {row.metric: row.value for row in least_rows(own)}, provenance)
    return findings


@dataclass
class _Encoded:
    """The sentences encoded with one encoder."""

    experiment: Experiment
    sentences: Sentences
    encoder: TextEncoder
    refine: Sequence[int]

    def __post_init__(self) -> None:
        self.dataset, self.documents = f"{SENTENCES}-{self.sentences.documents}", self.sentences.documents
        code = {"encoder": self.encoder.key, "transform_code": code_digest()}
        self.inputs = {"sentences": self.sentences.digest, **code}

    @cached_property
    def _vectors(self) -> tuple[Halves, Halves]:
        """Return the vectors of the documents and those of the queries."""
        own, cache, progress = self.sentences, self.experiment.cache.folder, self.experiment.progress
        _, found = sentence_vectors(own.paths, self.encoder, own.documents + own.queries, cache, progress)
        return found[: own.documents], found[own.query_positions]

    def space(self, spec: str) -> Space:
        documents, queries = self._vectors
        encode = partial(self.experiment.cache.vectors, self.encoder)
        fitted = fit_as_published(spec, self.sentences.texts, documents, encode, progress=self.experiment.progress)
        return Space.of(fitted.transform, documents, queries, fitted.chosen)

    def figures(self, index: Any, space: Space) -> dict[str, float]:
        return recall_figures(index, space, self.refine)


def recall_figures(index: Any, space: Space, refine: Sequence[int]) -> dict[str, float]:
    """Return recall@10 × 100 without and with re-scoring, each with its confidence interval over queries."""
    depths = variants(RECALL, refine)
    found = codes.candidates(index, space.queries, depths.values())
    figures: dict[str, float] = {}
    for metric, depth in depths.items():
        shares = codes.shares_found(space.nearest, found[min(depth, index.ntotal)])
        figures |= mean_figures(metric, shares)
    return figures


@dataclass(frozen=True)
class Least:
    """The smallest measured index whose recall reaches TARGET. `bytes` is None if there is no such index."""

    run: Run
    kind: str
    """The kind of code: ANY, or one of `codes.KINDS`."""
    metric: str
    bytes: float | None
    index_type: str | None


def least_bytes(rows: Sequence[Row], refine: Sequence[int]) -> list[Least]:
    """Find the smallest measured index that reaches TARGET, for each space, kind of code and refinement."""
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
    """Return the least bytes as rows. Their split is `least`, or e.g. `least PQ` for one kind of code."""
    return [Row(*one.run, f"{BYTES}_at_{one.metric}_of_{TARGET:g}", one.bytes) for one in found if one.bytes]
