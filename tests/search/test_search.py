"""Search through the public API against brute force over the same transformed vectors."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from retriever import Document, Retriever
from retriever.errors import Misuse, RetrieverError

WORDS = "ant bee cat dog elk fox gnu hen owl pig rat yak sea sky sun ice fog oak elm ash run fly dig eat".split()


def some_documents(count: int, seed: int = 0, words: int = 6) -> list[Document]:
    rng = np.random.default_rng(seed)
    return [Document(f"d{i}", " ".join(rng.choice(WORDS, words)) + f" {i}") for i in range(count)]


def cosines(retriever: Retriever, queries: list[str], folder: Path) -> tuple[list[str], NDArray[np.float64]]:
    """Every stored id, and the cosine of every query with each, from an export and not from the index."""
    retriever.export(folder, "npy")
    lines = (folder / "passages.jsonl").read_text(encoding="utf-8").splitlines()
    transform = retriever._searcher.transform()
    stored, asked = np.load(folder / "raw.npy"), retriever.encoder().encode(queries)
    a, b = (transform.apply(vectors).astype(np.float64) for vectors in (asked, stored))
    a, b = (m / np.linalg.norm(m, axis=1, keepdims=True) for m in (a, b))
    return [json.loads(line)["id"] for line in lines], np.asarray(a @ b.T)


def assert_equals_brute_force(retriever: Retriever, queries: list[str], k: int, folder: Path) -> None:
    ids, expected = cosines(retriever, queries, folder)
    for row, hits in zip(expected, retriever.search_many(queries, k, mode="dense"), strict=True):
        order = np.argsort(-row, kind="stable")[:k]
        np.testing.assert_allclose([hit.score for hit in hits], row[order], atol=1e-6)
        for hit, place in zip(hits, order, strict=True):
            # Two that differ by less than float32 can tell may change places; nothing else may.
            assert hit.id == ids[place] or abs(row[ids.index(hit.id)] - row[place]) < 1e-6
        assert len({hit.id for hit in hits}) == len(hits)


@pytest.mark.heavy
@pytest.mark.parametrize("transform", ["none", "center", "standardize", "whiten", "bert-flow:steps=40"])
def test_equals_brute_force_through_every_transform(tmp_path: Path, tiny_bert: str, transform: str) -> None:
    documents = some_documents(600)
    queries = [document.text for document in some_documents(1000, seed=1, words=4)]
    Retriever.build(documents, tmp_path / "c", encoder=tiny_bert, transform=transform, device="cpu").close()
    with Retriever.open(tmp_path / "c") as retriever:
        assert retriever.info()["transform"]["notes"] == []
        assert_equals_brute_force(retriever, queries, 10, tmp_path / "out")


def test_equals_brute_force_after_adds_changes_and_deletes(tmp_path: Path, tiny_bert: str) -> None:
    documents = {document.id: document for document in some_documents(300)}
    with Retriever.build(documents.values(), tmp_path / "c", encoder=tiny_bert, transform="whiten") as writer:
        writer.add(new := [Document(f"n{i}", f"new {WORDS[i]} text") for i in range(20)])
        writer.add(changed := [Document(f"d{i}", f"changed {WORDS[i]} text {i}") for i in range(20)])
        documents |= {document.id: document for document in new + changed}
        assert writer.delete([f"d{i}" for i in range(100, 200)]) == [f"d{i}" for i in range(100, 200)]
        documents = {i: d for i, d in documents.items() if not (i[0] == "d" and 100 <= int(i[1:]) < 200)}
        assert writer.info()["index"]["not_yet_in_it"] == 40
        assert writer.info()["index"]["no_longer_used"] == 120
    with Retriever.open(tmp_path / "c") as reader:
        assert len(reader) == len(documents)
        assert_equals_brute_force(reader, ["cat dog", "new owl text", "changed bee"], 15, tmp_path / "out")
        assert_equals_brute_force(reader, ["fox"], 1000, tmp_path / "out2")
        assert reader.verify().clean
        reader.rebuild()
        assert reader.info()["vectors"] == len(documents)
        assert_equals_brute_force(reader, ["cat dog", "new owl text"], 15, tmp_path / "out3")


@pytest.mark.heavy
@pytest.mark.parametrize("index_type", ["sq8", "hnsw", "IVF4,Flat", "PQ8x4"])
def test_lossy_indexes_score_exactly_what_they_find(tmp_path: Path, tiny_bert: str, index_type: str) -> None:
    documents = some_documents(500)
    with Retriever.build(documents, tmp_path / "c", encoder=tiny_bert, index_type=index_type) as retriever:
        ids, rows = cosines(retriever, ["cat dog owl"], tmp_path / "out")
        hits = retriever.search("cat dog owl", 10, mode="dense")
        scores = dict(zip(ids, rows[0], strict=True))
        np.testing.assert_allclose([hit.score for hit in hits], [scores[hit.id] for hit in hits], atol=2e-6)
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        assert len(retriever.search("cat dog owl", 500, mode="dense")) == 500, (
            "all of them, whatever the index finds by itself"
        )
        retriever.delete([f"d{i}" for i in range(495)])
        retriever.rebuild()
        assert len(retriever.search("cat dog owl", 500, mode="dense")) == 5


def test_long_documents_are_found_by_their_passage(tmp_path: Path, tiny_bert: str) -> None:
    filler = "The committee met and nothing was decided on that day. " * 60
    long = Document("long", f"{filler}Penguins slide on the ice. {filler}", title="Minutes")
    documents = [long, Document("short", "Trains leave every hour.")]
    with Retriever.build(documents, tmp_path / "c", encoder=tiny_bert, transform="none") as retriever:
        assert retriever.info()["passages"] > 5
        hits = retriever.search("Penguins slide on the ice.", 10, highlight=True)
        assert sorted(hit.id for hit in hits) == ["long", "short"], "a document comes once"
        (hit,) = [hit for hit in hits if hit.id == "long"]
        assert long.text[hit.start : hit.end] == hit.passage
        assert hit.highlight is not None
        if "Penguins" in hit.passage:
            assert hit.passage[slice(*hit.highlight)] == "Penguins slide on the ice."


def test_the_same_text_under_two_ids(tmp_path: Path, tiny_bert: str) -> None:
    twins = [Document("a", "Bees make honey."), Document("b", "Bees make honey."), Document("c", "Rain.")]
    with Retriever.build(twins, tmp_path / "c", encoder=tiny_bert, transform="none") as retriever:
        assert retriever.report.texts_embedded == 2
        assert [hit.id for hit in retriever.search("Bees make honey.", 2)] == ["a", "b"]
        retriever.delete(["a"])
        assert [hit.id for hit in retriever.search("Bees make honey.", 1)] == ["b"]


def test_similar_and_document(tmp_path: Path, tiny_bert: str) -> None:
    documents = some_documents(50)
    with Retriever.build(documents, tmp_path / "c", encoder=tiny_bert, transform="center") as retriever:
        hits = retriever.similar("d7", 5)
        assert len(hits) == 5 and "d7" not in {hit.id for hit in hits}
        by_text = [hit for hit in retriever.search(documents[7].text, 6, mode="dense") if hit.id != "d7"]
        assert [hit.id for hit in hits] == [hit.id for hit in by_text][:5]
        assert retriever.document("d7").text == documents[7].text
        with pytest.raises(Misuse, match="no document 'nope'"):
            retriever.similar("nope")


def test_raw_space_is_the_encoders_own(tmp_path: Path, tiny_bert: str) -> None:
    documents = some_documents(100)
    with Retriever.build(documents, tmp_path / "whitened", encoder=tiny_bert, transform="whiten") as whitened:
        raw = whitened.search("cat owl", 10, mode="dense", space="raw")
        flowed = whitened.search("cat owl", 10, mode="dense")
    with Retriever.build(documents, tmp_path / "plain", encoder=tiny_bert, transform="none") as plain:
        expected = plain.search("cat owl", 10, mode="dense")
    assert [(hit.id, round(hit.score, 6)) for hit in raw] == [(hit.id, round(hit.score, 6)) for hit in expected]
    assert [hit.id for hit in flowed] != [hit.id for hit in raw]


def test_a_reader_follows_a_writer(tmp_path: Path, tiny_bert: str) -> None:
    documents = some_documents(60)
    Retriever.build(documents, tmp_path / "c", encoder=tiny_bert, transform="none").close()
    with Retriever.open(tmp_path / "c") as reader, Retriever.open(tmp_path / "c") as writer:
        assert reader.search("penguin", 1)[0].id != "p"
        writer.add([Document("p", "penguin")])
        assert reader.search("penguin", 1)[0].id == "p"
        before = reader.search("cat", 5)
        writer.rebuild(transform="whiten")
        assert reader.search("penguin", 1)[0].id == "p"
        assert reader.search("cat", 5) != before, "the new generation's transform is used"
        writer.delete(["p"])
        assert "p" not in {hit.id for hit in reader.search("penguin", 100)}


@pytest.mark.heavy
def test_an_interrupted_first_run_cannot_be_searched_yet(tmp_path: Path, tiny_bert: str) -> None:
    def source():
        yield from some_documents(9500)  # more than two windows: the first is stored
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Retriever.build(source(), tmp_path / "c", encoder=tiny_bert)
    with Retriever.open(tmp_path / "c") as retriever:
        with pytest.raises(RetrieverError, match="no index yet"):
            retriever.search("cat")
        assert retriever.verify().clean
        assert len(retriever) >= 4096


def test_ties_come_by_arrival_and_fewer_hits_are_the_first_of_more(tmp_path: Path, tiny_bert: str) -> None:
    spellings = ["".join(c.upper() if i >> n & 1 else c for n, c in enumerate("abcdefgh")) for i in range(200)]
    documents = [Document(f"t{i:03}", f"{word} sea") for i, word in enumerate(spellings)]
    with Retriever.build(documents, tmp_path / "c", encoder=tiny_bert, transform="none") as retriever:
        everything = [hit.id for hit in retriever.search("abcdefgh sea", 200, mode="dense")]
        assert everything == [document.id for document in documents]
        for k in (1, 3, 50):
            assert [hit.id for hit in retriever.search("abcdefgh sea", k, mode="dense")] == everything[:k]


def test_similar_to_a_document_of_many_passages(tmp_path: Path, tiny_bert: str) -> None:
    long = Document("long", " ".join(f"Sentence {i} speaks of {WORDS[i % 24]}." for i in range(900)))
    documents = [long, *some_documents(20)]
    with Retriever.build(documents, tmp_path / "c", encoder=tiny_bert, transform="none", max_length=16) as retriever:
        assert retriever.info()["passages"] > 400
        assert len(retriever.similar("long", 5)) == 5


@pytest.mark.heavy
def test_an_export_is_one_snapshot(tmp_path: Path, tiny_bert: str) -> None:
    Retriever.build(some_documents(5000), tmp_path / "c", encoder=tiny_bert, transform="none").close()
    with Retriever.open(tmp_path / "c") as writer:

        def meddle(stage: str, done: int, total: int | None, detail: str = "") -> None:
            if done < 5000:
                writer.delete(["d4999"])
                writer.add([Document("new", "new text")])

        with Retriever.open(tmp_path / "c", progress=meddle) as reader:
            reader.export(tmp_path / "out", "npy")
    lines = (tmp_path / "out" / "passages.jsonl").read_text().splitlines()
    assert len(lines) == len(np.load(tmp_path / "out" / "raw.npy")) == 5000
    assert json.loads(lines[-1])["id"] == "d4999"


@pytest.mark.parametrize("query", ["", "  ", "\udcff bytes"])
def test_queries_that_are_none(tmp_path: Path, tiny_bert: str, query: str) -> None:
    with Retriever.build(["Some text."], tmp_path / "c", encoder=tiny_bert) as retriever, pytest.raises(Misuse):
        retriever.search(query)
