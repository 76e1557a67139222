"""Measure encoding, ingestion, and cold and warm search of several systems on the same sentences.

    encoding        the encoders alternate over chunks of the same sentences, in one process
    ingest-vectors  make a store from documents with given vectors: the cost of storing and indexing
    ingest-text     make a store from documents alone, each system with its own encoder; ours also runs a second time
    query-vectors   search by vectors: everything but the encoder; recall against brute force over all vectors
    query-text      search by text; the time of the encoder alone is also measured
    cold            a command from process start to printed hits

Every system runs in its own processes, and the systems alternate. Figures that were measured in alternation are reused
only together. In a row, `dataset` is the number of documents, `split` the task, and `transform` the system.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from benchmarks.speed.encoding import encoder_names
from benchmarks.speed.rivals import OURS, SYSTEMS
from benchmarks.speed.tasks import Tasks
from retriever.evaluate.fitting import code_digest
from retriever.evaluate.results import Run
from retriever.evaluate.runs import Findings, digest
from retriever.settings import made_by

ENCODING, INGEST_VECTORS, INGEST_TEXT = "encoding", "ingest-vectors", "ingest-text"
QUERY_VECTORS, QUERY_TEXT, COLD = "query-vectors", "query-text", "cold"
SEARCHES = (QUERY_VECTORS, QUERY_TEXT, COLD)
PRECISIONS = ("fp32", "int8")
ENCODED = 2048

Measure = Callable[[int, Sequence[str]], Mapping[str, Mapping[str, Any]]]


class Bench:
    """Run the tasks whose figures are not known yet. `tasks.folder` holds the stores while they are needed."""

    def __init__(self, tasks: Tasks, systems: Sequence[str]) -> None:
        self.tasks, self.systems = tasks, systems
        self.experiment, self.sizes = tasks.experiment, tasks.sizes
        self.findings = Findings(self.experiment, problems=tasks.problems)
        self._digest = cache(lambda count: digest(tasks.texts[:count]))

    def run(self) -> Findings:
        self.tasks.queries  # noqa: B018 - raises an error early if there are no queries
        static = self.experiment.encoders[0].encoder.files.static  # a word table has no int8
        encoders = encoder_names(PRECISIONS[:1] if static else PRECISIONS)
        self._measure(ENCODING, min(ENCODED, len(self.tasks.texts)), encoders, self.tasks.encoding)
        for count in self.sizes.documents:
            self._ingest(count)
            ready = [system for system in self.systems if self._measured(INGEST_VECTORS, count, system)]
            self._measure(QUERY_VECTORS, count, ready, self.tasks.query_vectors_alone)
            self._measure(QUERY_TEXT, count, ready, self.tasks.query_text)
            self._measure(COLD, count, ready, self.tasks.cold)
            self.tasks.forget_stores(count)
        return self.findings

    def _ingest(self, count: int) -> None:
        to_search = not all(self._known(task, count, self.systems) for task in SEARCHES)
        for system in self.systems:
            missing = to_search and not self.tasks.completed(count, system).is_file()
            self._measure(INGEST_VECTORS, count, [system], self.tasks.ingest_vectors, anyway=missing)
        if count > self.sizes.embed_at_most:
            unused = f"at {count:,} documents the systems' own encoders were not used"
            self.findings.problems.append(f"{unused}; use --embed-at-most {count} for that")
            return
        for system in self.systems:
            self._measure(INGEST_TEXT, count, [system], self.tasks.ingest_text)

    def _measure(self, task: str, count: int, systems: Sequence[str], measure: Measure, anyway: bool = False) -> None:
        """Measure these systems together, unless all of their figures are known."""
        if systems and (anyway or not self._known(task, count, systems)):
            self.experiment.progress(f"{task}, {count:,} documents", 0, None)
            for system, figures in measure(count, systems).items():
                values = {name: float(value) for name, value in figures.items() if isinstance(value, int | float)}
                details = {name: value for name, value in figures.items() if name not in values}
                provenance = {"inputs": self._inputs(task, count, system), "made_by": made_by(), "details": details}
                self.experiment.results.add(self._run(task, count, system), values, provenance)
                self.findings.take(self._run(task, count, system), measured=True)
            return
        for system in systems:
            self.findings.take(self._run(task, count, system), measured=False)

    def _known(self, task: str, count: int, systems: Sequence[str]) -> bool:
        return all(self._measured(task, count, system) for system in systems)

    def _measured(self, task: str, count: int, system: str) -> bool:
        return self.experiment.results.known(self._run(task, count, system), self._inputs(task, count, system))

    def _run(self, task: str, count: int, system: str) -> Run:
        encoder = self.experiment.encoders[0]
        return Run(self.experiment.bench, str(count), task, encoder.label, encoder.pooling, system, "", None)

    def _inputs(self, task: str, count: int, system: str) -> dict[str, str]:
        asked = str(self.sizes) if task in SEARCHES else ""
        known = {"encoder": self.experiment.encoders[0].key, "texts": self._digest(count)}
        return {**known, "system": version_of(system), "asked": asked}


@cache
def version_of(system: str) -> str:
    """Return the version of a system. For our system it is a digest of the code."""
    if system.partition(" ")[0] == OURS:
        return code_digest("retriever", "indexes")
    package = SYSTEMS[system].package if system in SYSTEMS else "sentence_transformers"
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} "
