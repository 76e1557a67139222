"""Does a plan hold? `retriever plan` from a small sample, then the real commands at each size, side by side.

    predicted   by the laws, from a rehearsal of the first sentences for a collection of that size
    measured    `retriever index` in a process of its own, exact; for every other index type `retriever rebuild` of
                the same collection; then queries one at a time, in a process of their own

CPU seconds are of all threads of the command, from its start to its end, and of work: idle threads sleep, in the
rehearsal as well. Memory is what the system says it had at most.
A row's dataset is the number of documents, its split the index type, its transform `predicted` or `measured`. What was
measured is not measured again; what the laws make of a rehearsal is computed anew each time.
"""

import hashlib
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import retriever.plan
from benchmarks.sentence_vectors import read_sentences, sentence_files
from benchmarks.speed.process import folder_bytes, run_whole
from benchmarks.work_folder import work_folder
from indexes.folder.collection import Collection
from retriever.corpus import Corpus
from retriever.corpus.short_texts import short_texts
from retriever.encoder.encoder import Encoder
from retriever.encoder.model_files import DEFAULT_ENCODER
from retriever.evaluate.fitting import files_digest
from retriever.evaluate.results import Results, Run
from retriever.evaluate.runs import Findings, Plan, digest
from retriever.plan.inputs import gathered
from retriever.plan.laws import FITTING, FLAT, START, Law
from retriever.plan.planning import rehearse
from retriever.plan.rates import Rates
from retriever.plan.usage import ONE_THREAD, WAITING, ask
from retriever.progress import Progress
from retriever.retriever import Retriever
from retriever.settings import made_by

PREDICTED, MEASURED = "predicted", "measured"
QUERIES = 100
SEED = 0
# What decides a rehearsal; the laws do not.
REHEARSING = ("asking.py", "given.py", "index_trials.py", "making.py", "rehearsal.py", "sample.py", "usage.py")


@dataclass
class Validation:
    """Sizes, one after the other, smallest first."""

    texts: Sequence[str]
    sample: int
    types: Sequence[str]
    encoder: str
    results: Results
    folder: Path
    progress: Progress
    findings: Findings = field(init=False)

    def __post_init__(self) -> None:
        self.findings = Findings(Plan("plan", [], [], results=self.results, progress=self.progress))
        self._identity = Encoder(self.encoder, device="cpu").identity

    def run(self, sizes: Sequence[int]) -> Findings:
        for count in sizes:
            law = Law(self._rates(count))
            for name in self.types:
                self._add(self._run(count, name, PREDICTED), predicted(law, count, name), self._predicted_from(count))
                self._measured(count, name)
            shutil.rmtree(self._folder(count), ignore_errors=True)
            self._source(count).unlink(missing_ok=True)
        return self.findings

    # ---- what was predicted ------------------------------------------------------------------------------

    def _rates(self, count: int) -> Rates:
        """Rehearsed for a collection of this size, now or before."""
        run = self._run(count, FLAT, PREDICTED)
        known = self.results.provenance(run)
        if known.get("inputs") == self._predicted_from(count):
            return Rates.from_json(known["rates"])
        source = self._source(self.sample)
        sample, wanted = gathered(Corpus([str(source)]), None, encoder=self.encoder)
        rates = rehearse(sample, wanted, count, self.progress)
        provenance = {"inputs": self._predicted_from(count), "made_by": made_by(), "rates": rates.to_json()}
        self.results.add(run, predicted(Law(rates), count, FLAT), provenance)
        return rates

    def _predicted_from(self, count: int) -> dict[str, str]:
        room = Path(retriever.plan.__file__).parent
        return {
            "encoder": self._encoder_key(),
            "texts": digest(self.texts[: self.sample]),
            "code": files_digest(room / name for name in REHEARSING),
        }

    # ---- what was measured -------------------------------------------------------------------------------

    def _measured(self, count: int, name: str) -> None:
        run = self._run(count, name, MEASURED)
        inputs = {"encoder": self._encoder_key(), "texts": digest(self.texts[:count])}
        if self.results.known(run, inputs):
            self.findings.runs.append(run)
            self.findings.reused += 1
            return
        folder = self._folder(count)
        if name == FLAT:
            shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
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
        """Of the command, its threads waiting as those of a rehearsal do."""
        return run_whole([sys.executable, "-m", "retriever", *words], WAITING)

    def _looked_at(self, folder: Path) -> dict[str, float]:
        """Bytes of a collection, and what queries cost."""
        with Retriever.open(folder) as opened:
            info = opened.info()
        sizes = info["bytes"]
        queries = short_texts(self.texts[: self.sample], QUERIES, SEED)
        asking = {"folder": str(folder), "queries": queries, "encoder": self.encoder}
        asked = ask("retriever.plan.asking", asking, extra=ONE_THREAD)["searched"]
        return {
            "disk_bytes": float(folder_bytes(folder)),
            "sqlite_bytes": float(sizes["documents.sqlite"]),
            "index_bytes": float(next(size for path, size in sizes.items() if path.endswith("vectors.faiss"))),
            "query_ms": asked["cpu_ms"],
            "search_bytes": float(asked["peak_bytes"]),
            "recall": float(info["index"]["measured"].get("recall") or 0.0),
        }

    # ---- files and rows ----------------------------------------------------------------------------------

    def _folder(self, count: int) -> Path:
        return self.folder / f"{count}"

    def _source(self, count: int) -> Path:
        """The first sentences as `retriever index` reads them; their names are of one length, as SQLite keeps them."""
        path = self.folder / f"{count:09d}.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for number, text in enumerate(self.texts[:count]):
                file.write(json.dumps({"id": f"{number:07d}", "text": text}, ensure_ascii=False) + "\n")
        return path

    def _encoder_key(self) -> str:
        identity = {name: value for name, value in self._identity.to_json().items() if name != "name"}
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()

    def _run(self, count: int, name: str, which: str) -> Run:
        identity = self._identity
        return Run("plan", str(count), name, Path(identity.name).name, identity.pooling, which, "", None)

    def _add(self, run: Run, values: Mapping[str, float], inputs: Mapping[str, str]) -> None:
        known = self.results.provenance(run)
        kept = {"rates": known["rates"]} if "rates" in known and known.get("inputs") == dict(inputs) else {}
        self.results.add(run, values, {"inputs": dict(inputs), "made_by": made_by(), **kept})
        self.findings.runs.append(run)


def predicted(law: Law, count: int, name: str) -> dict[str, float]:
    """What the laws say of `retriever index`, or of a rebuild as another type."""
    cpu = law.cpu(count, name)
    if name != FLAT:  # nothing is read, embedded or stored again, nor is a precision chosen
        rates = law.rates
        cpu = {START: rates.start_cpu_seconds, FITTING: cpu[FITTING], "": law.build_cpu(law.vectors(count), name)}
    vectors = law.vectors(count)
    trial = law.rates.trials[name]
    return {
        "cpu_seconds": sum(cpu.values()),
        "peak_bytes": law.build_memory(count, name),
        "disk_bytes": law.disk(count, name),
        "sqlite_bytes": sum(law.sqlite(count).values()),
        "index_bytes": law.index_bytes(vectors, name),
        "query_ms": law.query_ms(vectors, name),
        "search_bytes": law.search_memory(count, name),
        "recall": trial.recall or 0.0,
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
    """Every size asked for; what is left out is in the notes."""
    texts = read_sentences(sentence_files(sentences, data), max(documents))
    sizes = sorted({min(count, len(texts)) for count in documents})
    with Results(out) as results, work_folder(out) as folder:
        validation = Validation(
            texts, min(sample, len(texts)), [FLAT, *types], encoder or DEFAULT_ENCODER, results, folder, progress
        )
        findings = validation.run(sizes)
    if len(texts) < max(documents):
        findings.problems.append(f"there are only {len(texts):,} sentences, not {max(documents):,}: all were taken")
    return findings


def figures(rows: Sequence[Any]) -> dict[tuple[int, str, str], tuple[float, float]]:
    """By size, index type and metric: predicted and measured, where there are both."""
    values: dict[tuple[int, str, str], dict[str, float]] = {}
    for row in rows:
        values.setdefault((int(row.dataset), row.split, row.metric), {})[row.transform] = row.value
    return {
        key: (both[PREDICTED], both[MEASURED]) for key, both in values.items() if {PREDICTED, MEASURED} <= set(both)
    }
