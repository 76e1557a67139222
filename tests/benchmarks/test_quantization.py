"""`python -m benchmarks quantization`: recall and task figures of FAISS index types, space by space, by their bytes."""

import json
from pathlib import Path

import faiss
import numpy as np
import pytest
from beir_made_up import write_beir
from figures import pick, rows_in
from numpy.typing import NDArray
from samples import Run, invoker, write_jsonl
from similarity import sentences

from benchmarks.quantization import codes
from benchmarks.quantization.cells import Space
from benchmarks.quantization.report import least_table
from benchmarks.quantization.sentences import Sentences, least_bytes, recall_figures
from retriever import Retriever
from retriever.cli.main import main as retriever
from retriever.corpus import Corpus
from retriever.encoder.encoder import Encoder
from retriever.errors import Misuse
from retriever.evaluate.fitting import fit_as_published
from retriever.evaluate.results import Row
from retriever.transforms import fit, load_transform

TYPES = ("SQ4", "RaBitQ", "PQ8x4fs", "RR32,SQ4", "IVF4,Flat", "HNSW32")


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(sentences(800, 5)), encoding="utf-8")
    return path


@pytest.fixture
def command(lines: Path, tmp_path: Path, tiny_bert: str) -> list[object]:
    cache = ["--cache", tmp_path / "cache", "--device", "cpu"]
    return ["quantization", "--sentences", lines, "--documents", 300, "--encoder", tiny_bert, *cache]


def vectors(count: int, dimension: int, seed: int) -> NDArray[np.float32]:
    """Unit vectors of a decaying spectrum, as real ones have it."""
    rows = np.random.default_rng(seed).standard_normal((count, dimension)) * np.linspace(3, 0.3, dimension)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


@pytest.fixture
def space() -> Space:
    documents = vectors(600, 32, 0)
    return Space.of(fit("none", documents), documents, vectors(40, 32, 1))


@pytest.mark.parametrize("index_type", TYPES)
def test_recall_is_that_of_brute_force(space: Space, index_type: str) -> None:
    index = codes.build(index_type, space.documents)
    found = recall_figures(index, space, (2, 10))
    expected: dict[str, list[float]] = {"recall@10": [], "recall@10_refine2": [], "recall@10_refine10": []}
    for query in space.queries:
        exact = space.documents.astype(np.float64) @ query
        truth = set(np.argsort(-exact)[:10].tolist())
        for depth, metric in zip((10, 20, 100), expected, strict=True):
            (own,) = index.search(query[None], depth)[1]
            best = sorted((n for n in own.tolist() if n >= 0), key=lambda n: -exact[n])[:10]  # re-scored
            expected[metric].append(len(truth & set(best)) / 10)
    for metric, shares in expected.items():
        assert found[metric] == pytest.approx(100 * np.mean(shares), abs=0.26), (
            metric
        )  # one tie of 400 may go either way
        assert found[f"{metric}_low"] <= found[metric] <= found[f"{metric}_high"]
    assert found["recall@10"] <= found["recall@10_refine2"] <= found["recall@10_refine10"]


def test_codes_that_lose_nothing_have_full_recall(space: Space) -> None:
    found = recall_figures(codes.build("Flat", space.documents), space, (4,))
    assert found["recall@10"] == found["recall@10_refine4"] == 100
    assert recall_figures(codes.build("PQ4x4fs", space.documents), space, (4,))["recall@10"] < 60


def test_bytes_are_those_of_faiss(space: Space, tmp_path: Path) -> None:
    sizes = {"Flat": 128, "SQfp16": 64, "SQ8": 32, "SQ4": 16, "PQ8x4fs": 4, "RaBitQ": 4 + 8, "HNSW32,SQ8": 32}
    for index_type, size in sizes.items():
        index = codes.build(index_type, space.documents)
        assert codes.code_bytes(index) == size, index_type
        faiss.write_index(index, str(tmp_path / "index"))
        assert codes.file_bytes(index) == (tmp_path / "index").stat().st_size >= 600 * size


@pytest.mark.parametrize("dimension", [32, 384, 768, 30])
def test_the_ladder_is_known_to_faiss(dimension: int) -> None:
    types = codes.ladder(dimension, 100_000)
    for index_type in types:
        codes.empty_index(index_type, dimension)
    assert "IVF256,Flat" in types and len(types) == len(set(types))
    assert ("PQ192x4fs" in types) == (dimension in (384, 768))


def test_depths_of_a_graph_are_walks_of_their_own(space: Space) -> None:
    index = codes.build("HNSW32", space.documents)
    found = codes.candidates(index, space.queries, [10, 400, 5000])
    assert set(found) == {10, 400, 600}
    assert (found[10] == index.search(space.queries, 10)[1]).all()


@pytest.mark.heavy
def test_rows_bytes_and_pictures(run: Run, command: list[object], tmp_path: Path) -> None:
    out = tmp_path / "out"
    types = [part for name in ("SQ4", "SQ8") for part in ("--index-type", name)]
    result = run(*command, *types, "--transform", "whiten", "--refine", 4, "--out", out)
    rows = rows_in(out)
    assert {(row["dataset"], row["fit"], row["seed"]) for row in rows} == {("sentences-300", "documents", 0)}
    assert {row["transform"] for row in rows} == {"none", "whiten"}
    cells = {(row["transform"], row["split"]) for row in rows if not row["split"].startswith("least")}
    assert cells == {(space, name) for space in ("none", "whiten") for name in ("SQ4", "SQ8", "Flat")}
    assert pick(rows, split="SQ4", metric="code_bytes") == [16, 16]
    assert pick(rows, split="Flat", metric="recall@10") == [100, 100]
    sizes = pick(rows, split="least", metric="bytes_per_vector_at_recall@10_refine4_of_95")
    assert len(sizes) == 2 and set(sizes) <= set(pick(rows, metric="bytes_per_vector"))
    for shown in ("codes alone", "best 4 × 10 re-scored", "fewest bytes per vector", "whiten", "raw"):
        assert shown in result.stdout, shown
    assert "nDCG@10 shows which space" in result.stdout
    (picture,) = out.glob("quantization-recall-*.png")
    assert picture.read_bytes().startswith(b"\x89PNG")
    (provenance,) = {
        key: value
        for key, value in json.loads((out / "provenance.json").read_text()).items()
        if "SQ4" in key and "whiten" in key
    }.values()
    assert len(provenance["transform_fingerprint"]) == 64 and provenance["inputs"]["faiss"] == faiss.__version__
    assert provenance["fitted_on"] > 300  # short texts among them


@pytest.mark.heavy
def test_what_is_finished_is_not_computed_again(
    run: Run, command: list[object], lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [*command, "--index-type", "SQ4", "--transform", "center", "--out", tmp_path / "out"]
    build, built = codes.build, []

    def stopped(index_type: str, rows: NDArray[np.float32]) -> object:
        built.append(index_type)
        if len(built) == 5:  # of each space: the truth, then SQ4 and Flat with the truth between
            raise KeyboardInterrupt
        return build(index_type, rows)

    with monkeypatch.context() as patch:
        patch.setattr("benchmarks.quantization.codes.build", stopped)
        run(*command, code=130)
    assert {(row["transform"], row["split"]) for row in rows_in(tmp_path / "out")} == {
        ("none", "SQ4"),
        ("none", "Flat"),
    }
    first = run(*command)
    assert "2 runs measured, 2 taken" in first.stderr
    with monkeypatch.context() as patch:
        patch.setattr("benchmarks.quantization.sentences.sentence_vectors", None)
        again = run(*command)
    assert "0 runs measured, 4 taken" in again.stderr and again.stdout == first.stdout
    assert "2 runs measured, 4 taken" in run(*command, "--index-type", "SQ8").stderr
    assert "4 runs measured, 0 taken" in run(*command, "--refine", 3).stderr
    lines.write_text(lines.read_text().replace("cat", "cow"))
    assert "4 runs measured, 0 taken" in run(*command).stderr


def test_bad_input(run: Run, command: list[object], tmp_path: Path) -> None:
    refused = run(*command, "--index-type", "SQ5", code=2).output
    assert "'SQ5'" in refused and "32 dimensions" in refused
    told = run(*command, "--documents", 400, code=2).output
    assert "there are only 800 sentences" in told and "900" in told
    assert "--sentences FILE" in run("quantization", code=2).output
    (tmp_path / "empty").mkdir()
    assert "is not a BEIR folder" in run("quantization", "--data", tmp_path / "empty", code=2).output
    output = run(*command, "--index-type", "IVF4096,Flat", "--transform", "none").output
    assert "IVF4096,Flat cannot be built from 300 vectors" in output


def test_queries_are_no_documents(tmp_path: Path) -> None:
    every = sentences(120, 2)
    path = tmp_path / "lines.txt"
    path.write_text("\n".join([*every[:100], every[3], *every[100:119]]))
    found = Sentences([path], documents=100, queries=20)
    assert found.texts == every[:100] and found.query_positions == list(range(101, 120))
    path.write_text("\n".join([*every[:100], *every[:20]]))
    with pytest.raises(Misuse, match="also one of the documents"):
        _ = Sentences([path], documents=100, queries=20).query_positions


@pytest.mark.heavy
@pytest.mark.parametrize("spec", ["whiten", "flow"])
def test_a_fit_is_that_of_a_collection(tmp_path: Path, tiny_bert: str, spec: str) -> None:
    texts = sentences(200, 4)
    write_jsonl(tmp_path / "texts.jsonl", [{"id": str(n), "text": text} for n, text in enumerate(texts)])
    encoder = Encoder(tiny_bert, device="cpu")
    raw = encoder.encode(texts).astype(np.float16)
    fitted = fit_as_published(spec, texts, raw, encoder.encode)
    corpus = Corpus([tmp_path / "texts.jsonl"])
    with Retriever.build(corpus, tmp_path / "c", encoder=tiny_bert, transform=spec, device="cpu") as built:
        generation = built.collection.generation()
        assert generation is not None
        theirs = load_transform(generation)
    assert fitted.transform.fitted_on == theirs.fitted_on > len(texts)
    assert fitted.transform.describe()["spec"] == theirs.describe()["spec"]
    rows = raw.astype(np.float32)
    np.testing.assert_allclose(fitted.transform.apply(rows), theirs.apply(rows), atol=2e-2)


def made_up(values: dict[tuple[str, str], tuple[float, float, float]]) -> list[Row]:
    """Rows from (transform, index type) to bytes, recall by codes alone and recall of 10 times as many."""
    metrics = ("bytes_per_vector", "recall@10", "recall@10_refine10")
    return [
        Row("quantization", "sentences-9", name, "bert", "mean", space, "documents", 0, metric, value)
        for (space, name), own in values.items()
        for metric, value in zip(metrics, own, strict=True)
    ]


def test_the_fewest_bytes_are_of_what_was_measured() -> None:
    rows = made_up(
        {
            ("none", "SQ4"): (400, 70, 94.9),
            ("none", "SQ8"): (800, 96, 100),
            ("none", "RaBitQ"): (100, 40, 90),
            ("flow", "SQ4"): (400, 95, 100),
            ("flow", "SQ8"): (800, 99, 100),
            ("flow", "RaBitQ"): (100, 60, 99),
        }
    )
    found = least_bytes(rows, (10,))
    least = {(one.run.transform, one.kind, one.metric): (one.bytes, one.index_type) for one in found}
    assert least["none", "any", "recall@10"] == (800, "SQ8")
    assert least["flow", "any", "recall@10"] == (400, "SQ4")
    assert least["flow", "any", "recall@10_refine10"] == (100, "RaBitQ")
    assert least["flow", "SQ", "recall@10_refine10"] == (400, "SQ4")
    assert least["none", "RaBitQ", "recall@10_refine10"] == (None, None)
    assert ("none", "PQ", "recall@10") not in least
    table = least_table(found, "fewest bytes")
    assert [list(column.cells) for column in table.columns[2:]] == [
        ["800 (SQ8)", "800 (SQ8)", "–", "–", "800 (SQ8)", "800 (SQ8)"],
        ["400 (SQ4)", "100 (RaBitQ)", "–", "100 (RaBitQ)", "400 (SQ4)", "400 (SQ4)"],
    ]


@pytest.mark.heavy
def test_an_exact_index_gives_the_figure_of_the_retrieval_benchmark(run: Run, tmp_path: Path, tiny_bert: str) -> None:
    data = write_beir(tmp_path / "data" / "stories")
    shared = ["--data", data.parent, "--encoder", tiny_bert, "--cache", tmp_path / "cache", "--device", "cpu"]
    shared += ["--transform", "none", "--transform", "whiten"]
    invoker(retriever)("bench", "retrieval", *shared, "--out", tmp_path / "retrieval")
    command = ["quantization", *shared, "--index-type", "PQ4x4fs", "--out", tmp_path / "out"]
    result = run(*command)
    rows = rows_in(tmp_path / "out")
    for transform in ("none", "whiten"):
        (expected,) = pick(rows_in(tmp_path / "retrieval"), transform=transform, metric="ndcg@10")
        own = {row["metric"]: row["value"] for row in rows if row["transform"] == transform and row["split"] == "Flat"}
        assert own["ndcg@10"] == own["ndcg@10_refine10"] == pytest.approx(expected)
        codes_alone, whole = (
            pick(rows, transform=transform, split="PQ4x4fs", metric=metric)[0]
            for metric in ("ndcg@10", "ndcg@10_refine40")
        )
        assert codes_alone != expected and whole == pytest.approx(expected)  # 400 candidates are all 60 documents
    assert "recall is left out" in result.stderr and "nDCG@10 × 100 of stories" in result.stdout
    (picture,) = (tmp_path / "out").glob("quantization-tasks-*.png")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "0 runs measured, 4 taken" in run(*command).stderr


@pytest.mark.shared
@pytest.mark.timeout(600)
def test_wikipedia_sentences_and_minilm(run: Run, shared_data: Path, tmp_path: Path) -> None:
    """PQ of half a byte for 4 dimensions keeps little alone and nearly all when re-scored; SQ8 keeps all."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "wiki").symlink_to(shared_data / "wiki")
    command = ["quantization", "--data", tmp_path / "data", "--documents", 500, "--cache", tmp_path / "cache"]
    types = ["--index-type", "SQ8", "--index-type", "PQ96x4fs"]
    result = run(*command, *types, "--transform", "none", "--json")
    rows = json.loads(result.stdout)
    assert pick(rows, split="SQ8", metric="recall@10")[0] > 98
    alone, again = (pick(rows, split="PQ96x4fs", metric=m)[0] for m in ("recall@10", "recall@10_refine10"))
    assert alone < 90 < again
    assert "nDCG@10 is left out" in result.stderr
