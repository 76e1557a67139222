"""The similarity files: what is scored, what is fitted on, and what bad input gets."""

import gzip
from pathlib import Path

import pytest
from samples import Run
from similarity import HEADER, NAMES, write_set, write_sets

from retriever.errors import Misuse
from retriever.evaluate.data.sts_sets import read_nli, read_sets
from retriever.evaluate.data.tsv import BAD_ROWS_SHOWN


def test_what_is_scored_and_what_is_fitted_on(tmp_path: Path) -> None:
    reading = read_sets(write_sets(tmp_path / "sts").parent)
    assert [found.name for found in reading.sets] == list(NAMES) and not reading.problems
    stsb, sts12 = reading.sets[0], reading.sets[2]
    assert {pair.split for pair in stsb.evaluated} == {"test"} and len(stsb.evaluated) == 10
    assert len(sts12.evaluated) == 30
    assert len(stsb.sentences()) == 60 and len(stsb.sentences("train")) == 20
    assert not sts12.sentences("train")


def test_only_newlines_end_a_row_and_nothing_is_quoted(tmp_path: Path) -> None:
    odd = ['"Quoted', "with a\u2028line separator", "form\ffeed and\u0085next line", "it's 'all' one cell"]
    rows = f"test\tx\t1.5\t{odd[0]}\t{odd[1]}\ntest\tx\t2\t{odd[2]}\t{odd[3]}\n"
    (tmp_path / "sts12.tsv").write_bytes((HEADER + rows).encode())
    found = read_sets(tmp_path, ["sts12"]).sets[0]
    assert [text for pair in found.pairs for text in (pair.first, pair.second)] == odd


def test_bad_rows_are_named_skipped_and_counted(tmp_path: Path) -> None:
    path = write_set(tmp_path, "sts13")
    bad = [b"test\tx\t1.0\tonly four", b"test\tx\tmany\ta\tb", b"test\tx\tnan\ta\tb", b"test\tx\t1\t \tb", b"\xff\xfe"]
    path.write_bytes(path.read_bytes() + b"\n".join(bad) + b"\n" + b"one more\n" * 3)
    reading = read_sets(tmp_path, ["sts13"])
    assert len(reading.sets[0].pairs) == 30
    told = "\n".join(reading.problems)
    for line, reason in ((32, "4 columns, not 5"), (33, "'many' is not a number"), (34, "not a finite number")):
        assert f"{path}:{line}: " in told and reason in told
    assert f"{path}:35: a sentence is empty" in told and f"{path}:36: not UTF-8" in told
    assert f"8 bad rows in all, {8 - BAD_ROWS_SHOWN} of them not shown" in told


def test_a_missing_set_is_said_and_the_others_go_on(tmp_path: Path) -> None:
    write_sets(tmp_path)
    (tmp_path / "sts14.tsv").unlink()
    reading = read_sets(tmp_path)
    assert len(reading.sets) == 6
    assert reading.problems == (f"{tmp_path / 'sts14.tsv'} does not exist: STS14 is left out",)


def test_another_header_or_no_test_split_leaves_a_set_out(tmp_path: Path) -> None:
    write_sets(tmp_path)
    (tmp_path / "sts15.tsv").write_text("score,sentence1,sentence2\n1,a,b\n")
    (tmp_path / "stsb.tsv").write_text(HEADER + "train\tx\t1\ta b\tc d\n")
    reading = read_sets(tmp_path)
    assert [found.name for found in reading.sets] == ["sickr", "sts12", "sts13", "sts14", "sts16"]
    assert any("sts15.tsv:1: the header is" in problem for problem in reading.problems)
    assert any("0 rows of the split 'test'" in problem for problem in reading.problems)


def test_an_empty_folder_says_how_to_get_the_data(tmp_path: Path, run: Run, tiny_bert: str) -> None:
    output = run("bench", "sts", "--data", tmp_path, "--encoder", tiny_bert, code=2).output
    assert "stsb.tsv" in output and "mteb/stsbenchmark-sts" in output and "split source score" in output
    assert "there is no folder" in run("bench", "sts", "--data", tmp_path / "x", code=2).output


def test_nli_sentences_are_a_seeded_sample(tmp_path: Path) -> None:
    (tmp_path / "nli").mkdir()
    with gzip.open(tmp_path / "nli" / "nli_sentences.txt.gz", "wt", encoding="utf-8") as file:
        file.writelines(f"Sentence {n % 50}.\n" for n in range(200))
    sample = read_nli(tmp_path, 20)
    assert len(set(sample)) == 20 and sample == read_nli(tmp_path, 20)
    assert len(read_nli(tmp_path, 1000)) == 50
    assert len(read_nli(tmp_path / "sts", 1000)) == 50
    with pytest.raises(Misuse, match=r"nli_sentences\.txt\.gz"):
        read_nli(tmp_path / "nli" / "deeper", 5)
