"""`retriever bench sts` from files to tables, rows, plot and MTEB's files, against a computation of its own."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from figures import pick, rows_in
from numpy.typing import NDArray
from samples import Run
from scipy.stats import spearmanr
from similarity import NAMES, sentences, write_set, write_sets

from retriever.encoder.encoder import Encoder
from retriever.evaluate import fitting
from retriever.evaluate.data.published import published_rows
from retriever.evaluate.models.encoders import VectorCache
from retriever.transforms import FAMILIES, Transform, fit, parse

PNG = b"\x89PNG\r\n"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_sets(tmp_path / "data" / "sts").parent


@pytest.fixture
def where(tmp_path: Path, tiny_bert: str) -> list[object]:
    return ["--encoder", tiny_bert, "--cache", tmp_path / "cache", "--device", "cpu"]


def expected(path: Path, encoder: str, spec: str) -> tuple[float, float]:
    """all and wmean by scipy, one text at a time."""
    rows = [line.split("\t") for line in path.read_text().removesuffix("\n").split("\n")[1:]]
    model = Encoder(encoder, device="cpu")
    texts = list(dict.fromkeys(text for row in rows for text in row[3:]))
    transform = fit(spec, model.encode(texts))

    def vector(text: str) -> NDArray[np.float64]:
        z = transform.apply(model.encode([text]))[0].astype(np.float64)
        return np.asarray(z / np.linalg.norm(z))

    scored = [row for row in rows if path.stem not in ("stsb", "sickr") or row[0] == "test"]
    cosines = np.array([vector(row[3]) @ vector(row[4]) for row in scored])
    gold = np.array([float(row[2]) for row in scored])
    whole = spearmanr(cosines, gold).statistic
    if path.stem in ("stsb", "sickr"):
        return 100 * whole, 100 * whole
    parts = {row[1]: [n for n, other in enumerate(scored) if other[1] == row[1]] for row in scored}
    weighted = sum(len(own) * spearmanr(cosines[own], gold[own]).statistic for own in parts.values()) / len(scored)
    return 100 * whole, 100 * weighted


@pytest.mark.heavy
def test_seven_sets_as_scipy_has_them(
    run: Run, data: Path, where: list[object], tmp_path: Path, tiny_bert: str
) -> None:
    out = tmp_path / "out"
    specs = ("none", "whiten:dimension=8")
    result = run("bench", "sts", "--data", data, *where, "--out", out, "--transform", specs[0], "--transform", specs[1])
    rows = rows_in(out)
    label = Path(tiny_bert).name
    for name in ("stsb", "sts12", "sts16"):
        for spec in specs:
            found = [pick(rows, dataset=name, transform=spec, metric=m, encoder=label, seed=0) for m in METRICS]
            whole, weighted = expected(data / "sts" / f"{name}.tsv", tiny_bert, spec)
            assert found == [[pytest.approx(whole, abs=1e-3)], [pytest.approx(weighted, abs=1e-3)]], (name, spec)
    for spec in specs:
        for metric in METRICS:
            each = [pick(rows, dataset=name, transform=spec, metric=metric, encoder=label)[0] for name in NAMES]
            average = pick(rows, dataset="average", transform=spec, metric=metric, encoder=label)
            assert average == [pytest.approx(np.mean(each))]
    assert {row["pooling"] for row in rows if row["encoder"] == label} == {"mean"}
    assert {row["fit"] for row in rows if row["encoder"] == label} == {"target"}
    published = [row for row in rows if "(published)" in row["encoder"]]
    assert len(published) == len(published_rows("sts")) and {row["seed"] for row in published} == {None}
    for shown in (
        "STS-B",
        "SICK-R",
        "STS16",
        "avg of 7",
        "wmean",
        "bert-base (published)",
        "69.57",
        "whiten:dimension=8",
    ):
        assert shown in result.output, shown
    assert (out / "sts.png").read_bytes().startswith(PNG)


METRICS = ("spearman_all", "spearman_wmean")


@pytest.mark.heavy
def test_a_second_run_computes_only_what_is_new(
    run: Run, data: Path, where: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["bench", "sts", "--data", data, *where, "--out", tmp_path / "out", "--dataset", "stsb"]
    assert "1 run measured" in run(*command, "--transform", "none").output
    first = rows_in(tmp_path / "out")
    monkeypatch.setattr(VectorCache, "vectors", None)
    again = run(*command, "--transform", "none").output
    assert "0 runs measured, 1 taken" in again
    assert rows_in(tmp_path / "out") == first
    monkeypatch.undo()
    more = run(*command, "--transform", "none", "--transform", "center").output
    assert "1 run measured, 1 taken" in more
    write_set(data / "sts", "stsb", pairs=33)
    assert "2 runs measured, 0 taken" in run(*command, "--transform", "none", "--transform", "center").output


def test_interrupted_it_goes_on(
    run: Run, data: Path, where: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["bench", "sts", "--data", data, *where, "--out", tmp_path / "out", "--dataset", "sts12"]
    specs = ["--transform", "none", "--transform", "center", "--transform", "whiten"]
    whole = fitting.Fits.fit

    def stopped(self: fitting.Fits, spec: str) -> Transform:
        if spec == "whiten":
            raise KeyboardInterrupt
        return whole(self, spec)

    monkeypatch.setattr(fitting.Fits, "fit", stopped)
    assert "Run the same command again to continue" in run(*command, *specs, code=130).output
    assert {row["transform"] for row in rows_in(tmp_path / "out") if row["seed"] == 0} == {"none", "center"}
    monkeypatch.undo()
    assert "1 run measured, 2 taken" in run(*command, *specs).output


def test_other_transform_code_is_measured_again(
    run: Run, data: Path, where: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["bench", "sts", "--data", data, *where, "--out", tmp_path, "--dataset", "stsb", "--transform", "center"]
    run(*command)
    monkeypatch.setattr("retriever.evaluate.runs.code_digest", lambda *packages: "another")
    assert "1 run measured, 0 taken" in run(*command).output


def test_seeds_only_where_something_is_random(run: Run, where: list[object], tmp_path: Path) -> None:
    write_set(tmp_path / "data", "stsb", pairs=160)
    flow = "bert-flow:steps=3"
    command = ["bench", "sts", "--data", tmp_path / "data", *where, "--out", tmp_path / "out", "--seeds", 3]
    output = run(*command, "--transform", "center", "--transform", flow).output
    rows = rows_in(tmp_path / "out")
    seeds = [row["seed"] for row in rows if row["transform"] == flow and row["metric"] == "spearman_all"]
    assert seeds == [0, 1, 2]
    assert [row["seed"] for row in rows if row["transform"] == "center" and row["metric"] == "spearman_all"] == [0]
    values = pick(rows, transform=flow, metric="spearman_all")
    assert len(set(values)) == 3
    assert f"{np.mean(values):.1f} ±{np.std(values, ddof=1):.1f}" in output
    task = json.loads(next((tmp_path / "out" / "mteb").glob("*flow*/*/STSBenchmark.json")).read_text())
    scores = task["scores"]["test"][0]
    assert scores["main_score"] == pytest.approx(np.mean(values) / 100)
    assert [one["main_score"] for one in scores["scores_per_experiment"]] == pytest.approx([v / 100 for v in values])


def test_fitted_on_what_was_asked(run: Run, data: Path, where: list[object], tmp_path: Path, tiny_bert: str) -> None:
    (data / "nli").mkdir()
    nli = sentences(80, 99)
    with gzip.open(data / "nli" / "nli_sentences.txt.gz", "wt", encoding="utf-8") as file:
        file.writelines(f"{sentence}\n" for sentence in nli)
    fits = [arg for fit in ("target", "target-train", "nli") for arg in ("--fit", fit)]
    out = tmp_path / "out"
    result = run("bench", "sts", "--data", data, *where, "--out", out, *fits, "--transform", "center")
    assert (
        "no train split, so they are not measured with --fit target-train: STS12, STS13, STS14, STS15, STS16"
        in result.output
    )
    rows = [row for row in rows_in(out) if row["metric"] == "spearman_all" and row["seed"] == 0]
    assert {row["dataset"] for row in rows if row["fit"] == "target-train"} == {"stsb", "sickr"}
    assert {row["dataset"] for row in rows if row["fit"] == "nli"} == {*NAMES, "average"}
    lines = [line.split("\t") for line in (data / "sts" / "stsb.tsv").read_text().split("\n")[1:-1]]
    model = Encoder(tiny_bert, device="cpu")
    texts = {"target-train": [t for line in lines if line[0] == "train" for t in line[3:]], "nli": nli}
    tested = [line for line in lines if line[0] == "test"]
    for name, fitted_on in texts.items():
        mean = model.encode(fitted_on).mean(axis=0)
        a, b = (model.encode([line[n] for line in tested]) - mean for n in (3, 4))
        cosines = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
        value = 100 * spearmanr(cosines, [float(line[2]) for line in tested]).statistic
        assert pick(rows, dataset="stsb", fit=name) == [pytest.approx(value, abs=1e-3)]


def test_json_is_rows_and_nothing_else(run: Run, data: Path, where: list[object]) -> None:
    result = run("bench", "sts", "--data", data, *where, "--dataset", "sts13", "--transform", "none", "--json")
    rows = json.loads(result.stdout)
    assert pick(rows, dataset="sts13", transform="none", seed=0, metric="spearman_wmean")
    assert "Use --out DIR to keep the rows" in result.stderr


@pytest.mark.heavy
def test_mteb_files_as_mteb_reads_them(run: Run, data: Path, where: list[object], tmp_path: Path) -> None:
    run("bench", "sts", "--data", data, *where, "--out", tmp_path / "out", "--transform", "center")
    rows = rows_in(tmp_path / "out")
    files = {path.name: path for path in (tmp_path / "out" / "mteb").glob("*/*/*.json")}
    tasks = ["STSBenchmark", "SICK-R", "STS12", "STS13", "STS14", "STS15", "STS16"]
    assert set(files) == {"model_meta.json", *(f"{task}.json" for task in tasks)}
    for name, task in zip(NAMES, tasks, strict=True):
        found = json.loads(files[f"{task}.json"].read_text())
        assert {"dataset_revision", "task_name", "mteb_version", "scores", "evaluation_time"} <= found.keys()
        assert found["task_name"] == task
        (scores,) = found["scores"]["test"]
        assert (scores["hf_subset"], scores["languages"]) == ("default", ["eng-Latn"])
        (value,) = pick(rows, dataset=name, metric="spearman_all", transform="center")
        assert scores["main_score"] == scores["cosine_spearman"] == pytest.approx(value / 100)
        assert -1 <= scores["cosine_pearson"] <= 1
    results = pytest.importorskip("mteb.results")
    for task in tasks:
        assert results.TaskResult.from_disk(files[f"{task}.json"]).task_name == task


@pytest.mark.heavy
def test_a_missing_set_changes_the_average_and_is_said(
    run: Run, data: Path, where: list[object], tmp_path: Path
) -> None:
    (data / "sts" / "sts15.tsv").unlink()
    result = run("bench", "sts", "--data", data, *where, "--out", tmp_path / "out", "--transform", "none")
    assert "sts15.tsv does not exist: STS15 is left out" in result.stderr
    assert "avg of 6" in result.output and "avg of 7" not in result.output
    assert not [row for row in rows_in(tmp_path / "out") if row["dataset"] == "average" and row["seed"] == 0]


def test_a_fit_that_falls_back_or_fails_says_so(run: Run, data: Path, where: list[object]) -> None:
    command = ["bench", "sts", "--data", data, *where, "--dataset", "sts12", "--dataset", "sts13"]
    output = run(
        *command, "--transform", "none", "--transform", "bert-flow", "--transform", "whiten:dimension=99"
    ).stderr
    (fallback,) = [line for line in output.splitlines() if "instead" in line]
    assert "bert-flow (target of sts12, sts13): " in fallback
    assert "keeps 99 dimensions, but the vectors have 32; left out" in output
    alone = run(*command, "--transform", "whiten:dimension=99", code=1).output
    assert "nothing could be measured" in alone and "99 dimensions" in alone
    assert "unknown transform 'whitening'" in run(*command, "--transform", "whitening", code=2).output


def test_auto_says_what_it_chose(run: Run, where: list[object], tmp_path: Path) -> None:
    write_set(tmp_path / "data", "stsb", pairs=120)
    command = ["bench", "sts", "--data", tmp_path / "data", *where, "--out", tmp_path / "out"]
    output = run(*command, "--transform", "auto", "--transform", "none").output
    provenance = json.loads((tmp_path / "out" / "provenance.json").read_text())
    (chosen,) = [entry["chosen"] for key, entry in provenance.items() if " auto " in key]
    assert parse(chosen).family in FAMILIES
    assert f"chose: STS-B {chosen}" in output
    rows = rows_in(tmp_path / "out")
    assert pick(rows, transform="auto", metric="spearman_all")
    if chosen == "none":
        assert pick(rows, transform="auto", metric="spearman_all") == pick(
            rows, transform="none", seed=0, metric=METRICS[0]
        )


@pytest.mark.heavy
def test_poolings_and_encoders_are_rows_of_their_own(
    run: Run, data: Path, where: list[object], other_bert: str
) -> None:
    poolings = [arg for pooling in ("cls", "mean", "word") for arg in ("--pooling", pooling)]
    command = ["bench", "sts", "--data", data, *where, "--encoder", other_bert, *poolings, "--dataset", "sts12"]
    rows = json.loads(run(*command, "--transform", "none", "--json").stdout)
    found = {(row["encoder"], row["pooling"]): row["value"] for row in rows if row["seed"] == 0}
    assert len(found) == 6 and len(set(found.values())) == 6


def test_every_default_transform_is_one_that_is_known() -> None:
    assert {"none", "center", "whiten", "whiten:dimension=256"} <= set(fitting.DEFAULT_TRANSFORMS)
    for spec in fitting.DEFAULT_TRANSFORMS:
        assert parse(spec).family in FAMILIES
    assert fitting.seeds_of("whiten", 5) == [0] and fitting.seeds_of("flow", 3) == [0, 1, 2] == fitting.seeds_of(
        "auto", 3
    )


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_minilm_reproduces_its_known_figure(shared_data: Path, run: Run, tmp_path: Path) -> None:
    command = ["bench", "sts", "--data", shared_data, "--dataset", "stsb", "--transform", "none", "--json"]
    rows = json.loads(run(*command, "--cache", tmp_path).stdout)
    assert pick(rows, encoder="all-MiniLM-L6-v2", metric="spearman_all") == [pytest.approx(82.0, abs=0.1)]
