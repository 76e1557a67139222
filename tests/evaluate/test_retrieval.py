"""`retriever bench retrieval` from BEIR folders to tables, rows, run files and MTEB's files."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from beir_made_up import HEADER, write_beir
from figures import pick, rows_in
from numpy.typing import NDArray
from samples import Run
from sklearn.metrics import ndcg_score

from retriever import Retriever
from retriever.corpus.passages import encoded_text
from retriever.encoder.encoder import Encoder
from retriever.evaluate import systems
from retriever.ingest.pipeline import Ingestion

METRICS = ("ndcg@10", "mrr@10", "map@100", "recall@10", "recall@100")
INTERVAL = ("ndcg@10_low", "ndcg@10_high")
GAIN = ("ndcg@10_gain", "ndcg@10_gain_low", "ndcg@10_gain_high", "ndcg@10_p")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_beir(tmp_path / "data" / "stories")


@pytest.fixture
def where(tmp_path: Path, tiny_bert: str) -> list[object]:
    return ["--encoder", tiny_bert, "--cache", tmp_path / "cache", "--device", "cpu"]


def expected_ndcg(data: Path, encoder: str) -> float:
    """nDCG@10 × 100 of the raw vectors by numpy and scikit-learn, one text at a time."""
    corpus = [json.loads(line) for line in (data / "corpus.jsonl").read_text().split("\n")[:-1]]
    queries = {q["_id"]: q["text"] for q in map(json.loads, (data / "queries.jsonl").read_text().split("\n")[:-1])}
    model = Encoder(encoder, device="cpu")

    def vectors(texts: list[str]) -> NDArray[np.float64]:
        rows = np.concatenate([model.encode([text]) for text in texts]).astype(np.float16).astype(np.float64)
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))

    documents = vectors([encoded_text(document["title"], document["text"]) for document in corpus])
    values = []
    judged = [line.split("\t") for line in (data / "qrels" / "test.tsv").read_text().split("\n")[1:-1]]
    for query in dict.fromkeys(line[0] for line in judged):
        grades = {line[1]: int(line[2]) for line in judged if line[0] == query}
        gold = [grades.get(document["_id"], 0) for document in corpus]
        values.append(ndcg_score([gold], [documents @ vectors([queries[query]])[0]], k=10))
    return float(100 * np.mean(values))


def test_figures_runs_and_files(run: Run, data: Path, where: list[object], tmp_path: Path, tiny_bert: str) -> None:
    out = tmp_path / "out"
    command = ["bench", "retrieval", "--data", data.parent, *where, "--out", out]
    result = run(*command, "--transform", "whiten", "--transform", "center")
    rows = rows_in(out)
    label = Path(tiny_bert).name
    place = {"bench": "retrieval", "dataset": "stories", "split": "test", "encoder": label, "pooling": "mean"}
    assert all(row | place | {"fit": "documents", "seed": 0} == row for row in rows)
    for transform in ("none", "whiten", "center"):
        named = [row["metric"] for row in rows if row["transform"] == transform]
        assert named == [*METRICS, *INTERVAL, *(GAIN if transform != "none" else ())]
    (raw,) = pick(rows, transform="none", metric="ndcg@10")
    assert raw == pytest.approx(expected_ndcg(data, tiny_bert), abs=0.05)
    (white,), (gain,) = (
        pick(rows, transform="whiten", metric="ndcg@10"),
        pick(rows, transform="whiten", metric="ndcg@10_gain"),
    )
    assert white != raw and gain == pytest.approx(white - raw)
    for shown in ("stories, test: 8 queries, 60 documents", f"{raw:.1f}", f"{gain:+.1f}", "recall@100", "whiten"):
        assert shown in result.stdout, shown
    assert "queries without judgements in test.tsv: 4 of 12" in result.stderr

    path = out / "runs" / "stories" / f"{label}__mean__whiten__test.trec"
    lines = [line.split(" ") for line in path.read_text().split("\n")[:-1]]
    assert {len(line) for line in lines} == {6} and len(lines) == 8 * 60
    provenance = json.loads((out / "provenance.json").read_text())[
        f"retrieval | stories | test | {label} | mean | whiten | documents | 0"
    ]
    assert provenance["run_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert provenance["encoder_weights"] == Encoder(tiny_bert).identity.weights and provenance["seed"] == 0
    assert len(provenance["transform_fingerprint"]) == 64 and "flow-retriever" in provenance["made_by"]
    assert set(provenance["inputs"]) == {"corpus", "queries", "judgements", "encoder", "code"}

    pytrec_eval = pytest.importorskip("pytrec_eval")
    with path.open() as file:
        ranked = pytrec_eval.parse_run(file)
    judged = [line.split("\t") for line in (data / "qrels" / "test.tsv").read_text().split("\n")[1:-1]]
    qrels: dict[str, dict[str, int]] = {}
    for query, document, grade in judged:
        qrels.setdefault(query, {})[document] = int(grade)
    found = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut_10", "map_cut_100"}).evaluate(ranked)
    assert 100 * np.mean([each["ndcg_cut_10"] for each in found.values()]) == pytest.approx(white)
    assert 100 * np.mean([each["map_cut_100"] for each in found.values()]) == pytest.approx(
        pick(rows, transform="whiten", metric="map@100")[0]
    )


@pytest.mark.heavy
def test_an_unchanged_run_is_read_back(
    run: Run, data: Path, where: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    command = ["bench", "retrieval", "--data", data, *where, "--out", out, "--transform", "center"]
    first = run(*command)
    assert "2 runs measured, 0 taken" in first.stderr
    rows = rows_in(out)
    with monkeypatch.context() as patch:
        patch.setattr(Retriever, "build", None)
        again = run(*command)
        assert "0 runs measured, 2 taken" in again.stderr
        assert again.stdout == first.stdout and rows_in(out) == rows
    embedded: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(Ingestion, "_report_progress", lambda self: embedded.append(self.report.texts_embedded))
        assert "1 run measured, 2 taken" in run(*command, "--transform", "standardize").stderr
    assert embedded and not any(embedded)
    (damaged,) = (out / "runs").rglob("*center*.trec")
    damaged.write_text(damaged.read_text()[:-30])
    assert "1 run measured, 1 taken" in run(*command).stderr
    assert pick(rows_in(out), transform="center") == pick(rows, transform="center")
    with monkeypatch.context() as patch:
        patch.setattr("retriever.evaluate.retrieval.code_digest", lambda: "another")
        assert "2 runs measured, 0 taken" in run(*command).stderr
    (data / "qrels" / "test.tsv").write_text(f"{HEADER}q1\td1\t1\nq2\td5\t1\n")
    assert "2 runs measured, 0 taken" in run(*command).stderr
    assert "2 queries" in run(*command).stdout


def test_interrupted_it_goes_on(
    run: Run, data: Path, where: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["bench", "retrieval", "--data", data, *where, "--out", tmp_path / "out"]
    specs = ["--transform", "center", "--transform", "whiten"]
    whole = Retriever.rebuild

    def stopped(self: Retriever, *, transform: str) -> None:
        if transform == "whiten":
            raise KeyboardInterrupt
        whole(self, transform=transform)

    with monkeypatch.context() as patch:
        patch.setattr(Retriever, "rebuild", stopped)
        run(*command, *specs, code=130)
    assert {row["transform"] for row in rows_in(tmp_path / "out")} == {"none", "center"}
    assert "1 run measured, 2 taken" in run(*command, *specs).stderr


def test_a_query_is_no_answer_to_itself(run: Run, where: list[object], tmp_path: Path) -> None:
    corpus = [{"_id": str(n), "text": text} for n, text in enumerate(("Cats purr.", "Cats purr!", "Dogs bark."))]
    queries = [{"_id": "0", "text": "Cats purr."}, {"_id": "2", "text": "Cats purr."}]
    qrels = f"{HEADER}0\t1\t1\n2\t2\t1\n"
    data = write_beir(tmp_path / "pets", corpus=corpus, queries=queries, qrels={"test": qrels})
    run(
        "bench",
        "retrieval",
        "--data",
        data,
        *where,
        "--out",
        tmp_path / "out",
        "--transform",
        "none",
        "--pooling",
        "first-last",
    )
    (path,) = (tmp_path / "out" / "runs").rglob("*.trec")
    ranked = [line.split()[:3:2] for line in path.read_text().splitlines()]
    assert [document for query, document in ranked if query == "0"] == ["1", "2"]
    assert sorted(document for query, document in ranked if query == "2") == ["0", "1", "2"]


def test_ids_with_white_space_have_figures_but_no_run_file(run: Run, where: list[object], tmp_path: Path) -> None:
    corpus = [{"_id": "my cat", "text": "Cats purr."}, {"_id": "dog", "text": "Dogs bark."}]
    queries = [{"_id": "q", "text": "What purrs?"}]
    data = write_beir(tmp_path / "pets", corpus=corpus, queries=queries, qrels={"test": f"{HEADER}q\tmy cat\t1\n"})
    out = tmp_path / "out"
    command = ["bench", "retrieval", "--data", data, *where, "--out", out, "--transform", "none"]
    for _ in range(2):
        result = run(*command)
        assert "TREC's format cannot hold ids with white space, such as 'my cat'" in result.stderr
        assert "1 run measured, 0 taken" in result.stderr
        assert pick(rows_in(out), metric="recall@10") == [100]
    assert not (out / "runs").exists()


@pytest.mark.heavy
def test_several_sets_encoders_and_poolings(
    run: Run, data: Path, where: list[object], tmp_path: Path, other_bert: str
) -> None:
    shutil.copytree(data, data.with_name("tales"))
    poolings = ["--pooling", "mean", "--pooling", "auto"]
    command = ["bench", "retrieval", "--data", data.parent, *where, "--encoder", other_bert, *poolings]
    result = run(*command, "--transform", "auto", "--out", tmp_path / "out")
    rows = rows_in(tmp_path / "out")
    assert len(pick(rows, metric="ndcg@10")) == 2 * 2 * 2 * 2
    for shown in ("nDCG@10 × 100", "stories", "tales", "avg of 2", "--pooling auto (", "auto (", " chose: stories "):
        assert shown in result.stdout, shown
    provenance = json.loads((tmp_path / "out" / "provenance.json").read_text())
    chosen = [entry for key, entry in provenance.items() if "| auto | auto |" in key]
    assert len(chosen) == 4 and all(entry["chosen"] and entry["pooling"] != "auto" for entry in chosen)
    assert "16 taken" in run(*command, "--transform", "auto", "--out", tmp_path / "out").stderr


def test_json_and_nothing_kept_without_out(run: Run, data: Path, where: list[object], tmp_path: Path) -> None:
    command = ["bench", "retrieval", "--data", data, *where, "--transform", "center", "--split", "train", "--json"]
    rows = json.loads(run(*command).stdout)
    assert {row["split"] for row in rows} == {"train"} and pick(rows, transform="center", metric="ndcg@10_p") == [1]
    assert {path.name for path in tmp_path.iterdir()} == {"data", "cache"}


def test_a_transform_that_cannot_be_fitted_is_left_out(run: Run, data: Path, where: list[object]) -> None:
    command = ["bench", "retrieval", "--data", data, *where, "--transform", "whiten:dimension=99"]
    result = run(*command)
    assert "the encoder's vectors have only 32 dimensions" in result.stderr and "left out" in result.stderr
    assert "none" in result.stdout and "dimension=99" not in result.stdout
    assert "unknown transform 'flew'" in run(*command, "--transform", "flew", code=2).output


@pytest.mark.parametrize(("folder", "code", "told"), [("", 2, "is not a BEIR folder"), ("nowhere", 2, "no folder")])
def test_bad_data_is_told(run: Run, tmp_path: Path, folder: str, code: int, told: str) -> None:
    result = run("bench", "retrieval", "--data", tmp_path / folder, "--out", tmp_path / "out", code=code)
    assert told in result.stderr and "Traceback" not in result.output
    assert not (tmp_path / "out").exists()


@pytest.mark.heavy
def test_mteb_files_as_mteb_reads_them(run: Run, where: list[object], tmp_path: Path) -> None:
    command = ["bench", "retrieval", *where, "--out", tmp_path / "out", "--transform", "center"]
    run(*command, "--data", write_beir(tmp_path / "scifact"), "--data", write_beir(tmp_path / "my stories"))
    rows = rows_in(tmp_path / "out")
    for dataset, task in (("scifact", "SciFact"), ("my stories", "my stories")):
        (path,) = (tmp_path / "out" / "mteb").glob(f"*center*/*/{task.replace(' ', '__')}.json")
        found = json.loads(path.read_text())
        (scores,) = found["scores"]["test"]
        values = {metric: pick(rows, dataset=dataset, transform="center", metric=metric)[0] / 100 for metric in METRICS}
        assert found["task_name"] == task
        assert {metric: scores[metric.replace("@", "_at_")] for metric in METRICS} == pytest.approx(values)
        assert scores["main_score"] == scores["ndcg_at_10"]
        results = pytest.importorskip("mteb.results")
        loaded = results.TaskResult.from_disk(path)
        assert loaded.task_name == task and loaded.scores["test"][0]["ndcg_at_10"] == scores["ndcg_at_10"]


def test_words_and_both_together(run: Run, data: Path, where: list[object], other_bert: str, tmp_path: Path) -> None:
    """BM25 once a set whatever the encoders, and its own documents first where queries repeat their words."""
    specs = ["--transform", "bm25", "--transform", "hybrid"]
    command = ["bench", "retrieval", "--data", data, *where, "--encoder", other_bert, *specs]
    result = run(*command, "--out", tmp_path / "out")
    rows = [row for row in rows_in(tmp_path / "out") if row["metric"] == "ndcg@10"]
    lines = {(row["encoder"], row["pooling"], row["transform"]): row["value"] for row in rows}
    labels = [Path(str(where[1])).name, Path(other_bert).name]
    assert set(lines) == {("bm25", "", ""), *((label, "mean", t) for label in labels for t in ("none", "hybrid"))}
    assert lines["bm25", "", ""] > max(lines[label, "mean", "none"] for label in labels)
    assert not pick(rows_in(tmp_path / "out"), encoder="bm25", metric="ndcg@10_p")
    assert len(pick(rows_in(tmp_path / "out"), transform="hybrid", metric="ndcg@10_p")) == 2
    assert "bm25" in result.stdout and (tmp_path / "out" / "runs" / "stories" / "bm25__test.trec").is_file()
    assert "0 runs measured, 5 taken" in run(*command, "--out", tmp_path / "out").stderr


def test_what_is_compared_unless_told_otherwise() -> None:
    default = ["none", "center", "whiten", "bert-flow", "flow", "auto", "hybrid", "bm25"]
    assert systems.systems_of([]) == default
    assert systems.systems_of(["whiten:gamma=0.50", "bm25", "none", "bm25"]) == ["none", "whiten:gamma=0.5", "bm25"]


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_minilm_reproduces_its_known_figures(shared_data: Path, run: Run, tmp_path: Path) -> None:
    """nDCG@10 on Cranfield: dense 37.6, words 35.5, both 40.5 when this was written."""
    command = ["bench", "retrieval", "--data", shared_data / "cranfield", "--json", "--cache", tmp_path]
    rows = json.loads(run(*command, *(f"--transform={one}" for one in ("none", "bm25", "hybrid"))).stdout)
    (words,) = pick(rows, encoder="bm25", metric="ndcg@10")
    (dense,), (both,) = (pick(rows, transform=one, metric="ndcg@10") for one in ("none", "hybrid"))
    assert dense == pytest.approx(37.6, abs=0.1)
    assert words == pytest.approx(35.5, abs=0.1)
    assert both > max(dense, words) + 2


def test_another_writer_of_the_collection_is_waited_for(
    run: Run, data: Path, where: list[object], tmp_path: Path
) -> None:
    """Else its transform would answer, under the name of ours."""
    command = ["bench", "retrieval", "--data", data, *where, "--out", tmp_path / "out"]
    run(*command, "--transform", "none")
    (folder,) = (tmp_path / "cache" / "collections").iterdir()
    with Retriever.open(folder) as other, other.collection.writing():
        assert "is being written to" in run(*command, "--transform", "center", code=1).output
    run(*command, "--transform", "center")


def test_names_and_splits_do_not_get_in_each_others_way(
    run: Run, where: list[object], tmp_path: Path, tiny_bert: str
) -> None:
    data = write_beir(tmp_path / "us$and^$pounds")
    for split in ("test", "train"):
        run(
            "bench",
            "retrieval",
            "--data",
            data,
            *where,
            "--transform",
            "none",
            "--split",
            split,
            "--out",
            tmp_path / "o",
        )
    (path,) = [p for p in (tmp_path / "o" / "mteb").rglob("*.json") if p.name != "model_meta.json"]
    assert set(json.loads(path.read_text())["scores"]) == {"test", "train"}
    assert {row["split"] for row in rows_in(tmp_path / "o")} == {"test", "train"}
