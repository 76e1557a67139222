"""`retriever bench download`: the hub's rows as our files, read back by our readers; and no network at all."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from questions import cells_of
from samples import Run

from retriever.cli.bench import data as commands_data
from retriever.errors import RetrieverError
from retriever.evaluate.data.conversion import Record, Source
from retriever.evaluate.data.download import BY_HAND, SETS, Outcome, download
from retriever.evaluate.data.qa_sets import read_qa
from retriever.evaluate.data.sts_sets import read_nli, read_sets

datasets = pytest.importorskip("datasets")

Hub = dict[tuple[str, str | None, str], Sequence[dict[str, Any]]]


def sts_rows(count: int, **more: str) -> list[dict[str, Any]]:
    return [
        {"sentence1": f"A cat\tsits {n}.", "sentence2": f"A dog\nruns {n}.", "score": n / 2, **more}
        for n in range(count)
    ]


def wikiqa_rows(question: str, title: str, answers: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    return [
        {"question_id": question, "question": f"{question}?", "document_title": title, "answer": text, "label": label}
        for text, label in answers
    ]


SUBSET = {"genre": "main-captions", "dataset": "MSRvid", "year": "2012test"}
HUB: Hub = {
    ("mteb/stsbenchmark-sts", None, "train"): sts_rows(5, **SUBSET),
    ("mteb/stsbenchmark-sts", None, "validation"): sts_rows(3, **SUBSET),
    ("mteb/stsbenchmark-sts", None, "test"): sts_rows(4, **SUBSET),
    ("mteb/sts12-sts", None, "test"): sts_rows(6),
    ("stanfordnlp/snli", None, "validation"): [{"premise": "One.", "hypothesis": "Two.", "label": -1}],
    ("stanfordnlp/snli", None, "test"): [{"premise": "One.", "hypothesis": "Three\u2028 lines.", "label": 0}],
    ("nyu-mll/multi_nli", None, "validation_matched"): [{"premise": "", "hypothesis": "Four.", "label": 1}],
    ("nyu-mll/glue", "qnli", "validation"): [
        {"question": "Who?", "sentence": "Nobody.", "label": 1, "idx": 0},
        {"question": "Where?", "sentence": "Over\tthere.", "label": 0, "idx": 1},
    ],
    ("microsoft/wiki_qa", None, "train"): wikiqa_rows("Q1", "Apple", [("Red.", 0), ("Round.", 0)]),
    ("microsoft/wiki_qa", None, "validation"): wikiqa_rows("Q2", "Pear", [("Green.", 1)]),
    ("microsoft/wiki_qa", None, "test"): [
        *wikiqa_rows("Q3", "Apple", [("Red.", 1), ("Round.", 0), ("Red.", 0)]),
        *wikiqa_rows("Q4", "Plum", [("Blue.", 0)]),
    ],
    ("mteb/scifact", "corpus", "corpus"): [{"_id": "7", "title": "T", "text": "Line\none."}],
    ("mteb/scifact", "queries", "queries"): [{"_id": "q", "text": "A claim."}],
    ("mteb/scifact", "default", "train"): [{"query-id": "q", "corpus-id": "7", "score": 1.0}],
    ("mteb/scifact", "default", "test"): [{"query-id": "q", "corpus-id": "7", "score": 2.0}],
}


def from_memory(source: Source) -> Iterable[Record]:
    """The rows as a `datasets.Dataset`, as the hub gives them."""
    found: Iterable[Record] = datasets.Dataset.from_list(list(HUB[source.hub, source.config, source.split]))
    return found


def fetched(folder: Path, *names: str) -> dict[str, Outcome]:
    return {outcome.name: outcome for outcome in download(folder, names, from_memory)}


def test_similarity_sets_are_read_back(tmp_path: Path) -> None:
    found = fetched(tmp_path, "stsb", "sts12")
    assert found["stsb"].counts == {"train": 5, "dev": 3, "test": 4}
    assert "5 train where 5,749 are expected" in found["stsb"].notes[0]
    assert "does not say which subset" in found["sts12"].notes[-1]
    reading = read_sets(tmp_path, ["stsb", "sts12"])
    assert not reading.problems
    stsb, sts12 = reading.sets
    assert [len(stsb.of(split)) for split in ("train", "dev", "test")] == [5, 3, 4]
    last = stsb.pairs[-1]
    assert (last.source, last.score, last.first) == ("main-captions/MSRvid/2012test", 1.5, "A cat sits 3.")
    assert sts12.pairs[1].second == "A dog runs 1." and len(sts12.evaluated) == 6


def test_question_answering_sets_are_read_back(tmp_path: Path) -> None:
    found = fetched(tmp_path, "qnli", "wikiqa")
    assert found["wikiqa"].counts == {"dev pairs": 1, "dev questions": 1, "test pairs": 3, "test questions": 1}
    qnli, wikiqa = read_qa(tmp_path).sets
    assert [(pair.question, pair.sentence, pair.answers) for pair in qnli.pairs] == [
        ("Who?", "Nobody.", False),
        ("Where?", "Over there.", True),
    ]
    assert [(pair.question_id, pair.sentence, pair.answers) for pair in wikiqa.pairs] == [
        ("Q3", "Red.", True),
        ("Q3", "Round.", False),
        ("Q3", "Red.", False),
    ]
    rows = cells_of(tmp_path / "wikiqa" / "test-filtered.tsv")
    assert [row[4] for row in rows] == ["D0-0", "D0-1", "D0-2"]  # the first two are train's sentences


def test_wikiqa_as_a_search(tmp_path: Path) -> None:
    found = fetched(tmp_path, "wikiqa_beir")
    folder = tmp_path / "wikiqa_beir"
    corpus = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    assert [(one["title"], one["text"]) for one in corpus] == [
        ("Apple", "Red."),
        ("Apple", "Round."),
        ("Pear", "Green."),
        ("Apple", "Red."),
        ("Plum", "Blue."),
    ]
    assert len({one["_id"] for one in corpus}) == 5
    assert [json.loads(line)["_id"] for line in (folder / "queries.jsonl").read_text().splitlines()] == ["Q2", "Q3"]
    assert cells_of(folder / "qrels" / "test.tsv") == [["Q3", corpus[0]["_id"], "1"]]
    assert found["wikiqa_beir"].counts["dev judgements"] == 1


def test_sentences_of_inference_and_scifact(tmp_path: Path) -> None:
    assert fetched(tmp_path, "nli")["nli"].counts == {"sentences": 4}
    assert read_nli(tmp_path, 10) == ["One.", "Two.", "Three\u2028 lines.", "Four."]
    with gzip.open(tmp_path / "nli" / "nli_sentences.txt.gz", "rt", encoding="utf-8", newline="\n") as file:
        assert len(file.read().split("\n")) == 5
    counts = fetched(tmp_path, "scifact")["scifact"].counts
    assert counts == {"documents": 1, "queries": 1, "train judgements": 1, "test judgements": 1}
    document = json.loads((tmp_path / "scifact" / "corpus.jsonl").read_text())
    assert document == {"_id": "7", "title": "T", "text": "Line\none."}
    assert cells_of(tmp_path / "scifact" / "qrels" / "test.tsv") == [["q", "7", "2"]]


def test_what_is_there_is_left_alone_and_what_fails_does_not_stop_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "qnli" / "dev.tsv"
    path.parent.mkdir()
    path.write_text("mine")
    assert fetched(tmp_path, "qnli")["qnli"].counts == {}
    assert path.read_text() == "mine"

    def other_columns(source: Source) -> Iterable[Record]:
        if source.hub == "mteb/sts12-sts":
            return datasets.Dataset.from_list([{"a": 1}])  # type: ignore[no-any-return]
        return from_memory(source)

    done = []
    with pytest.raises(RetrieverError, match=r"sts12: mteb/sts12-sts has no column 'sentence1'; its columns are: a"):
        done += [outcome.name for outcome in download(tmp_path, ["sts12", "stsb"], other_columns)]
    assert (tmp_path / "sts" / "stsb.tsv").is_file() and not (tmp_path / "sts" / "sts12.tsv").exists()
    assert not list(tmp_path.glob(".*"))


def test_cranfield_must_be_had_by_hand(run: Run, tmp_path: Path) -> None:
    output = run("bench", "download", tmp_path, "--dataset", "cranfield").output
    assert "http://ir.dcs.gla.ac.uk" in output and "qrels/test.tsv" in output
    (tmp_path / "cranfield").mkdir()
    (tmp_path / "cranfield" / "corpus.jsonl").write_text("")
    assert "cranfield: already there" in run("bench", "download", tmp_path, "--dataset", "cranfield").output


def test_every_set_can_be_asked_for() -> None:
    assert list(commands_data.SETS) == [*SETS, *BY_HAND]


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"HF_ENDPOINT": "http://127.0.0.1:9"}, "the Hugging Face hub cannot be reached for nyu-mll/glue"),
        ({"HF_HUB_OFFLINE": "1"}, "nyu-mll/glue is not in the local cache, and HF_HUB_OFFLINE is set"),
    ],
)
@pytest.mark.timeout(60)
def test_without_a_network_it_says_so_at_once(tmp_path: Path, environment: dict[str, str], told: str) -> None:
    """Within the time limit: `datasets` alone would try again and again."""
    command = [sys.executable, "-m", "retriever", "bench", "download", str(tmp_path / "data"), "--dataset", "qnli"]
    variables = {**os.environ, "HF_HOME": str(tmp_path / "hub"), **environment}
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, env=variables, cwd=root)
    assert done.returncode == 1
    assert told in done.stderr and f"put these files into {tmp_path / 'data'} yourself: qnli/dev.tsv" in done.stderr
    assert "Retrying" not in done.stderr and "Traceback" not in done.stderr


@pytest.mark.shared
def test_wikiqa_numbered_as_it_comes_is_wikiqa_as_it_was(shared_data: Path, tmp_path: Path) -> None:
    rows = {split: cells_of(shared_data / "wikiqa" / f"{split}-filtered.tsv") for split in ("dev", "test")}

    def fetch(source: Source) -> Iterable[Record]:
        given = rows.get({"validation": "dev"}.get(source.split, source.split), [])
        keys = ("question_id", "question", "document_title", "answer", "label")
        return [dict(zip(keys, (r[0], r[1], r[3], r[5], int(r[6])), strict=True)) for r in given]

    (outcome,) = download(tmp_path, ["wikiqa"], fetch)
    assert outcome.counts == SETS["wikiqa"].known
    ids: dict[str, str] = {}
    for split, own in rows.items():
        for ours, theirs in zip(cells_of(tmp_path / "wikiqa" / f"{split}-filtered.tsv"), own, strict=True):
            assert [ours[n] for n in (0, 1, 3, 5, 6)] == [theirs[n] for n in (0, 1, 3, 5, 6)]
            assert ids.setdefault(theirs[4], ours[4]) == ours[4]
    assert len(set(ids.values())) == len(ids)
