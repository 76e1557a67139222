"""`retriever bench qa` from files to tables, rows and plot, against a computation of its own."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from beir_made_up import write_beir
from figures import pick, rows_in
from hypothesis import given
from hypothesis import strategies as st
from questions import cells_of, write_qnli, write_wikiqa
from samples import Run
from similarity import sentences
from sklearn.metrics import average_precision_score, roc_auc_score

from retriever.corpus.passages import words
from retriever.encoder.encoder import Encoder
from retriever.evaluate.data.qa_sets import QaPair, read_qa
from retriever.evaluate.measures.similarity import BASELINES, bm25
from retriever.evaluate.models.encoders import VectorCache
from retriever.evaluate.qa import judge, lexical_rows, rank_candidates
from retriever.evaluate.rankings import comparisons
from retriever.evaluate.results import Row
from retriever.transforms import fit
from retriever.transforms.agreement import Bm25

PNG = b"\x89PNG\r\n"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_qnli(tmp_path / "data")
    return write_wikiqa(tmp_path / "data").parents[1]


@pytest.fixture
def where(tmp_path: Path, tiny_bert: str) -> list[object]:
    return ["--encoder", tiny_bert, "--cache", tmp_path / "cache", "--device", "cpu"]


def cosines(questions: Sequence[str], texts: Sequence[str], encoder: str, spec: str, on: Sequence[str]) -> np.ndarray:
    model = Encoder(encoder, device="cpu")
    transform = fit(spec, model.encode(list(dict.fromkeys(on))))
    a, b = (transform.apply(model.encode(list(side))).astype(np.float64) for side in (questions, texts))
    return np.asarray((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1))


def reciprocal_rank(labels: Sequence[bool]) -> float:
    return 1 / (1 + list(labels).index(True))


@pytest.mark.heavy
def test_both_sets_as_scikit_learn_has_them(
    run: Run, data: Path, where: list[object], tmp_path: Path, tiny_bert: str
) -> None:
    out, label = tmp_path / "out", Path(tiny_bert).name
    specs = ("none", "whiten:dimension=8")
    result = run("bench", "qa", "--data", data, *where, "--out", out, "--transform", specs[0], "--transform", specs[1])
    rows = rows_in(out)
    pairs, candidates = cells_of(data / "qnli" / "dev.tsv"), cells_of(data / "wikiqa" / "test-filtered.tsv")
    for spec in specs:
        own = {"encoder": label, "transform": spec, "fit": "target", "seed": 0, "bench": "qa"}
        questions, texts = [row[1] for row in pairs], [row[2] for row in pairs]
        scores = cosines(questions, texts, tiny_bert, spec, [t for row in pairs for t in row[1:3]])
        area = 100 * roc_auc_score([row[3] == "entailment" for row in pairs], scores)
        assert pick(rows, dataset="qnli", split="dev", metric="auc", **own) == [pytest.approx(area, abs=1e-3)]

        on = [text for row in candidates for text in (row[1], row[5])]
        scores = cosines([row[1] for row in candidates], [row[5] for row in candidates], tiny_bert, spec, on)
        precisions, ranks = [], []
        for question in dict.fromkeys(row[0] for row in candidates):
            numbers = [n for n, row in enumerate(candidates) if row[0] == question]
            labels = [candidates[n][6] == "1" for n in numbers]
            if not all(labels):
                precisions.append(average_precision_score(labels, scores[numbers]))
                ranks.append(reciprocal_rank([labels[n] for n in np.argsort(-scores[numbers])]))
        assert len(precisions) == 19
        for metric, each in (("map", precisions), ("mrr", ranks)):
            found = pick(rows, dataset="wikiqa", split="test", metric=metric, **own)
            assert found == [pytest.approx(100 * np.mean(each), abs=1e-3)]
    for metric in ("auc", "map", "mrr"):
        (raw,) = pick(rows, encoder=label, transform="none", metric=metric)
        (after,) = pick(rows, encoder=label, transform=specs[1], metric=metric)
        (gain,) = pick(rows, encoder=label, transform=specs[1], metric=f"{metric}_gain")
        (low,) = pick(rows, encoder=label, transform=specs[1], metric=f"{metric}_gain_low")
        (high,) = pick(rows, encoder=label, transform=specs[1], metric=f"{metric}_gain_high")
        assert gain == pytest.approx(after - raw, abs=1e-6) and low <= gain <= high
        assert 0 < pick(rows, encoder=label, transform=specs[1], metric=f"{metric}_p")[0] <= 1
    for shown in ("AUC", "MAP", "MRR", "gain over raw", "lexical", "containment", "76.17", "whiten:dimension=8"):
        assert shown in result.output, shown
    assert "WikiQA test: 19 of 20 questions count" in result.stderr
    assert (out / "qa.png").read_bytes().startswith(PNG)


@pytest.mark.heavy
def test_a_second_run_computes_only_what_is_new(
    run: Run, data: Path, where: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["bench", "qa", "--data", data, *where, "--out", tmp_path / "out", "--transform", "none"]
    assert "2 runs measured" in run(*command).output
    first = rows_in(tmp_path / "out")
    monkeypatch.setattr(VectorCache, "vectors", None)
    assert "0 runs measured, 2 taken" in run(*command).output
    assert rows_in(tmp_path / "out") == first
    monkeypatch.undo()
    assert "2 runs measured, 2 taken" in run(*command, "--transform", "center").output
    write_qnli(data, 61)
    assert "1 run measured, 1 taken" in run(*command).output


def test_fitted_on_what_was_asked(run: Run, data: Path, where: list[object], tmp_path: Path, tiny_bert: str) -> None:
    (data / "nli").mkdir()
    nli = sentences(80, 99)
    with gzip.open(data / "nli" / "nli_sentences.txt.gz", "wt", encoding="utf-8") as file:
        file.writelines(f"{sentence}\n" for sentence in nli)
    fits = [arg for fit in ("target", "target-short", "nli") for arg in ("--fit", fit)]
    command = ["bench", "qa", "--data", data, *where, "--transform", "center"]
    rows = json.loads(run(*command, *fits, "--json").stdout)
    pairs = cells_of(data / "qnli" / "dev.tsv")
    scores = cosines([row[1] for row in pairs], [row[2] for row in pairs], tiny_bert, "center", nli)
    area = 100 * roc_auc_score([row[3] == "entailment" for row in pairs], scores)
    assert pick(rows, dataset="qnli", fit="nli", metric="auc", transform="center") == [pytest.approx(area, abs=1e-3)]
    found = {row["fit"]: row["value"] for row in rows if row["metric"] == "auc" and row["transform"] == "center"}
    assert set(found) == {"target", "target-short", "nli"} and len(set(found.values())) == 3
    assert "'target-train' is not one of" in run(*command, "--fit", "target-train", code=2).output


@pytest.mark.heavy
def test_auto_is_tried_unless_told_otherwise(run: Run, where: list[object], tmp_path: Path) -> None:
    write_qnli(tmp_path / "data", 150)
    output = run("bench", "qa", "--data", tmp_path / "data", *where, "--seeds", 2, "--out", tmp_path / "out").output
    rows = rows_in(tmp_path / "out")
    assert {"none", "center", "whiten", "flow", "bert-flow", "auto"} <= {row["transform"] for row in rows}
    assert [row["seed"] for row in rows if (row["transform"], row["metric"]) == ("auto", "auc")] == [0, 1]
    assert "chose: QNLI" in output
    assert "test-filtered.tsv does not exist: WikiQA is left out" in output
    found = [Row(**row) for row in rows]
    own = {(one.configuration.encoder, one.configuration.transform): one for one in comparisons(found)}
    one = own["tiny", "flow"]
    values = pick(rows, encoder="tiny", transform="flow", metric="auc")
    assert one.mean == pytest.approx(np.mean(values) / 100)
    assert one.p == max(pick(rows, encoder="tiny", transform="flow", metric="auc_p"))
    assert one.base == own["tiny", "none"].configuration and own["tiny", "none"].p is None
    assert own["lexical", "bm25"].base is None


@pytest.mark.heavy
def test_wikiqa_over_all_its_sentences_is_a_search(run: Run, data: Path, where: list[object], tmp_path: Path) -> None:
    command = ["bench", "qa", "--data", data, *where, "--transform", "center"]
    assert "wikiqa_beir does not exist" in run(*command).output
    write_beir(data / "wikiqa_beir")
    result = run(*command, "--out", tmp_path / "out")
    rows = rows_in(tmp_path / "out")
    found = {row["encoder"] + row["transform"] for row in rows if row["dataset"] == "wikiqa_beir"}
    assert len(found) == 3 and "bm25" in found, "raw, the transform asked for, and words beside them"
    assert {row["dataset"] for row in rows} == {"qnli", "wikiqa", "wikiqa_beir"}
    assert "nDCG@10" in result.output and "wikiqa_beir" in (tmp_path / "out" / "report.html").read_text()
    only = json.loads(run(*command, "--dataset", "wikiqa_beir", "--transform", "hybrid", "--json").stdout)
    assert {row["dataset"] for row in only if "published" not in row["encoder"]} == {"wikiqa_beir"}


def pairs_of(labels: Sequence[Sequence[bool]]) -> list[QaPair]:
    return [
        QaPair(f"q{question}", "?", f"{question} {place}", answers)
        for question, own in enumerate(labels)
        for place, answers in enumerate(own)
    ]


def test_ties_stay_in_the_order_of_the_file() -> None:
    pairs = pairs_of([[False, True, False, True], [True, False]])
    found = rank_candidates(pairs, np.zeros(6))
    assert found["map"] == pytest.approx([(1 / 2 + 2 / 4) / 2, 1])
    assert found["mrr"] == pytest.approx([1 / 2, 1])


def test_scores_that_float32_cannot_tell_apart_are_told_apart() -> None:
    scores = np.array([0.5, 0.5 + 1e-12])
    assert rank_candidates(pairs_of([[False, True]]), scores)["mrr"] == [1]
    assert rank_candidates(pairs_of([[True, False]]), scores)["mrr"] == [0.5]


@given(st.lists(st.lists(st.booleans(), min_size=2, max_size=12), min_size=1, max_size=5), st.integers(0, 999))
def test_rankings_as_scikit_learn_has_them(labels: list[list[bool]], seed: int) -> None:
    labels = [own for own in labels if any(own) and not all(own)]
    if not labels:
        return
    pairs = pairs_of(labels)
    scores = np.random.default_rng(seed).permutation(len(pairs)) / len(pairs)
    found = rank_candidates(pairs, scores)
    start = 0
    for number, own in enumerate(labels):
        part = scores[start : start + len(own)]
        start += len(own)
        assert found["map"][number] == pytest.approx(average_precision_score(own, part))
        assert found["mrr"][number] == pytest.approx(reciprocal_rank([own[n] for n in np.argsort(-part)]))


def test_scores_that_are_no_numbers_give_no_figure() -> None:
    pairs = pairs_of([[True, False]])
    for dataset in ("qnli", "wikiqa"):
        assert np.isnan(list(judge(dataset, pairs, np.array([0.5, np.nan])).values())).all()


def test_words_alone() -> None:
    questions = ["Who ate the red apple?", "Who ate the red apple?", "!", "Where is it?"]
    texts = ["The red apple, the red one.", "Nobody knows.", "Nothing.", "Where it is: here."]
    assert BASELINES["jaccard"](questions, texts) == pytest.approx([3 / 6, 0, 0, 3 / 4])
    assert BASELINES["containment"](questions, texts) == pytest.approx([3 / 5, 0, 0, 1])
    many = [f"{question} {n}" for n in range(300) for question in questions]
    sides = [text for _ in range(300) for text in texts]
    index = Bm25(texts)
    expected = [index.scores([question])[0][texts.index(text)] for question, text in zip(many, sides, strict=True)]
    assert bm25(many, sides) == pytest.approx(expected)
    assert words("Who?") == ["who"]


@pytest.mark.shared
def test_words_alone_reach_their_known_figures(shared_data: Path) -> None:
    rows = [row._asdict() for found in read_qa(shared_data).sets for row in lexical_rows(found)]

    def value(dataset: str, baseline: str, metric: str) -> float:
        (found,) = pick(rows, dataset=dataset, transform=baseline, metric=metric)
        return found

    assert value("qnli", "jaccard", "auc") == pytest.approx(75.8, abs=0.05)
    assert value("qnli", "containment", "auc") == pytest.approx(80.4, abs=0.05)
    assert value("wikiqa", "jaccard", "map") == pytest.approx(56.7, abs=0.05)
    assert value("wikiqa", "jaccard", "mrr") == pytest.approx(57.2, abs=0.06)
