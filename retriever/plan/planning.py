"""From a sample to a plan: have it rehearsed, then carry the rates to the documents planned, shard by shard."""

import json
import math
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from indexes.faiss.types import IndexRequest
from indexes.folder.collection import Collection
from retriever.card.wording import size
from retriever.errors import Misuse
from retriever.plan.drivers import Driver, drivers
from retriever.plan.laws import Law
from retriever.plan.rates import Rates
from retriever.plan.rehearsal import Request
from retriever.plan.sample import Sample
from retriever.plan.usage import ONE_THREAD, ask
from retriever.progress import Progress, silent
from retriever.settings import IndexSettings

HOUR = 3600
MOST_DOCUMENTS = 10**15
FEWEST_DOCUMENTS = 100
SUFFIXES = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "G": 10**9, "T": 10**12}
NOT_MEASURED = "not measured here: this machine has no GPU that the encoder could use"


def parse_documents(text: str) -> int:
    """A number of documents as people write it: 1e9, 1_000_000, 250k, 2.5M."""
    match = re.fullmatch(r"\s*([0-9][0-9_,]*(?:\.[0-9]+)?(?:[eE]\+?[0-9]{1,3})?)\s*([A-Za-z]?)\s*", text)
    count = float(re.sub("[_,]", "", match[1])) * SUFFIXES.get(match[2].upper(), math.nan) if match else math.nan
    if math.isnan(count):
        raise Misuse(f"--documents {text!r} is no number of documents; write it as 1e9, 1_000_000 or 250k.")
    if not 1 <= count <= MOST_DOCUMENTS or count != int(count):
        raise Misuse(f"--documents must be a whole number from 1 to {MOST_DOCUMENTS:.0e}, not {text}.")
    return int(count)


@dataclass(frozen=True)
class Wanted:
    """How documents are to be embedded and indexed, as `retriever index` would be asked."""

    encoder: str
    pooling: str | None = None
    max_length: int | None = None
    precision: str | None = None
    transform: str = "auto"
    recall: float = 0.95
    collection: Path | None = None
    """One that exists, whose vectors judge the index types."""

    def check(self, dimension: int) -> None:
        """Refuse what could not be indexed, before anything is measured."""
        IndexSettings(self.transform, IndexRequest("auto", self.recall)).check(dimension, "cpu", Collection)


def rehearse(sample: Sample, wanted: Wanted, documents: int, progress: Progress = silent) -> Rates:
    """What the sample's documents cost on this machine; up to half a minute, or longer with a large encoder."""
    with TemporaryDirectory(prefix="retriever-plan-") as name:
        folder = Path(name)
        lines = (json.dumps(asdict(document)) + "\n" for document in sample.documents)
        with (folder / "sample.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(lines)
        request = Request(
            str(folder / "sample.jsonl"),
            sample.what,
            sample.read_cpu_seconds,
            str(folder / "collection"),
            documents,
            wanted.encoder,
            wanted.pooling,
            wanted.max_length,
            wanted.precision,
            wanted.transform,
            wanted.recall,
            None if wanted.collection is None else str(wanted.collection),
        )
        found = ask("retriever.plan.rehearsal", asdict(request), progress)
        asking = {"folder": request.folder, "queries": found["queries"], "encoder": wanted.encoder}
        scan = {"dimension": found["rates"]["fitted"]["dimension"], "planned": found["planned_vectors"]}
        asked = ask("retriever.plan.asking", {**asking, "scan": scan}, extra=ONE_THREAD)
    return Rates.from_json({**found["rates"], **asked})


@dataclass(frozen=True)
class Shards:
    """Collections of their own, as few as fit machines of so much memory; a query is asked of all of them."""

    count: int
    documents_each: int
    build_memory_each: float
    search_memory_each: float
    query_cpu_ms_all: float


@dataclass(frozen=True)
class TypePlan:
    """An index type at the size planned."""

    type: str
    factory: str
    """Of one shard."""
    reaches: bool
    recall: float | None
    recall_low: float | None
    recall_high: float | None
    recall_measured_on: int
    settings: dict[str, int]
    index_bytes: float
    """Of all shards."""
    disk_bytes: float
    """SQLite, the index and all else, of all shards."""
    build_core_hours: float
    shards: Shards


@dataclass(frozen=True)
class Plan:
    """What a corpus needs."""

    documents: int
    passages: int
    vectors: int
    tokens: int
    recall: float
    memory: int
    """Of one machine."""
    cores: int
    precision: str
    core_hours: float
    hours: float
    """On one machine with so many cores, all of them busy."""
    core_hours_by_part: dict[str, float]
    documents_a_core_hour: dict[str, float]
    """By precision, the encoder's part alone."""
    gpu: str
    sqlite_bytes: dict[str, float]
    encoder_ms: float
    types: list[TypePlan]
    drivers: list[Driver]
    notes: list[str]
    rates: Rates

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def plan(rates: Rates, documents: int, *, recall: float, memory: int, cores: int | None = None) -> Plan:
    """The plan for so many documents, by the laws."""
    if cores is not None and cores < 1:
        raise Misuse(f"--cores must be at least 1, not {cores}.")
    law, cores = Law(rates), cores or rates.cores
    by_part = {part: seconds / HOUR for part, seconds in law.cpu(documents).items()}
    core_hours = sum(by_part.values())
    encoded = {
        name: HOUR * documents / (law.vectors(documents) * one.cpu_a_text)
        for name, one in rates.encoded.items()
        if name != "cuda"
    }
    return Plan(
        documents,
        round(law.passages(documents)),
        round(law.vectors(documents)),
        round(law.tokens(documents)),
        recall,
        memory,
        cores,
        rates.precision,
        core_hours,
        core_hours / cores,
        by_part,
        encoded,
        _gpu(law, documents),
        law.sqlite(documents),
        rates.searched.encoder_ms,
        [_type_plan(law, name, documents, memory) for name in rates.trials],
        drivers(law, documents),
        _notes(law, documents),
        rates,
    )


def _gpu(law: Law, documents: int) -> str:
    if "cuda" not in law.rates.encoded:
        return NOT_MEASURED
    one = law.rates.encoded["cuda"]
    hours = law.vectors(documents) * one.wall_seconds / one.texts / HOUR
    return f"{hours:,.1f} hours to embed on this machine's GPU, in fp32"


def _type_plan(law: Law, name: str, documents: int, memory: int) -> TypePlan:
    each = _fitting(law, name, documents, memory)
    count = math.ceil(documents / each)
    each = math.ceil(documents / count)
    vectors = law.vectors(each)
    trial = law.rates.trials[name]
    shards = Shards(
        count,
        each,
        law.build_memory(each, name),
        law.search_memory(each, name),
        count * law.query_ms(vectors, name),
    )
    return TypePlan(
        name,
        law.factory(name, vectors),
        trial.reaches,
        trial.recall,
        trial.low,
        trial.high,
        trial.judged_on,
        dict(trial.settings),
        count * law.index_bytes(vectors, name),
        count * law.disk(each, name),
        count * law.build_cpu(vectors, name) / HOUR,
        shards,
    )


def _fitting(law: Law, name: str, documents: int, memory: int) -> int:
    """The most documents whose index one machine can build and search."""

    def needed(count: int) -> float:
        return max(law.build_memory(count, name), law.search_memory(count, name))

    if needed(1) > memory:
        raise Misuse(
            f"--memory {size(memory)} is too little for a single vector: the encoder and the fit alone take "
            f"{size(needed(1))}. Give at least that, and the more the fewer shards."
        )
    low, high = 1, documents
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if needed(middle) <= memory else (low, middle - 1)
    return low


def _notes(law: Law, documents: int) -> list[str]:
    """What is sure and what is not."""
    rates = law.rates
    judged = max((trial.judged_on for trial in rates.trials.values()), default=0)
    vectors = law.vectors(documents)
    told = [
        f"the corpus is taken to be like {rates.sample.what}: {rates.sample.passages / rates.sample.documents:.2f} "
        f"passages and {rates.sample.tokens / rates.sample.documents:,.0f} tokens a document",
        f"CPU, bytes and memory come from {rates.stored.documents:,} documents rehearsed on this machine, carried "
        f"{max(1.0, documents / rates.stored.documents):,.0f} times as far by the laws of retriever/plan/laws.py",
        f"the exact scan was timed up to {rates.scans[-1][0]:,} vectors, and grows in proportion beyond",
        "an HNSW graph takes longer to build than told, once it outgrows the processor's caches",
        "hours are of a machine whose cores are all busy with nothing else; another processor has other rates",
    ]
    if rates.sample.documents < FEWEST_DOCUMENTS:
        told.insert(
            0, f"the sample has fewer than {FEWEST_DOCUMENTS} documents: give more, the plan is no better than it"
        )
    if not judged:
        told.append("recall was not measured: the sample has too few passages to tune an index by")
    elif vectors > judged:
        told.append(
            f"recall at {vectors:,.0f} vectors is not measured: it was on {judged:,} vectors of the sample, with the "
            "settings these needed; of more vectors the same settings mostly find less. `retriever info` tells the "
            "recall of an index that is built"
        )
    return told
