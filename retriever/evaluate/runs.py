"""The loop of every benchmark: embed once, fit each transform, measure, write the figures.

A subject has texts, the text to fit on, and a measure. A run is one subject with one encoder, transform and seed. A run
that is in the results with the same inputs is not measured again, and an encoder whose runs are all known is not
loaded.
"""

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.errors import FitFailed, Misuse
from retriever.evaluate.fitting import FIT_CODE, Fitted, code_digest, fit_transform, seeds_of
from retriever.evaluate.models.encoders import TextEncoder, VectorCache
from retriever.evaluate.results import Results, Row, Run
from retriever.progress import Progress, silent
from retriever.transforms import Transform

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Measured:
    """The figures of a run, and the data of its plot."""

    values: Mapping[str, float]
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Subject:
    """The texts to measure. `measure` takes a fitted transform and the raw vectors of `texts`."""

    dataset: str
    split: str
    texts: Sequence[str]
    fit_texts: Mapping[str, Sequence[str]]
    inputs: str
    """A digest of everything else that the measure depends on."""
    measure: Callable[[Transform, Vectors], Measured]
    queries: frozenset[str] = frozenset()
    """Those texts that are queries. All others are encoded as documents."""


@dataclass
class Experiment:
    bench: str
    encoders: Sequence[TextEncoder]
    transforms: Sequence[str]
    seeds: int = 1
    cache: VectorCache = field(default_factory=VectorCache)
    results: Results = field(default_factory=Results)
    progress: Progress = silent


@dataclass
class Findings:
    """The runs that have figures, and notes about them."""

    experiment: Experiment
    runs: list[Run] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    measured: int = 0
    reused: int = 0

    @property
    def rows(self) -> list[Row]:
        return self.experiment.results.rows(self.runs)

    def provenance(self, run: Run) -> dict[str, Any]:
        return self.experiment.results.provenance(run)

    _fit_notes: dict[tuple[str, ...], dict[str, dict[str, None]]] = field(default_factory=dict)

    def add_note(self, run: Run, text: str) -> None:
        """Add a note about a fit. A note that is equal for several sets and seeds is shown once."""
        notes = self._fit_notes.setdefault((run.encoder, run.pooling, run.transform, text), {})
        notes.setdefault(run.fit, {})[run.dataset] = None

    def take(self, run: Run, *, measured: bool) -> None:
        """Count a run that has figures, and add the notes about its fit."""
        self.measured += measured
        self.reused += not measured
        self.runs.append(run)
        for note in self.provenance(run).get("notes", []):
            self.add_note(run, note)

    def add(self, other: "Findings") -> None:
        """Add the counts and notes of another benchmark of the same command."""
        self.measured += other.measured
        self.reused += other.reused
        self.problems += other.notes

    @property
    def notes(self) -> list[str]:
        """Return the problems of the data, then the notes about the fits."""
        notes = []
        for (encoder, pooling, transform, text), places in self._fit_notes.items():
            where = "; ".join(f"{fit} of {', '.join(datasets)}" for fit, datasets in places.items())
            notes.append(f"{', '.join(filter(None, (encoder, pooling, transform)))} ({where}): {text}")
        return [*self.problems, *notes]


@dataclass(frozen=True)
class _Job:
    run: Run
    subject: Subject
    encoder: TextEncoder

    @property
    def texts(self) -> Sequence[str]:
        """Return the texts to fit on. "none" learns nothing, so for it only the measured texts are embedded."""
        return self.subject.texts if self.run.transform == "none" else self.subject.fit_texts[self.run.fit]

    @cached_property
    def inputs(self) -> dict[str, str]:
        data, code = f"{self.subject.inputs} {digest(self.subject.texts)}", code_digest(*FIT_CODE)
        return {"encoder": self.encoder.key, "data": data, "fit_text": digest(self.texts), "transform_code": code}


def digest(texts: Sequence[str]) -> str:
    """Return the SHA-256 of texts in the given order."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def measure_all(experiment: Experiment, subjects: Sequence[Subject]) -> Findings:
    """Measure every run of the experiment. Notes say what could not be measured."""
    findings = Findings(experiment)
    by_encoder = [(encoder, list(_jobs(experiment, encoder, subjects))) for encoder in experiment.encoders]
    total, done = sum(len(jobs) for _, jobs in by_encoder), 0
    for encoder, jobs in by_encoder:
        open_jobs = {job.run for job in jobs if not experiment.results.known(job.run, job.inputs)}
        worker = _Worker(experiment, encoder, [job for job in jobs if job.run in open_jobs])
        for job in jobs:
            done += 1
            if job.run in open_jobs:
                if problem := worker.measure(job):
                    findings.add_note(job.run, problem)
                    continue
                experiment.progress("fitting and measuring", done, total)
            findings.take(job.run, measured=job.run in open_jobs)
    return findings


def _jobs(experiment: Experiment, encoder: TextEncoder, subjects: Sequence[Subject]) -> Iterator[_Job]:
    """Yield the jobs. The innermost loop is over subjects, so that subjects with the same fit text share one fit."""
    for fit in dict.fromkeys(name for subject in subjects for name in subject.fit_texts):
        for spec in experiment.transforms:
            for seed in seeds_of(spec, experiment.seeds):
                for subject in subjects:
                    if fit in subject.fit_texts:
                        key = (subject.dataset, subject.split, encoder.label, encoder.pooling, spec, fit, seed)
                        yield _Job(Run(experiment.bench, *key), subject, encoder)


class _Worker:
    def __init__(self, experiment: Experiment, encoder: TextEncoder, jobs: Sequence[_Job]) -> None:
        self.experiment, self.encoder = experiment, encoder
        self._texts = list(dict.fromkeys(t for job in jobs for texts in (job.subject.texts, job.texts) for t in texts))
        queries = frozenset[str]().union(*(job.subject.queries for job in jobs))
        self._texts.sort(key=lambda text: text in queries)  # documents first
        self._documents = sum(text not in queries for text in self._texts)
        self._row = {text: row for row, text in enumerate(self._texts)}
        self._last: tuple[tuple[str, str, int | None], Fitted] | None = None

    @cached_property
    def _matrix(self) -> Vectors:
        cache, progress = self.experiment.cache, self.experiment.progress
        parts = {False: self._texts[: self._documents], True: self._texts[self._documents :]}
        rows = [cache.vectors(self.encoder, own, queries=kind, progress=progress) for kind, own in parts.items() if own]
        return np.concatenate(rows)

    def _vectors(self, texts: Sequence[str]) -> Vectors:
        return self._matrix[[self._row[text] for text in texts]]

    def measure(self, job: _Job) -> str | None:
        """Measure a job and write the figures. Return a note if this was not possible."""
        vectors = self._vectors(job.subject.texts)
        began = time.perf_counter()
        try:
            fitted = self._fitted(job)
        except (FitFailed, Misuse) as error:
            return f"{error}; left out"
        found = job.subject.measure(fitted.transform, vectors)
        values = {name: float(value) for name, value in found.values.items() if math.isfinite(value)}
        if not values:
            return "the transformed vectors are all equal or not finite; left out"
        weights = self.encoder.encoder.identity.weights
        provenance = {"inputs": job.inputs, "encoder_weights": weights, **fitted.provenance}
        provenance["seconds"] = round(time.perf_counter() - began, 3)
        if lost := [name for name in found.values if name not in values]:
            provenance["notes"].append(f"no figure for {', '.join(lost)}: its inputs are constant or not finite")
        if found.details:
            provenance["details"] = dict(found.details)
        self.experiment.results.add(job.run, values, provenance)
        return None

    def _fitted(self, job: _Job) -> Fitted:
        key = (job.inputs["fit_text"], job.run.transform, job.run.seed)
        if self._last is None or self._last[0] != key:
            encode = partial(self.experiment.cache.vectors, self.encoder, queries=True)
            vectors, seed = self._vectors(job.texts), job.run.seed or 0
            self._last = key, fit_transform(job.run.transform, job.texts, vectors, encode, seed=seed)
        return self._last[1]
