"""`python -m benchmarks speed`: the same documents in every system, measured in turns. No test asserts a time."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from samples import Run
from similarity import sentences

from benchmarks.sentence_vectors import sentence_vectors
from benchmarks.speed import rivals
from benchmarks.speed import tasks as speed_tasks
from benchmarks.speed.process import MeasuredProcess
from benchmarks.speed.rivals import OURS, REFERENCE, SYSTEMS, Documents, Queries, StoredVectors, System, rival
from benchmarks.speed.tasks import least_scores, recall
from benchmarks.speed.worker import Worker
from indexes.faiss.vectors import unit_rows
from retriever.errors import RetrieverError
from retriever.evaluate.models.encoders import open_encoders

COUNT = 240
EXACT = (OURS, REFERENCE, "txtai", "lancedb", "sqlite-vec")
"""txtai's index is exact while it is as small as this."""


class InThisProcess(MeasuredProcess):
    """A worker without a process of its own, which costs seconds to start."""

    def __init__(self, name: str) -> None:
        self.name, self._worker = name, Worker()

    def request(self, what: str, **given: Any) -> dict[str, Any]:
        return json.loads(json.dumps(self._worker.answer(what, given)))  # type: ignore[no-any-return]

    def __exit__(self, *_: object) -> None: ...


@pytest.fixture
def lines() -> list[str]:
    return list(dict.fromkeys(sentences(2 * COUNT, 5)))[:COUNT]


@pytest.fixture
def source(tmp_path: Path, lines: list[str]) -> Path:
    path = tmp_path / "sentences.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def bench(run: Run, source: Path, tmp_path: Path, tiny_bert: str) -> Callable[..., Any]:
    """The command with small sizes and two systems, results in tmp_path/out."""

    def invoke(*options: object, code: int = 0, sizes: tuple[int, ...] = (120,), files: tuple[Path, ...] = ()) -> Any:
        documents = [part for size in sizes for part in ("--documents", size)]
        fixed = ["--encoder", tiny_bert, "--cache", tmp_path / "cache", "--queries", 25, "--repeats", 1]
        return run("speed", *(files or (source,)), *documents, *fixed, *options, code=code)

    return invoke


TWO = ("--system", OURS, "--system", REFERENCE)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_task_is_measured_once(
    bench: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed_tasks, "MeasuredProcess", InThisProcess)
    out = tmp_path / "out"
    asked = (*TWO, "--embed-at-most", 120, "--out", out)
    output = bench(*asked, sizes=(120, 240)).output
    rows = json.loads((out / "results.json").read_text())
    found = {(row["dataset"], row["split"], row["transform"], row["metric"]): row["value"] for row in rows}
    for size in ("120", "240"):
        for system in (OURS, REFERENCE):
            assert found[size, "query-vectors", system, "recall_at_10"] == 1.0
            assert (size, "ingest-text", system, "cpu_seconds") in found or size == "240"
            for task, metrics in {
                "ingest-vectors": ("cpu_seconds", "wall_seconds", "peak_bytes", "disk_bytes"),
                "query-vectors": ("p50_ms", "p95_ms", "p99_ms", "cpu_ms", "batch_per_second", "peak_bytes"),
                "query-text": ("p50_ms", "encoder_p50_ms", "rest_p50_ms", "batch_per_second", "peak_bytes"),
                "cold": ("cpu_seconds", "wall_seconds"),
            }.items():
                for metric in metrics:
                    value = found[size, task, system, metric]
                    assert value > 0 or metric in ("rest_p50_ms", "cpu_ms"), (size, task, system, metric)
    assert found["120", "ingest-text", OURS, "again_cpu_seconds"] > 0
    assert found["240", "ingest-vectors", OURS, "vector_bytes"] == 4 * 32 * 240
    assert found["240", "encoding", "retriever fp32", "cosine"] <= 1.0001
    for shown in ("Ingestion, vectors given, 240 documents", "recall@10", "From 120 to 240 documents", "Cold search"):
        assert shown in output
    assert (out / "speed.png").read_bytes().startswith(b"\x89PNG")
    assert not (out / "work").exists()
    assert "0 runs measured" in bench(*asked, sizes=(120, 240)).output
    told = json.loads(bench(*asked, "--json", sizes=(120, 240)).stdout)
    assert {json.dumps(row) for row in told} == {json.dumps(row) for row in rows}


@pytest.mark.heavy
def test_a_killed_run_goes_on_with_its_stores(
    bench: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Noted(InThisProcess):
        def request(self, what: str, **given: Any) -> dict[str, Any]:
            asked.append(what)
            if what == "batch" and asked.count("batch") == 8:
                raise KeyboardInterrupt
            return super().request(what, **given)

    monkeypatch.setattr(speed_tasks, "MeasuredProcess", Noted)
    monkeypatch.setattr(speed_tasks, "run_whole", lambda command: {"wall_seconds": 1.0, "cpu_seconds": 1.0})
    asking = (*TWO, "--embed-at-most", 0, "--out", tmp_path / "out")
    bench(*asking, code=130)
    assert asked.count("ingest") == 2
    before = asked.count("queries")
    bench(*asking)
    assert asked.count("ingest") == 2 and asked.count("encode") == 1  # the stores were still there
    assert asked.count("queries") == before + 2 * 3  # by text alone: those by vectors were finished


@pytest.mark.heavy
def test_a_system_that_fails_is_left_out_and_said(
    bench: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(InThisProcess):
        def request(self, what: str, **given: Any) -> dict[str, Any]:
            if given.get("system") == REFERENCE:
                raise RetrieverError(f"{self.name} could not {what}: no room")
            return super().request(what, **given)

    monkeypatch.setattr(speed_tasks, "MeasuredProcess", Failing)
    monkeypatch.setattr(speed_tasks, "run_whole", lambda command: {"wall_seconds": 1.0, "cpu_seconds": 1.0})
    result = bench(*TWO, "--embed-at-most", 100, "--json")
    assert {row["transform"] for row in json.loads(result.stdout) if row["split"] != "encoding"} == {OURS}
    assert "could not ingest: no room (at 120 documents); left out" in result.stderr
    assert "use --embed-at-most 120 for that" in result.stderr


def test_systems_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SYSTEMS, "txtai", System("benchmarks.speed.rivals.txtai", "no_such_package"))
    chosen, notes = rivals.chosen_systems((OURS, "txtai"))
    assert chosen == [OURS]
    assert notes == [
        "txtai is left out, because it is not installed; install it with: pip install 'flow-retriever[speed]'"
    ]


def test_bad_input(bench: Callable[..., Any], run: Run, tmp_path: Path) -> None:
    assert "but not both" in run("speed", code=2).output
    assert "known: retriever" in bench("--system", "elastic", code=2).output
    assert "wiki_sentences" in run("speed", "--data", tmp_path, code=2).output
    (tmp_path / "blank.txt").write_text("\n\n")
    assert "no sentences were found" in bench(files=(tmp_path / "blank.txt",), code=2).output
    (tmp_path / "words.txt").write_text("one\ntwo\n")
    assert "no query could be cut" in bench(*TWO, files=(tmp_path / "words.txt",), code=2).output


def test_more_than_there_is_takes_all(
    bench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(speed_tasks, "MeasuredProcess", InThisProcess)
    monkeypatch.setattr(speed_tasks, "run_whole", lambda command: {"wall_seconds": 1.0, "cpu_seconds": 1.0})
    asking = ("--system", REFERENCE, "--embed-at-most", 0, "--out", tmp_path / "out")
    result = bench(*asking, "--json", sizes=(10_000,))
    assert "only 240 sentences, not 10,000: all of them are used" in result.stderr
    assert {row["dataset"] for row in json.loads(result.stdout)} == {"240"}
    assert "0 runs measured, 7 taken" in bench(*asking, sizes=(10_000,)).output


# ---- the systems ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SYSTEMS)
def test_hits_are_those_of_brute_force(
    name: str, source: Path, lines: list[str], tmp_path: Path, tiny_bert: str
) -> None:
    if not SYSTEMS[name].installed:
        pytest.skip(f"{name} is not installed: pip install {SYSTEMS[name].pip}")
    encoder = open_encoders([tiny_bert], device="cpu")[0]
    _, vectors = sentence_vectors([source], encoder, COUNT, tmp_path / "cache")
    vectors.tofile(tmp_path / "vectors.f16")
    system = rival(name, tmp_path / "store", tiny_bert)
    system.ingest(Documents(source, COUNT), StoredVectors(tmp_path / "vectors.f16", encoder.dimension))
    opened = rival(name, tmp_path / "store", tiny_bert)
    opened.open()
    queries = Queries([f"query {n}" for n in range(20)], vectors[:20].astype(np.float32))
    together = opened.search(queries, 10)
    one = opened.search(Queries(queries.texts[:1], queries.vectors[:1]), 10)  # type: ignore[index]
    expected = brute_force(vectors, queries.vectors, 10)
    for hits, ids in zip(together, expected, strict=True):
        assert all(hit.text == lines[int(hit.id)] for hit in hits)
        found = [hit.id for hit in hits]
        assert found == ids if name in EXACT else len(set(found) & set(ids)) >= 8
    assert [hit.id for hit in one[0]] == [hit.id for hit in together[0]]
    by_text = opened.search(Queries([lines[7]]), 3)
    assert len(by_text[0]) == 3 and opened.encode(lines[:2]).shape == (2, encoder.dimension)
    opened.close()


@pytest.mark.parametrize("name", [name for name in SYSTEMS if name not in (OURS, REFERENCE)])
def test_stores_by_a_systems_own_encoder(name: str, source: Path, tmp_path: Path, tiny_bert: str) -> None:
    if not SYSTEMS[name].installed:
        pytest.skip(f"{name} is not installed: pip install {SYSTEMS[name].pip}")
    rival(name, tmp_path / "store", tiny_bert).ingest(Documents(source, 60), None)
    assert any(path.is_file() for path in (tmp_path / "store").rglob("*"))


def brute_force(vectors: NDArray[Any], queries: Any, k: int) -> list[list[str]]:
    scores = unit_rows(queries).astype(np.float64) @ unit_rows(vectors.astype(np.float32)).astype(np.float64).T
    return [[str(row) for row in np.argsort(-own, kind="stable")[:k]] for own in scores]


# ---- the parts --------------------------------------------------------------------------------------------


def test_recall_counts_ties_as_found() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((300, 16)).astype(np.float16)
    vectors[299] = vectors[0]
    queries = vectors[:3].astype(np.float32)
    least = least_scores(vectors, queries, 10)
    best = brute_force(vectors, queries, 10)
    assert recall(vectors, queries, least, best, 10) == 1.0
    swapped = [["299", *[i for i in best[0] if i not in ("0", "299")], "0"][:10], *best[1:]]
    assert recall(vectors, queries, least, swapped, 10) == 1.0
    worst = brute_force(vectors, -queries, 10)
    assert recall(vectors, queries, least, [best[0], worst[1], best[2][:5]], 10) == pytest.approx(1.5 / 3)
    assert recall(vectors, queries, least, [["0"] * 10, [], []], 10) == pytest.approx(0.1 / 3)


def test_a_worker_tells_what_went_wrong() -> None:
    with MeasuredProcess("nobody") as worker:
        with pytest.raises(RetrieverError, match="nobody could not ingest: .*elastic"):
            worker.request(
                "ingest", system="elastic", folder="", model="", texts="", count=0, vectors=None, dimension=1
            )
        with pytest.raises(RetrieverError, match="nobody could not batch"):
            worker.request("batch", first=0, last=1)


@pytest.mark.slow
def test_in_processes_of_their_own(bench: Callable[..., Any]) -> None:
    rows = json.loads(bench(*TWO, "--json").stdout)
    peaks = [row["value"] for row in rows if row["metric"] == "peak_bytes"]
    assert len(peaks) == 8 and all(1e7 < peak < 1e10 for peak in peaks)
