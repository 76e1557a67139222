"""QNLI and WikiQA read from files: what counts, and what bad rows and missing files get."""

from pathlib import Path

import pytest
from questions import QNLI_HEADER, WIKIQA_HEADER, cells_of, write_qnli, write_wikiqa

from retriever.errors import Misuse
from retriever.evaluate.data.qa_sets import read_qa


def test_both_sets(tmp_path: Path) -> None:
    qnli, wikiqa = write_qnli(tmp_path, 12), write_wikiqa(tmp_path, 6)
    reading = read_qa(tmp_path)
    assert [found.name for found in reading.sets] == ["qnli", "wikiqa"] and not reading.problems
    pairs, candidates = (found.evaluated for found in reading.sets)
    assert [(p.question, p.sentence, p.answers) for p in pairs] == [
        (question, sentence, label == "entailment") for _, question, sentence, label in cells_of(qnli)
    ]
    rows = [row for row in cells_of(wikiqa) if row[0] != "Q5"]  # nothing but answers, so nothing to rank
    assert [(p.question_id, p.sentence, p.answers) for p in candidates] == [(r[0], r[5], r[6] == "1") for r in rows]
    assert {row[5] for row in cells_of(wikiqa)} <= set(reading.sets[1].texts)


def test_bad_rows_are_told_with_their_line(tmp_path: Path) -> None:
    path = write_qnli(tmp_path, 10)
    bad = ["10\tonly a question?", "11\tWhy?\tBecause.\tmaybe", "12\t \tBecause.\tentailment"]
    path.write_bytes(path.read_bytes() + "\n".join(bad).encode() + b"\n13\tWh\xff?\tSo.\tentailment\n")
    candidates = write_wikiqa(tmp_path, 5)
    first = candidates.read_text().split("\n")[1].split("\t")
    again, other = "\t".join(first), "\t".join([first[0], "Another question?", *first[2:]])
    candidates.write_text(candidates.read_text() + f"{again}\n{other}\n")
    reading = read_qa(tmp_path)
    assert len(reading.sets[0].pairs) == 10
    told = "\n".join(reading.problems)
    for expected in (
        f"{path}:12: 2 columns, not 4",
        f"{path}:13: the label 'maybe' is neither 'entailment' nor 'not_entailment'",
        f"{path}:14: the question or the sentence is empty",
        f"{path}:15: not UTF-8 at byte 5",
        "the sentence 'D0-0' of 'Q0' appears in an earlier row: the row is skipped",
        "the question 'Q0' has another text in an earlier row: the row is skipped",
    ):
        assert expected in told


def test_a_missing_set_is_left_out_and_both_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="there is no folder .*qnli/dev.tsv with the header .*bench download"):
        read_qa(tmp_path / "nowhere")
    with pytest.raises(Misuse, match=r"holds none of the sets: .*wikiqa/test-filtered\.tsv.*nyu-mll/glue"):
        read_qa(tmp_path)
    write_wikiqa(tmp_path)
    reading = read_qa(tmp_path)
    assert [found.name for found in reading.sets] == ["wikiqa"]
    assert reading.problems == (f"{tmp_path / 'qnli' / 'dev.tsv'} does not exist: QNLI is left out",)


def test_a_set_that_cannot_be_judged_is_left_out(tmp_path: Path) -> None:
    write_wikiqa(tmp_path)
    (tmp_path / "qnli").mkdir()
    (tmp_path / "qnli" / "dev.tsv").write_text(QNLI_HEADER + "0\tWhy?\tSo.\tentailment\n")
    assert "needs both right and wrong answers: QNLI is left out" in read_qa(tmp_path).problems[0]
    (tmp_path / "qnli" / "dev.tsv").write_text("question\tsentence\nWhy?\tSo.\n")
    assert "dev.tsv:1: the header is 'question sentence', not 'index" in read_qa(tmp_path).problems[0]
    (tmp_path / "wikiqa" / "test-filtered.tsv").write_text(WIKIQA_HEADER)
    with pytest.raises(
        Misuse,
        match=r"(?s)no set in .* can be read\..*dev.tsv:1.*filtered\.tsv needs both right and wrong answers",
    ):
        read_qa(tmp_path)


@pytest.mark.shared
def test_the_real_files_have_their_known_sizes(shared_data: Path) -> None:
    reading = read_qa(shared_data)
    qnli, wikiqa = reading.sets
    assert not reading.problems
    assert (len(qnli.evaluated), sum(pair.answers for pair in qnli.evaluated)) == (5463, 2702)
    assert len({pair.question_id for pair in wikiqa.pairs}) == 243
    assert len({pair.question_id for pair in wikiqa.evaluated}) == 237
