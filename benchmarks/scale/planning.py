"""Compare what `retriever plan` predicts from a small sample with the cost of the real commands.

    predicted   by the laws, from a rehearsal of the first sentences for a collection of that size
    measured    `retriever index` in its own process, with a flat index; for every other index type
                `retriever rebuild` of the same collection; then single queries in another process

CPU seconds are those of all threads of the command from its start to its end. Idle threads sleep, as in the rehearsal.
In a row, `dataset` is the number of documents, `split` is the index type, and `transform` is `predicted` or `measured`.
Measurements in the results are not repeated. Predictions are computed again each time, from the stored rehearsal.
"""

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import retriever.plan
from benchmarks.sentence_vectors import read_sentences, sentence_files
from benchmarks.speed.process import folder_bytes, run_whole, work_folder
from benchmarks.speed.tasks import write_documents
from indexes.folder.collection import Collection
from retriever.corpus import Corpus
from retriever.corpus.short_texts import short_texts
from retriever.encoder.encoder import Encoder
from retriever.encoder.model_files import DEFAULT_ENCODER
from retriever.evaluate.fitting import files_digest
from retriever.evaluate.models.encoders import identity_digest
from retriever.evaluate.results import Results, Run
from retriever.evaluate.runs import Experiment, Findings, digest
from retriever.plan.laws import BUILDING, FITTING, FLAT, Law, Rates
from retriever.plan.rehearsal import ONE_THREAD, WAITING, rehearse, run_child
from retriever.plan.sample import from_source
from retriever.progress import Progress
from retriever.retriever import Retriever
from retriever.settings import made_by
from retriever.transforms.spec import AUTO as DEFAULT_TRANSFORM

PREDICTED, MEASURED = "predicted", "measured"
QUERIES = 100
SEED = 0
# The source files that a rehearsal depends on.
REHEARSING = ("rehearsal.py", "sample.py")


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
    findings: Findings = field(init=False)

    def __post_init__(self) -> None:
        self.findings = Findings(Experiment("plan", [], [], results=self.results, progress=self.progress))
        self._identity = Encoder(self.encoder, device="cpu").identity

    def run(self, sizes: Sequence[int]) -> Findings:
        for count in sizes:
            law = Law(self._rates(count))
            for name in self.types:
                self._add(self._run(count, name, PREDICTED), predicted(law, count, name), self._predicted_from)
                self._measured(count, name)
            shutil.rmtree(self._folder(count), ignore_errors=True)
            self._source(count).unlink(missing_ok=True)
        return self.findings

    # ---- predictions ------------------------------------------------------------------------------

    def _rates(self, count: int) -> Rates:
        """Return the rehearsal for a collection of this size.

        It is read from the results if they contain it with the same inputs. Otherwise it is run.
        """
        run = self._run(count, FLAT, PREDICTED)
        known = self.results.provenance(run)
        if known.get("inputs") == self._predicted_from:
            return Rates.from_json(known["rates"])
        source = self._source(self.sample)
        options = {"pooling": None, "max_length": None, "precision": None, "transform": DEFAULT_TRANSFORM}
        sample = from_source(Corpus([str(source)]))
        rates = rehearse(sample, {"encoder": self.encoder, **options}, count, self.progress)
        provenance = {"inputs": self._predicted_from, "made_by": made_by(), "rates": asdict(rates)}
        self.results.add(run, predicted(Law(rates), count, FLAT), provenance)
        return rates

    @cached_property
    def _predicted_from(self) -> dict[str, str]:
        room = Path(retriever.plan.__file__).parent
        return {
            "encoder": self._encoder_key,
            "texts": digest(self.texts[: self.sample]),
            "code": files_digest(room / name for name in REHEARSING),
        }

    # ---- measurements -------------------------------------------------------------------------------

    def _measured(self, count: int, name: str) -> None:
        run = self._run(count, name, MEASURED)
        inputs = {"encoder": self._encoder_key, "texts": digest(self.texts[:count])}
        if self.results.known(run, inputs):
            self.findings.take(run, measured=False)
            return
        folder = self._folder(count)
        if name == FLAT:
            shutil.rmtree(folder, ignore_errors=True)  # may be left by a run that was killed
        if name == FLAT or not _published(folder):
            self.progress(f"indexing {count:,} documents", 0, None)
            cost = self._cost("index", str(self._source(count)), "--encoder", self.encoder, "--index", str(folder))
        if name != FLAT:
            self.progress(f"building {name} of {count:,} documents", 0, None)
            cost = self._cost("rebuild", "--index-type", name, "--index", str(folder))
        self.findings.measured += 1
        self._add(run, {**cost, **self._looked_at(folder)}, inputs)

    @staticmethod
    def _cost(*words: str) -> dict[str, float]:
        """Run a command and return its cost. Its idle threads sleep, as in a rehearsal."""
        return run_whole([sys.executable, "-m", "retriever", *words], WAITING)

    def _looked_at(self, folder: Path) -> dict[str, float]:
        """Measure the bytes of a collection and the cost of its queries."""
        with Retriever.open(folder) as opened:
            info = opened.info()
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

    # ---- files and rows ----------------------------------------------------------------------------------

    def _folder(self, count: int) -> Path:
        return self.folder / f"{count}"

    def _source(self, count: int) -> Path:
        """Write the first sentences as JSON lines.

        All ids have the same length, so that the bytes in SQLite can be compared.
        """
        path = self.folder / f"{count:09d}.jsonl"
        write_documents(path, self.texts[:count], digits=7)
        return path

    @cached_property
    def _encoder_key(self) -> str:
        return identity_digest(self._identity)

    def _run(self, count: int, name: str, which: str) -> Run:
        identity = self._identity
        return Run("plan", str(count), name, Path(identity.name).name, identity.pooling, which, "", None)

    def _add(self, run: Run, values: Mapping[str, float], inputs: Mapping[str, str]) -> None:
        known = self.results.provenance(run)
        kept = {"rates": known["rates"]} if "rates" in known and known.get("inputs") == dict(inputs) else {}
        self.results.add(run, values, {"inputs": dict(inputs), "made_by": made_by(), **kept})
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
        validation = Validation(
            texts, min(sample, len(texts)), [FLAT, *types], encoder or DEFAULT_ENCODER, results, folder, progress
        )
        findings = validation.run(sizes)
    if len(texts) < max(documents):
        findings.problems.append(f"there are only {len(texts):,} sentences, not {max(documents):,}: all are used")
    return findings


def figures(rows: Sequence[Any]) -> dict[tuple[int, str, str], tuple[float, float]]:
    """Return (predicted, measured) by size, index type and metric, for figures that have both."""
    values: dict[tuple[int, str, str], dict[str, float]] = {}
    for row in rows:
        values.setdefault((int(row.dataset), row.split, row.metric), {})[row.transform] = row.value
    return {
        key: (both[PREDICTED], both[MEASURED]) for key, both in values.items() if {PREDICTED, MEASURED} <= set(both)
    }
