"""Rehearses a sample: indexes and searches it through `Retriever` in separate processes, and measures the costs.

The first process builds a collection, adds documents until it is about four times as large, and builds every index
type. The second process searches the collection on a single core, as `retriever serve` does.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import retriever
from indexes.faiss.recall import WANTED
from indexes.faiss.types import NAMES, factory_string, list_count
from indexes.faiss.vectors import exact_index, unit_rows
from indexes.generation import INDEX_FILES
from retriever.corpus import Document
from retriever.corpus.short_texts import short_texts
from retriever.encoder.encoder import Encoder
from retriever.encoder.model_files import LEARNED, ModelFiles
from retriever.encoder.runtimes.onnx_runtime import cores
from retriever.errors import Misuse, RetrieverError
from retriever.ingest.encoder_choice import choose_precision
from retriever.memory import peak_bytes
from retriever.plan.laws import BUILDING, EMBEDDING, FITTING, FLAT, Rates
from retriever.plan.sample import SEED, Sample, made_up
from retriever.progress import Progress, silent
from retriever.retriever import Retriever
from retriever.transforms.spec import AUTO

OTHER_TYPES = tuple(name for name in NAMES if name not in (AUTO, FLAT))
FEWEST, MOST, MOST_CHARACTERS = 400, 4000, 2_000_000
# The larger collection has LARGER times the documents of the smaller one. If embedding them would take more than
# EMBEDDING_SECONDS of CPU, it has fewer documents, but at least twice as many as the smaller one.
LARGER, EMBEDDING_SECONDS = 4, 40.0
STAGES = {"embedding": EMBEDDING, "embedding short texts": FITTING}
STAGES |= {"training the index": BUILDING, "building the index": BUILDING}
# Other processes can only make a measured time longer, so low values of many measurements are used.
QUERIES, WARM_UP, TIMED, QUANTILE, TIMES = 100, 5, 200, 0.1, 40
SCANNED, LARGEST_SCAN_BYTES, COMPARED = (2000, 10_000, 40_000), 256_000_000, 2048
# This much memory is written between two scans, to empty the CPU caches as the encoder does between two queries.
CACHES_BYTES = 16_000_000
# Let waiting threads of OpenMP and OpenBLAS sleep. By default they wait in a loop, which uses CPU time.
WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "OPENBLAS_THREAD_TIMEOUT": "4"}
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def rehearse(sample: Sample, options: Mapping[str, Any], documents: int, progress: Progress = silent) -> Rates:
    """Measure what the sample costs on this machine, to plan a collection of this many documents.

    `options` are the arguments encoder, pooling, max_length, precision, transform and prompts of `Retriever.build`.
    """
    with TemporaryDirectory(prefix="retriever-plan-") as folder:
        request = {"folder": f"{folder}/collection", "options": dict(options), "planned": documents}
        progress("rehearsing", 0, 2)
        built = run_child("build", {**request, "sample": [asdict(document) for document in sample.documents]})
        progress("rehearsing", 1, 2)
        vectors = round(documents * built["large"]["vectors"] / built["large"]["documents"])
        request |= {"queries": built.pop("queries"), "dimension": built["dimension"], "planned": vectors}
        searched = run_child("search", request, ONE_THREAD)
        progress("rehearsing", 2, 2)
    own = {"sample": sample.description, "sample_documents": len(sample.documents), "read_cpu": sample.read_cpu}
    return Rates.from_json({**own, **built, **searched, "cores": cores()})


def run_child(task: str, request: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run a task of this module in a separate process, and return the JSON in the last line that it prints."""
    package = str(Path(retriever.__file__).parents[1])
    path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, **WAITING, "PYTHONPATH": path, **(environment or {})}
    command = [sys.executable, "-m", "retriever.plan.rehearsal", task]
    ended = subprocess.run(command, input=json.dumps(request), capture_output=True, encoding="utf-8", env=environment)
    if ended.returncode:
        reason = ended.stderr.strip().rpartition("\n")[2] or f"its process ended with exit code {ended.returncode}"
        raise RetrieverError(f"the rehearsal failed: {reason}")
    answer: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    if "error" in answer:
        raise (Misuse if answer["exit_code"] == Misuse.exit_code else RetrieverError)(answer["error"])
    return answer


class _Meter:
    """A progress callback for `Retriever` that adds up the CPU seconds of each part."""

    def __init__(self) -> None:
        self.cpu = dict.fromkeys((EMBEDDING, FITTING, BUILDING), 0.0)
        self._part, self._since = EMBEDDING, time.process_time()

    def __call__(self, stage: str, done: int, total: int | None, detail: str = "") -> None:
        now = time.process_time()
        self.cpu[self._part] += now - self._since
        self._part, self._since = STAGES.get(stage, self._part), now


def measure_build(request: Mapping[str, Any]) -> dict[str, Any]:
    """Build the smaller collection, the larger collection and all index types, and measure the cost of each."""
    sample = [Document(**fields) for fields in request["sample"]]
    options, reason = _with_precision(sample, request["options"])
    start = time.process_time()
    characters = max(1.0, sum(document.characters() for document in sample) / len(sample))
    most = min(MOST, max(FEWEST, len(sample)), max(LARGER, int(MOST_CHARACTERS / characters)))
    documents, count = [*sample, *made_up(sample, max(0, most - len(sample)))], most // LARGER

    def build(count: int, index_type: str, meter: Progress) -> Retriever:
        own = {"index_type": index_type, "device": "cpu", "progress": meter, **options}
        return Retriever.build(documents[:count], request["folder"], **own)

    small, _ = _measured(partial(build, count, FLAT))
    peak, seconds = peak_bytes(), small["cpu"][EMBEDDING]
    count = min(most, count + max(count, int(count * EMBEDDING_SECONDS / max(seconds, 0.001))))
    large, info = _measured(partial(build, count, FLAT))
    large["cpu"][EMBEDDING] += seconds
    files, generation = info["bytes"].items(), f"generations/{info['index']['generation']:06d}/"
    dimension, trials = info["transform"]["dimension_out"], {}
    for name in OTHER_TYPES:
        factory = factory_string(name, int(request["planned"] * large["vectors"] / large["documents"]), dimension)
        factory = re.sub(r"IVF\d+", f"IVF{list_count(large['vectors'])}", factory)
        with suppress(Misuse):  # too few vectors or dimensions for this type
            one, published = _measured(partial(build, 1, factory))
            if published["index"]["factory"] == factory:
                found = published["index"]["measured"]
                recall = found["recall"] if len(sample) >= count else None  # meaningless on made-up documents
                costs = {"build_cpu": one["cpu"][BUILDING], "query_ms": found["cpu_ms"], "settings": found["settings"]}
                trials[name] = {"factory": factory, **costs, "recall": recall}
    build(1, FLAT, silent).close()
    texts = [document.text for document in sample]
    return {
        "encoder": info["encoder"],
        "precision_reason": reason,
        "transform": info["transform"]["spec"],
        "dimension": dimension,
        "start_cpu": start,
        "build_peak_bytes": peak,
        "other_bytes": sum(
            size for path, size in files if path.startswith(generation) and not path.endswith(INDEX_FILES)
        ),
        "small": small,
        "large": large,
        "trials": trials,
        "queries": short_texts(texts, QUERIES, SEED) or texts[:QUERIES],
    }


def _with_precision(sample: Sequence[Document], options: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Choose the precision as `Retriever.build` does, but on the whole sample, not only on the smaller collection."""
    if options["precision"] not in (None, AUTO):
        return dict(options), "as requested"
    if options["pooling"] == LEARNED or ModelFiles(options["encoder"]).static:
        return dict(options), "a word table cannot use 8-bit integers"
    pooling = None if options["pooling"] == AUTO else options["pooling"]
    single, integers = (
        Encoder(
            options["encoder"],
            pooling=pooling,
            max_length=options["max_length"],
            precision=name,
            device="cpu",
            query_prompt=options["query_prompt"],
            document_prompt=options["document_prompt"],
        )
        for name in ("fp32", "int8")
    )
    choice = choose_precision(sample, single, integers, options["transform"])
    return {**options, "precision": choice.chosen}, choice.reason


def _measured(make: Callable[[Progress], Retriever]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Measure a collection that `make` builds or changes. Return the measurements and the `info` of the collection."""
    meter = _Meter()
    with make(meter) as made:
        meter("", 0, None)
        info, connection = made.info(), made.local.store.db.conn
        pragmas = ("page_count", "freelist_count", "page_size")
        pages, free, size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas)
    counts = {name: info[name] for name in ("documents", "passages", "vectors")}
    return {**counts, "sqlite_bytes": (pages - free) * size, "cpu": meter.cpu}, info


def measure_search(request: Mapping[str, Any]) -> dict[str, Any]:
    """Time searches, one query at a time. If the request has a `dimension`, time flat indexes of random vectors too."""
    encoding, searching = [], []
    with Retriever.open(request["folder"], encoder=request["options"]["encoder"], device="cpu") as opened:
        for query in islice(cycle(request["queries"]), WARM_UP + TIMED):
            began = time.process_time()
            vectors = opened.query_vectors([query])
            encoded = time.process_time()
            opened.answer_many([query], 10, vectors=vectors)
            encoding.append(encoded - began)
            searching.append(time.process_time() - encoded)
    query_ms, encoder_ms = (1000 * float(np.quantile(times[WARM_UP:], QUANTILE)) for times in (searching, encoding))
    found = {"query_ms": query_ms, "encoder_ms": encoder_ms, "search_peak_bytes": peak_bytes()}
    if "dimension" not in request:
        return found
    dimension, scans = request["dimension"], []
    largest = min(max(request["planned"], COMPARED), LARGEST_SCAN_BYTES // (4 * dimension))
    rows = unit_rows(np.random.default_rng(SEED).standard_normal((largest, dimension), np.float32))
    for count in (*(size for size in SCANNED if size < largest), largest):
        index = exact_index(dimension, [(np.arange(count, dtype=np.int64), rows[:count])])
        scans.append((count, 1000 * _least_cpu(partial(index.search, rows[:1], WANTED, np.zeros(0, np.int64)))))
    few = rows[:COMPARED]
    return {**found, "scans": scans, "compare_cpu": _least_cpu(partial(np.matmul, few, few.T)) / len(few) ** 2}


def _least_cpu(work: Callable[[], object]) -> float:
    written, times = np.zeros(CACHES_BYTES // 8), []
    for _ in range(TIMES + 1):
        written += 1.0
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times[1:])


if __name__ == "__main__":
    try:
        print(json.dumps((measure_build if sys.argv[1] == "build" else measure_search)(json.load(sys.stdin))))
    except RetrieverError as error:
        print(json.dumps({"error": str(error), "exit_code": error.exit_code}))
