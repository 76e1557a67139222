"""Compare what `retriever plan` predicts from a small sample with the cost of the real commands.

    predicted   by the laws, from a rehearsal of the first sentences for a collection of that size
    measured    `retriever index` in its own process, with a flat index; for every other index type
                `retriever rebuild` of the same collection; then single queries in another process

CPU seconds are those of all threads of the command. Idle threads sleep, as in the rehearsal. In a row, `dataset` is the
number of documents, `split` the index type, and `transform` is `predicted` or `measured`.
"""

import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

import retriever.plan
from benchmarks.sentence_vectors import read_sentences, sentence_files
from benchmarks.speed.process import folder_bytes, run_whole, work_folder
from benchmarks.speed.tasks import write_documents
from indexes.faiss.auto import format_bytes
from indexes.folder.collection import Collection
from retriever.corpus import Corpus
from retriever.corpus.short_texts import short_texts
from retriever.encoder.encoder import Encoder
from retriever.encoder.model_files import DEFAULT_ENCODER
from retriever.evaluate.fitting import files_digest
from retriever.evaluate.models.encoders import identity_digest
from retriever.evaluate.report.tables import text_table
from retriever.evaluate.results import Results, Row, Run
from retriever.evaluate.runs import Experiment, Findings, digest
from retriever.plan.laws import BUILDING, FITTING, FLAT, Law, Rates
from retriever.plan.rehearsal import ONE_THREAD, WAITING, rehearse, run_child
from retriever.plan.sample import from_source
from retriever.progress import Progress
from retriever.retriever import Retriever
from retriever.settings import made_by
from retriever.transforms.spec import AUTO as DEFAULT_TRANSFORM

PREDICTED, MEASURED = "predicted", "measured"
COMMAND = [sys.executable, "-m", "retriever"]
QUERIES = 100
SEED = 0
# The source files that a rehearsal depends on.
REHEARSING = ("rehearsal.py", "sample.py")
WITHIN = 0.2
RECALL = "recall"
# For other index types only OF_A_TYPE is compared, because a rebuild changes only the index.
METRICS = {
    "cpu_seconds": "CPU, s",
    "disk_bytes": "on disk",
    "sqlite_bytes": "SQLite",
    "index_bytes": "index",
    "peak_bytes": "peak memory",
    "search_bytes": "memory to search",
    "query_ms": "query, CPU ms",
}
OF_A_TYPE = ("cpu_seconds", "index_bytes", "peak_bytes", "search_bytes", "query_ms")


@dataclass
class Validation:
    """Predict and measure one size after the other."""

    texts: Sequence[str]
    sample: int
    types: Sequence[str]
    encoder: str
    results: Results
    folder: Path
    progress: Progress

    def __post_init__(self) -> None:
        self.findings = Findings(Experiment("plan", [], [], results=self.results, progress=self.progress))
        self._identity = Encoder(self.encoder, device="cpu").identity
        self._encoder_key = identity_digest(self._identity)

    def run(self, sizes: Sequence[int]) -> Findings:
        for count in sizes:
            law = self._predict(count)
            for name in self.types:
                if name != FLAT:
                    self._add(self._run(count, name, PREDICTED), predicted(law, count, name), self._predicted_from)
                self._measure(count, name)
            shutil.rmtree(self.folder / str(count), ignore_errors=True)
            self._source(count).unlink(missing_ok=True)
        return self.findings

    def _predict(self, count: int) -> Law:
        """Predict a flat index. The rehearsal runs only if the results do not have it for these inputs."""
        run = self._run(count, FLAT, PREDICTED)
        known = self.results.provenance(run)
        if known.get("inputs") == self._predicted_from:
            rates = Rates.from_json(known["rates"])
        else:
            options = {"pooling": None, "max_length": None, "precision": None, "transform": DEFAULT_TRANSFORM}
            sample = from_source(Corpus([str(self._source(self.sample))]))
            rates = rehearse(sample, {"encoder": self.encoder, **options}, count, self.progress)
        law = Law(rates)
        self._add(run, predicted(law, count, FLAT), self._predicted_from, rates=asdict(rates))
        return law

    @cached_property
    def _predicted_from(self) -> dict[str, str]:
        room = Path(retriever.plan.__file__).parent
        code = files_digest(room / name for name in REHEARSING)
        return {"encoder": self._encoder_key, "texts": digest(self.texts[: self.sample]), "code": code}

    def _measure(self, count: int, name: str) -> None:
        run = self._run(count, name, MEASURED)
        inputs = {"encoder": self._encoder_key, "texts": digest(self.texts[:count])}
        if self.results.known(run, inputs):
            self.findings.take(run, measured=False)
            return
        folder = self.folder / str(count)
        if name == FLAT:
            shutil.rmtree(folder, ignore_errors=True)  # may be left by a run that was killed
        if name == FLAT or not _published(folder):
            self.progress(f"indexing {count:,} documents", 0, None)
            words = "index", str(self._source(count)), "--encoder", self.encoder, "--index", str(folder)
            cost = run_whole([*COMMAND, *words], WAITING)
        if name != FLAT:
            self.progress(f"building {name} of {count:,} documents", 0, None)
            cost = run_whole([*COMMAND, "rebuild", "--index-type", name, "--index", str(folder)], WAITING)
        self.findings.measured += 1
        self._add(run, {**cost, **self._size_and_query_cost(folder)}, inputs)

    def _size_and_query_cost(self, folder: Path) -> dict[str, float]:
        """Measure the bytes of a collection and the cost of its queries."""
        with Retriever.open(folder) as opened:
            info: Any = opened.info()
        sizes = info["bytes"]
        queries = short_texts(self.texts[: self.sample], QUERIES, SEED)
        request = {"folder": str(folder), "queries": queries, "options": {"encoder": self.encoder}}
        searched = run_child("search", request, ONE_THREAD)
        return {
            "disk_bytes": float(folder_bytes(folder)),
            "sqlite_bytes": float(sizes["documents.sqlite"]),
            "index_bytes": float(next(size for path, size in sizes.items() if path.endswith("vectors.faiss"))),
            "query_ms": searched["query_ms"],
            "search_bytes": float(searched["search_peak_bytes"]),
            "recall": float(info["index"]["measured"].get("recall") or 0.0),
        }

    def _source(self, count: int) -> Path:
        """Write the first sentences. All ids have the same length, so that bytes in SQLite can be compared."""
        path = self.folder / f"{count:09d}.jsonl"
        write_documents(path, self.texts[:count], digits=7)
        return path

    def _run(self, count: int, name: str, which: str) -> Run:
        identity = self._identity
        return Run("plan", str(count), name, Path(identity.name).name, identity.pooling, which, "", None)

    def _add(self, run: Run, values: Mapping[str, float], inputs: Mapping[str, str], **more: Any) -> None:
        self.results.add(run, values, {"inputs": dict(inputs), "made_by": made_by(), **more})
        self.findings.runs.append(run)


def predicted(law: Law, count: int, name: str) -> dict[str, float]:
    """Predict the cost of `retriever index`, or of `retriever rebuild` for index types other than flat."""
    cpu, vectors, trial = law.cpu(count, name), law.vectors(count), law.rates.trials.get(name)
    return {
        "cpu_seconds": sum(cpu.values()) if name == FLAT else cpu[FITTING] + cpu[BUILDING],
        "peak_bytes": law.build_memory(count, name),
        "disk_bytes": law.disk(count, name),
        "sqlite_bytes": law.sqlite_bytes(count),
        "index_bytes": law.index_bytes(vectors, name),
        "query_ms": law.query_ms(vectors, name),
        "search_bytes": law.search_memory(count, name),
        "recall": (trial.recall if trial else 1.0) or 0.0,
    }


def _published(folder: Path) -> bool:
    if not Collection.exists(folder):
        return False
    with Collection.open(folder) as collection:
        return collection.published() is not None


def validate(
    *,
    sentences: Sequence[Path],
    data: Path | None,
    documents: Sequence[int],
    sample: int,
    types: Sequence[str],
    encoder: str | None,
    out: Path | None,
    progress: Progress,
) -> Findings:
    """Compare prediction and measurement at every size. Problems are in the findings."""
    texts = read_sentences(sentence_files(sentences, data), max(documents))
    sizes = sorted({min(count, len(texts)) for count in documents})
    with Results(out) as results, work_folder(out) as folder:
        where, known = min(sample, len(texts)), encoder or DEFAULT_ENCODER
        findings = Validation(texts, where, [FLAT, *types], known, results, folder, progress).run(sizes)
    if len(texts) < max(documents):
        findings.problems.append(f"there are only {len(texts):,} sentences, not {max(documents):,}: all are used")
    return findings


def plan_tables(rows: Sequence[Row]) -> list[Table]:
    """Make a table for the flat index, and one for other index types if there are any."""
    found = figures(rows)
    counts = sorted({count for count, _, _ in found})
    tables = []
    for title, names in _parts(found).items():
        of_types = ["type"] if names != [FLAT] else []
        heads = [*of_types, "", *(f"{count:,} documents" for count in counts)]
        table = text_table(f"{title}: predicted, measured, ratio", heads, len(of_types) + 1)
        for name in names:
            shown = METRICS if name == FLAT else {key: METRICS[key] for key in OF_A_TYPE} | {RECALL: "recall@10"}
            for metric, heading in shown.items():
                cells = [_cell(metric, found.get((count, name, metric))) for count in counts]
                table.add_row(*([name] if of_types else []), heading, *cells)
        tables.append(table)
    return tables


def _cell(metric: str, both: tuple[float, float] | None) -> Text:
    if both is None:
        return Text("–")
    predicted, measured = both
    if metric == RECALL:
        return Text(f"{measured:.3f} (sample {predicted:.3f})")
    ratio = predicted / measured if measured else float("inf")
    both_shown = [format_bytes(value) if metric.endswith("bytes") else f"{value:,.3g}" for value in both]
    return Text(f"{both_shown[0]}, {both_shown[1]}, {ratio:.2f}", style="" if within(ratio) else "yellow")


def within(ratio: float) -> bool:
    """Return whether a prediction is within 20 % of the measurement."""
    return abs(ratio - 1) <= WITHIN


def _parts(found: Iterable[tuple[int, str, str]]) -> dict[str, list[str]]:
    """Return the index types by title: flat for `retriever index`, and all others for `retriever rebuild`."""
    others = [name for name in dict.fromkeys(name for _, name, _ in found) if name != FLAT]
    return {"retriever index, flat": [FLAT], **({"retriever rebuild with": others} if others else {})}


def figures(rows: Sequence[Row]) -> dict[tuple[int, str, str], tuple[float, float]]:
    """Return (predicted, measured) by size, index type and metric, for figures that have both."""
    values: dict[tuple[int, str, str], dict[str, float]] = {}
    for row in rows:
        values.setdefault((int(row.dataset), row.split, row.metric), {})[row.transform] = row.value
    return {key: (both[PREDICTED], both[MEASURED]) for key, both in values.items() if len(both) == 2}
