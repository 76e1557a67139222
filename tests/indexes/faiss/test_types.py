"""Index types: what a name stands for, what is refused, and that every index knows its recall."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from samples import Run

from indexes.errors import Damaged, Misuse
from indexes.faiss import auto as automatic
from indexes.faiss import gpu, types
from indexes.faiss.building import Vectors, build, build_tuned
from indexes.faiss.building import build_requested as made_by_name
from indexes.faiss.recall import RECALL_AT, STORED, WANTED, Nearest, Queries, interval, stored_queries
from indexes.faiss.types import IndexRequest, candidates, estimated_bytes, factory_string, list_count, parse_bytes
from indexes.faiss.vectors import VectorIndex, empty_index, gpu_count, import_faiss, unit_rows
from indexes.folder.collection import Collection
from indexes.generation import Publication
from indexes.rows import DocumentRow
from retriever import Document, Retriever

Rows = NDArray[np.float32]
DIMENSION, COUNT = 32, 6000
RNG = np.random.default_rng(0)
ROWS = unit_rows(RNG.standard_normal((COUNT, DIMENSION)) * np.linspace(2, 0.3, DIMENSION))
NUMBERS = 2 * np.arange(COUNT, dtype=np.int64) + 3
QUERIES = unit_rows(RNG.standard_normal((120, DIMENSION)) * np.linspace(2, 0.3, DIMENSION))
VECTORS = Vectors.of(NUMBERS, ROWS)


def find(index: VectorIndex, queries: Rows) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """As a search does: candidates of the index, scored exactly."""
    results = []
    for query, numbers in zip(queries, index.search(queries, WANTED, np.zeros(0, np.int64)), strict=True):
        scores = VECTORS.take(numbers).astype(np.float64) @ query.astype(np.float64)
        order = np.argsort(-scores, kind="stable")[:WANTED]
        results.append((numbers[order], scores[order]))
    return results


def brute_force(query: Rows, without: int | None = None) -> list[int]:
    scores = ROWS.astype(np.float64) @ query.astype(np.float64)
    order = [int(NUMBERS[place]) for place in np.argsort(-scores, kind="stable")]
    return [number for number in order if number != without][:RECALL_AT]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500MB", 500_000_000), ("2GB", 2 * 10**9), ("1.5GiB", 3 << 29), ("1000", 1000), ("64 kb", 64_000), ("1g", 10**9)],
)
def test_bytes_as_people_write_them(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "2 XB", "1e9", "two"])
def test_what_is_no_number_of_bytes(text: str) -> None:
    with pytest.raises(Misuse, match="500MB"):
        parse_bytes(text)


@given(count=st.integers(0, 10**8), dimension=st.integers(1, 1024))
def test_every_short_name_is_a_type_that_faiss_knows(count: int, dimension: int) -> None:
    for name in ("flat", "sq8", "ivf", "hnsw", "pq", "rabitq"):
        factory = factory_string(name, count, dimension)
        assert "IVF0" not in factory
        if list_count(count) <= 64:  # more takes FAISS long to make
            empty_index(factory, dimension)


def test_sizes_are_known_before_anything_is_built() -> None:
    faiss = import_faiss()
    for factory in [*candidates(COUNT, DIMENSION), "HNSW32"]:
        expected = estimated_bytes(faiss, empty_index(factory, DIMENSION), COUNT)
        index, note = build(factory, VECTORS)
        assert note == ""
        assert faiss.serialize_index(index.index).nbytes == pytest.approx(expected, rel=0.25, abs=8192), factory


@pytest.mark.parametrize("block", [7, 1000, COUNT])
@pytest.mark.parametrize("stored", [False, True])
def test_the_true_nearest_come_out_of_any_blocks(block: int, stored: bool) -> None:
    queries = Queries(QUERIES[:9], "given")
    if stored:
        queries = stored_queries(NUMBERS[:9], VECTORS.take)
    nearest = Nearest(queries, COUNT)
    for start in range(0, COUNT, block):
        nearest.see(NUMBERS[start : start + block], ROWS[start : start + block])
    held_out = nearest.held_out()
    assert held_out is not None
    for place, query in enumerate(queries.vectors):
        own = None if queries.own is None else int(queries.own[place])
        assert held_out.numbers[place].tolist() == brute_force(query, own)


@given(st.floats(0, 1), st.integers(1, 2000))
def test_the_interval_holds_the_mean_and_has_a_width(mean: float, count: int) -> None:
    low, high = interval(mean, count)
    assert 0 <= low <= mean + 1e-9 and mean - 1e-9 <= high <= 1 and high > low


@pytest.mark.heavy
@pytest.mark.parametrize(
    "factory", ["IVF16,SQ8", "PQ8x4fs", "RaBitQfs", "HNSW16", "IVF16,RaBitQfs", "SQ8", "PCA16,IVF16,Flat"]
)
@pytest.mark.parametrize("target", [0.8, 0.99])
def test_settings_reach_the_recall_and_the_report_is_true(factory: str, target: float) -> None:
    built = build_tuned(factory, target, VECTORS, Queries(QUERIES, "given"), find)
    told = built.facts
    found = find(built.index, QUERIES[1::2])
    truth = [brute_force(query) for query in QUERIES[1::2]]
    recalls = [np.isin(true, numbers[:RECALL_AT]).mean() for true, (numbers, _) in zip(truth, found, strict=True)]
    assert told["recall"] == pytest.approx(float(np.mean(recalls)), abs=1e-4)
    assert told["low"] <= told["recall"] <= told["high"] and told["queries"] == 60
    assert built.tuned.reaches and told["recall"] >= target - 0.03


def test_a_type_that_cannot_find_enough_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("indexes.faiss.tuning.FETCHES", (0,))
    built = made_by_name(IndexRequest("PQ4x4fs"), VECTORS, Queries(QUERIES, "given"), find)
    assert "PQ4x4fs does not reach recall 0.95" in built.note and built.facts["recall"] < 0.95


def test_less_recall_asks_for_less_work() -> None:
    efforts = [
        build_tuned("IVF64,SQ8", target, VECTORS, Queries(QUERIES, "given"), find).index.settings["nprobe"]
        for target in (0.5, 0.8, 0.99)
    ]
    assert efforts == sorted(efforts) and efforts[0] < efforts[-1]


# ---- auto ------------------------------------------------------------------------------------------------


def choose(monkeypatch: pytest.MonkeyPatch, asked: IndexRequest, tried_on: int = COUNT) -> Any:
    monkeypatch.setattr(types, "SCANNED_EXACTLY", 4 * 100 * DIMENSION)
    monkeypatch.setattr(automatic, "TRIED_ON", tried_on)
    return automatic.choose_index(asked, VECTORS, Queries(QUERIES, "given"), find)


def test_few_vectors_are_searched_exactly() -> None:
    built = automatic.choose_index(IndexRequest("auto"), VECTORS, Queries(QUERIES, "given"), find)
    assert built.factory == "Flat" and built.facts["recall"] == 1.0 and built.facts["exact"]


@pytest.mark.heavy
@pytest.mark.parametrize("tried_on", [COUNT, 2000])
def test_auto_reaches_the_recall_within_the_memory(monkeypatch: pytest.MonkeyPatch, tried_on: int) -> None:
    memory = 60 * COUNT
    built = choose(monkeypatch, IndexRequest("auto", 0.9, memory), tried_on)
    assert import_faiss().serialize_index(built.index.index).nbytes <= memory
    assert built.tuned.reaches and built.facts["recall"] >= 0.87 and built.note == ""
    considered = {one["factory"] for one in built.facts["considered"]}
    assert built.factory in considered and "Flat" not in considered and len(considered) > 2


@pytest.mark.heavy
def test_what_auto_chose_is_taken_again_while_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = IndexRequest("auto", 0.9)
    first = choose(monkeypatch, asked)
    before = {"factory": first.factory, "count": COUNT // 2, "measured": first.facts}
    monkeypatch.setattr(automatic, "_trials", None)
    again = automatic.choose_index(asked, VECTORS, Queries(QUERIES, "given"), find, before=before)
    assert again.factory == first.factory and again.facts["considered"] == first.facts["considered"]
    with pytest.raises(TypeError):  # more than twice as many: tried anew
        automatic.choose_index(asked, VECTORS, Queries(QUERIES, "given"), find, before=before | {"count": COUNT // 3})


def test_auto_says_when_nothing_reaches_the_recall(monkeypatch: pytest.MonkeyPatch) -> None:
    """With so few bits, and so few candidates to score again, perfection is out of reach."""
    monkeypatch.setattr("indexes.faiss.tuning.FETCHES", (0,))
    built = choose(monkeypatch, IndexRequest("auto", 1.0, 5 * COUNT))
    assert "reaches recall 1; the best, PQ" in built.note and "within 30.0 KB" in built.note
    assert built.facts["recall"] < 1


def test_auto_names_the_least_memory_that_would_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Misuse, match=r"fits into 100 bytes: the smallest takes 14\.0 KB"):
        choose(monkeypatch, IndexRequest("auto", 0.9, 100))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("flat", 0.9, None), '`recall` can only be used with `index_type="auto"`'),
        (("hnsw", None, 10), '`memory` can only be used with `index_type="auto"`'),
        (("auto", 0.0, None), "above 0 and at most 1"),
        (("auto", 1.5, None), "above 0 and at most 1"),
        (("auto", float("nan"), None), "above 0 and at most 1"),
        (("auto", None, 0), "at least one byte"),
        (("auto", None, 10**5000), "at most 1,152,921"),
        ((" ", None, None), "empty"),
    ],
)
def test_what_cannot_be_asked(asked: tuple[str, float | None, int | None], message: str) -> None:
    with pytest.raises(Misuse, match=message):
        IndexRequest(*asked)


def test_ids_of_faiss_are_refused() -> None:
    with pytest.raises(Misuse, match="remove IDMap"):
        empty_index("IDMap,Flat", 8)


# ---- on disk and by the command line ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Path:
    folder = tmp_path_factory.mktemp("types") / "c"
    documents = [Document(f"d{i}", f"Number {i} is {'even' if i % 2 == 0 else 'odd'}.") for i in range(120)]
    Retriever.build(documents, folder, encoder=tiny_bert, transform="center", index_type="ivf").close()
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "c"))


def test_the_command_tells_recall_size_and_time(run: Run, folder: Path) -> None:
    output = " ".join(run("rebuild", "--index-type", "rabitq", "--index", folder).output.split())
    assert "RaBitQfs: recall@10 " in output and "bytes per vector" in output and "short texts" in output
    measured = json.loads(run("info", "--json", "--index", folder).output)["index"]["measured"]
    assert measured["low"] <= measured["recall"] <= measured["high"]
    assert {"cpu_ms", "queries", "bytes_per_vector", "settings"} <= set(measured)
    run("rebuild", "--index-type", "auto", "--recall", 0.9, "--memory", "1GB", "--index", folder)
    index = json.loads(run("info", "--json", "--index", folder).output)["index"]
    assert (index["type"], index["recall"], index["memory"]) == ("auto", 0.9, 10**9)
    assert (index["factory"], index["measured"]["recall"]) == ("Flat", 1.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--recall", "0.9"], "--recall can only be used with --index-type auto, but the index type is ivf"),
        (["--index-type", "flat", "--memory", "1GB"], "--memory can only be used with --index-type auto"),
        (["--index-type", "auto", "--recall", "7"], "above 0 and at most 1"),
        (["--index-type", "auto", "--memory", "lots"], "500MB"),
        (["--index-type", "auto", "--memory", "1"], "the smallest takes"),
        (["--index-type", "auto", "--memory", "9" * 5000], "at most 1,152,921"),
        (["--index-type", f"IVF{'9' * 5000},Flat"], "a number that is too large"),
        (["--index-type", "IDMap,Flat"], "remove IDMap"),
    ],
)
def test_misuse_leaves_the_index_as_it_is(run: Run, folder: Path, options: list[str], message: str) -> None:
    before = run("info", "--json", "--index", folder).output
    assert message in " ".join(run("rebuild", *options, "--index", folder, code=2).output.split())
    assert json.loads(run("info", "--json", "--index", folder).output)["index"] == json.loads(before)["index"]


def test_what_was_asked_holds_for_later_publications(folder: Path, tiny_bert: str) -> None:
    with Retriever.open(folder) as retriever:
        retriever.rebuild(index_type="auto", recall=0.8)
        retriever.rebuild(transform="none")
        assert retriever.info()["index"]["recall"] == 0.8
        retriever.rebuild(index_type="sq8")
        assert retriever.info()["index"]["recall"] is None
        retriever.rebuild(index_type="auto")
        assert retriever.info()["index"]["recall"] == 0.95


def test_settings_and_queries_survive_a_repair(folder: Path) -> None:
    with Retriever.open(folder) as retriever:
        before = retriever.info()["index"]["measured"]
    next((folder / "generations").glob("*/vectors.faiss")).write_bytes(b"gone")
    with Retriever.open(folder) as retriever:
        assert retriever.verify(repair=True).left == []
    with Retriever.open(folder) as retriever:
        after = retriever.info()["index"]["measured"]
        assert after["queries_were"] == before["queries_were"] == "short texts cut from passages"
        assert after["recall"] == before["recall"]
        assert len(retriever.search("Number 7 is odd.", 3)) == 3


def test_without_held_out_queries_stored_passages_serve(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    with Collection.create(folder, {"encoder": {"dimension": DIMENSION}}) as collection, collection.writing():
        hashes = [bytes([7]) * 28 + place.to_bytes(4, "big") for place in range(500)]
        collection.store.add_vectors(hashes, ROWS[:500])
        collection.store.put_documents(
            DocumentRow(f"d{place}", "", "t", {}, own, "here", [(0, 1, own)]) for place, own in enumerate(hashes)
        )
        facts = {"encoder": {"dimension": DIMENSION}}
        publication = Publication(lambda rows: rows, DIMENSION, IndexRequest("IVF8,SQ8"), lambda _: [], facts, {})
        generation = collection.publish(publication)
    assert generation.measured["queries_were"] == STORED
    with Collection.open(folder) as collection:
        collection.load(lambda _: None)
        assert collection._loaded is not None
        index = collection._loaded[1]
        assert faiss_nprobe(index) == generation.manifest["search_settings"]["nprobe"] == index.settings["nprobe"]


def faiss_nprobe(index: VectorIndex) -> int:
    return int(import_faiss().downcast_index(index.index).nprobe)


def test_faiss_says_nothing_on_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    few = Vectors.of(NUMBERS[:300], ROWS[:300])
    for factory in ("IVF16,SQ8", "PQ8x4fs", "IVF16,PQ8x4fs", "PQ8x4", "IVF16,RaBitQfs"):
        build(factory, few)
    assert capfd.readouterr().err == ""


# ---- opening ---------------------------------------------------------------------------------------------


def test_a_sound_file_is_hashed_once_and_a_changed_one_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from indexes.folder import generation as generations

    monkeypatch.setattr(generations, "TOO_YOUNG_NS", 0)
    hashed: list[str] = []
    real = generations.file_sha256
    monkeypatch.setattr(generations, "file_sha256", lambda path: hashed.append(path.name) or real(path))

    def search() -> list[str]:
        hashed.clear()
        with Retriever.open(folder) as retriever:
            retriever.similar("d7", 3)
        return hashed

    assert "vectors.faiss" in search()
    assert search() == []
    path = next((folder / "generations").glob("*/vectors.faiss"))
    data = path.read_bytes()
    path.write_bytes(data)
    assert "vectors.faiss" in search(), "it was written, though with what it held"
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(Damaged):
        search()
    path.write_bytes(data)
    assert "vectors.faiss" in search()


# ---- GPU -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "factory", ["HNSW16", "PQ8x4fs", "RaBitQfs", "IVF16,PQ8x4fs", "SQ8", "SQ8,RFlat", "IVF16,SQ4", "PQ8"]
)
def test_what_faiss_has_not_on_gpus(factory: str) -> None:
    assert gpu.refusal(empty_index(factory, DIMENSION))


@pytest.mark.parametrize(
    "factory", ["Flat", "IVF16,Flat", "IVF16,SQ8", "IVF16,SQfp16", "IVF16,PQ8", "PCA16,IVF16,Flat"]
)
def test_what_faiss_has_on_gpus(factory: str) -> None:
    assert gpu.refusal(empty_index(factory, DIMENSION)) == ""


@pytest.mark.skipif(gpu_count() > 0, reason="there is a GPU")
def test_without_a_gpu(folder: Path) -> None:
    which = "FAISS finds no GPU" if gpu.has_gpu_part() else "faiss-cpu is installed"
    for device in ("auto", "cpu"):
        with Retriever.open(folder, device=device) as retriever:
            assert retriever.similar("d7", 3) and retriever.collection.device_note == ""
    with Retriever.open(folder, device="cuda") as retriever, pytest.raises(Misuse, match=which):
        retriever.similar("d7", 3)


@pytest.mark.skipif(not gpu_count(), reason="no GPU that FAISS can use")
@pytest.mark.parametrize("factory", ["Flat", "IVF16,Flat", "IVF16,SQ8"])
def test_a_gpu_finds_the_same(factory: str) -> None:
    built = build_tuned(factory, 0.95, VECTORS, Queries(QUERIES, "given"), find)
    on_cpu = [set(numbers[:5].tolist()) for numbers, _ in find(built.index, QUERIES)]
    assert "GPU" in gpu.search_on_gpu("cuda", built.index, factory)
    on_gpu = [set(numbers[:5].tolist()) for numbers, _ in find(built.index, QUERIES)]
    assert np.mean([len(a & b) / 5 for a, b in zip(on_cpu, on_gpu, strict=True)]) > 0.98


@pytest.mark.parametrize("factory", ["IVF0,Flat", "HNSW0", "PQ8x0"])
def test_sizes_of_zero_are_refused(factory: str) -> None:
    with pytest.raises(Misuse, match="size of zero"):
        empty_index(factory, 32)
