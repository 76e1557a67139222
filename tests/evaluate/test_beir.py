"""Reading BEIR folders: what is taken, what is left out and said, and what is refused."""

import gzip
from pathlib import Path

import pytest
from beir_made_up import HEADER, write_beir

from retriever.errors import BadSource, Misuse
from retriever.evaluate.data.beir import read_judgements, read_set, read_sets


def test_a_folder_as_it_stands(tmp_path: Path) -> None:
    found = read_set(write_beir(tmp_path / "stories"))
    topics = found.topics
    assert (topics.dataset, topics.split, topics.documents) == ("stories", "test", 60)
    assert list(topics.queries) == [f"q{n}" for n in range(8)]
    assert topics.judgements["q3"] == {"d3": 2, "d23": 1, "d43": 0}
    assert topics.notes == ("stories: queries without judgements in test.tsv: 4 of 12, left out",)
    texts = topics.text_of(["d5", "nowhere", "d7"])
    assert list(texts) == ["d5", "d7"] and texts["d5"][0] == "Story 5"
    assert set(found.files) == {"corpus", "queries", "judgements"} and not found.repeated


def test_gzip_and_line_separators(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "set", queries=[{"_id": "q1", "text": "one\u2028two\x85three"}])
    for name in ("corpus.jsonl", "queries.jsonl"):
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
        (folder / name).unlink()
    topics = read_set(folder).topics
    assert topics.documents == 60 and topics.queries == {"q1": "one\u2028two\x85three"}
    whole = (folder / "corpus.jsonl.gz").read_bytes()
    (folder / "corpus.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadSource, match=r"corpus\.jsonl\.gz is a truncated gzip file"):
        read_set(folder)


def test_splits(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "set")
    assert list(read_set(folder, "train").topics.queries) == ["q9"]
    with pytest.raises(Misuse, match=r"no dev\.tsv; set --split to one of: test, train"):
        read_set(folder, "dev")
    (folder / "qrels" / "test.tsv").unlink()
    assert read_set(folder).topics.split == "train"
    (folder / "qrels" / "dev.tsv").write_text(f"{HEADER}q1\td1\t1\n")
    with pytest.raises(Misuse, match=r"one of: dev, train"):
        read_set(folder)


def test_a_folder_of_folders(tmp_path: Path) -> None:
    one, two = write_beir(tmp_path / "one"), write_beir(tmp_path / "two")
    (tmp_path / "empty").mkdir()
    assert [found.topics.dataset for found in read_sets([tmp_path]).sets] == ["one", "two"]
    assert [found.topics.dataset for found in read_sets([two, tmp_path, two]).sets] == ["two", "one"]
    (one / "queries.jsonl").unlink()
    reading = read_sets([tmp_path])
    assert [found.topics.dataset for found in reading.sets] == ["two"]
    assert "one is left out" in reading.problems[0] and "no queries.jsonl" in reading.problems[0]
    with pytest.raises(Misuse, match=r"no queries\.jsonl"):
        read_sets([one, two])
    other = write_beir(tmp_path / "elsewhere" / "two")
    with pytest.raises(Misuse, match="two folders of --data are called 'two'"):
        read_sets([two, other])


def test_what_is_no_beir_folder(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="there is no folder"):
        read_sets([tmp_path / "nowhere"])
    with pytest.raises(Misuse, match="is not a BEIR folder and does not contain one"):
        read_sets([tmp_path])
    folder = write_beir(tmp_path / "set", qrels={})
    with pytest.raises(Misuse, match="has no judgements"):
        read_set(folder)
    with pytest.raises(Misuse, match="has no judgement"):
        read_set(write_beir(folder, qrels={"test": HEADER}))
    with pytest.raises(Misuse, match="has no query"):
        read_set(write_beir(tmp_path / "mute", queries=[]))
    with pytest.raises(Misuse, match="has no document"):
        read_set(write_beir(tmp_path / "void", corpus=[]))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("q1 d1 1", "1 column, but"),
        ("q1\t0\td1\t1", "4 columns"),
        ("q1\td1\t1.5", "'1.5' is not a whole number"),
        ("q1\td1\t3000000000", "the grade 3000000000 is above 1,000"),
    ],
)
def test_a_judgement_that_cannot_be_read_is_refused(tmp_path: Path, line: str, told: str) -> None:
    path = tmp_path / "test.tsv"
    path.write_text(f"{HEADER}q1\td1\t1\n\n{line}\n")
    with pytest.raises(BadSource, match=rf"test\.tsv:4: .*{told}"):
        read_judgements(path)


def test_judgements_with_and_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "test.tsv"
    path.write_text("q1\td1\t1\r\nq1\td2\t-1\r\nq1\td1\t3\r\n")
    assert read_judgements(path) == ({"q1": {"d1": 3, "d2": 0}}, ["q1 d1"])
    path.write_text(f"\ufeff{HEADER}q1\td1\t1\n", encoding="utf-8")
    assert read_judgements(path) == ({"q1": {"d1": 1}}, [])


def test_ids_that_do_not_meet_are_counted_and_named(tmp_path: Path) -> None:
    qrels = f"{HEADER}q1\td1\t1\nq1\tgone\t1\nq2\td2\t0\nq77\td1\t1\nq3\td3\t1\nq3\td3\t1\n"
    queries = [{"_id": f"q{n}", "text": "a cat" if n != 3 else " "} for n in range(1, 6)]
    topics = read_set(write_beir(tmp_path / "set", queries=queries, qrels={"test": qrels})).topics
    assert list(topics.queries) == ["q1", "q2"]
    assert topics.judgements == {"q1": {"d1": 1, "gone": 1}, "q2": {"d2": 0}}
    told = "\n".join(topics.notes)
    for said in (
        "queries that could not be read from queries.jsonl: 1, first",
        "queries.jsonl:3: has no text",
        "or has without text: 2 ('q77', 'q3')",
        "queries without judgements in test.tsv: 2 of 4",
        "judged documents that are not in the corpus, or could not be read from it: 1 ('gone')",
        "queries without a relevant document: 1 ('q2'); they count as 0",
        "duplicate judgements in test.tsv: 1 ('q3 d3')",
    ):
        assert said in told


def test_judgements_of_another_set_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"none of the queries .* names 1 \('1'\), but the queries are 12 \('q0'"):
        read_set(write_beir(tmp_path / "a", qrels={"test": f"{HEADER}1\td1\t1\n"}))
    with pytest.raises(Misuse, match=r"none of the documents .* names 2 \('x', 'y'\), but the documents are 60"):
        read_set(write_beir(tmp_path / "b", qrels={"test": f"{HEADER}q1\tx\t1\nq1\ty\t0\n"}))


def test_ids_that_stand_twice(tmp_path: Path) -> None:
    corpus = [{"_id": "a", "text": "One cat."}, {"_id": "b", "text": "Two cats."}, {"_id": "a", "text": "A dog."}]
    queries = [{"_id": "q", "text": "cats"}, {"_id": "q", "text": "cats"}]
    folder = write_beir(tmp_path / "set", corpus=corpus, queries=queries, qrels={"test": "q\ta\t1\n"})
    topics = read_set(folder).topics
    assert topics.documents == 2 and topics.text_of(["a"]) == {"a": ("", "A dog.")}
    assert "duplicate document ids in corpus.jsonl: 1 ('a'); the last document of each is searched" in topics.notes[1]
    assert "duplicate queries in queries.jsonl: 1 ('q')" in topics.notes[0]
    write_beir(folder, corpus=corpus, queries=[*queries, {"_id": "q", "text": "dogs"}], qrels={"test": "q\ta\t1\n"})
    with pytest.raises(BadSource, match=r"queries\.jsonl:3: the query 'q' has another text at .*jsonl:1"):
        read_set(folder)


def test_a_query_that_is_a_document_and_one_that_only_shares_its_id(tmp_path: Path) -> None:
    corpus = [{"_id": "1", "title": "Cats", "text": "Cats  purr."}, {"_id": "2", "text": "Dogs bark."}]
    queries = [{"_id": "1", "text": "Cats purr."}, {"_id": "2", "text": "Who barks?"}]
    found = read_set(write_beir(tmp_path / "s", corpus=corpus, queries=queries, qrels={"test": "1\t2\t1\n2\t2\t1\n"}))
    assert found.repeated == {"1"}
    assert "queries that are also documents: 1 ('1')" in found.topics.notes[0]
    assert "have a query's id but another text: 1 ('2')" in found.topics.notes[1]


@pytest.mark.shared
def test_the_real_sets(shared_data: Path) -> None:
    found = {each.topics.dataset: each.topics for each in read_sets([shared_data]).sets}
    counts = {name: (len(topics.queries), topics.documents) for name, topics in found.items()}
    assert counts["cranfield"] == (225, 1398) and counts["scifact"] == (300, 5183)
    assert counts["wikiqa_beir"] == (243, 26270)
    assert any("could not be read from it: 1 ('995')" in note for note in found["cranfield"].notes)
