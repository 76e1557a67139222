"""Hybrid search: every score by the formula, from a brute-force scan of vectors and words."""

from pathlib import Path

import numpy as np
import pytest
from bm25 import bm25, ceiling, some_documents

from retriever import Document, Retriever
from retriever.search.fusion import (
    HARDLY_READ,
    NAMED_WEIGHT,
    POWER,
    TUNED_WEIGHT,
    UNTUNED_WEIGHT,
    meaning_strength,
    names_something,
    words_strength,
)


def test_strengths_are_bounded_and_grow() -> None:
    for strength in (lambda x: meaning_strength(x, 0.3), lambda x: words_strength(x, 7.0)):
        values = [strength(x) for x in np.linspace(0, 20, 500)]
        assert values == sorted(values) and values[0] == 0 and values[-1] == 1
    assert meaning_strength(0.3, 0.3) == 0 and meaning_strength(1.0, 0.3) == 1
    assert meaning_strength(1.0, 1.0) == 0, "where all vectors are alike, none stands out"
    assert words_strength(0.0, 0.0) == 0


@pytest.mark.parametrize(
    ("query", "names"),
    [
        *[
            (query, True)
            for query in ("json.dumps", "PEP 484", "ENOENT", "camelCase", "sha-256", "snake_case", "os/path")
        ],
        *[
            (query, True)
            for query in (
                'who said "to be or not to be" first',
                "what is „ein Zitat“ here",
                "utf8?",
                "ＥＮＯＥＮＴ",
                "SHA-256 SUM",
            )
        ],
        *[
            (query, False)
            for query in (
                "how do I read a file",
                "London",
                "IntEnum of a class of my own",
                "THE DOG",
                "WHERE IS LONDON",
                "to be",
                '"',
            )
        ],
        *[(query, False) for query in ('""', "what does json.dumps return", "两岸")],
    ],
)
def test_what_names_something(query: str, names: bool) -> None:
    assert names_something(query) is names


@pytest.mark.parametrize(
    ("verdict", "transform", "pooling", "weight"),
    [
        ({"tuned": True}, "none", "mean", TUNED_WEIGHT),
        ({"tuned": True}, "whiten", "mean", TUNED_WEIGHT),
        ({"tuned": False}, "none", "mean", UNTUNED_WEIGHT),
        ({"tuned": False}, "whiten", "mean", UNTUNED_WEIGHT),
        (None, "none", "mean", TUNED_WEIGHT),
        (None, "whiten", "mean", UNTUNED_WEIGHT),
    ],
)
def test_meaning_counts_less_if_the_encoder_was_not_tuned_for_similarity(
    tmp_path: Path, tiny_bert: str, verdict: dict[str, bool] | None, transform: str, pooling: str, weight: float
) -> None:
    documents = some_documents(60)
    with Retriever.build(
        documents, tmp_path / "c", encoder=tiny_bert, transform=transform, pooling=pooling
    ) as retriever:
        retriever.collection.store.set_settings({"choice": {"verdict": verdict} if verdict else None})
        assert retriever.info()["weight_of_meaning"] == weight
        for query, own in (("cat dog yak sea", weight), ("cat_dog", min(weight, NAMED_WEIGHT))):
            (hit,) = retriever.search(query, 1, explain=True)
            assert hit.explanation is not None and hit.explanation.weight == own


def test_meaning_counts_less_if_the_encoder_hardly_reads_the_language(tmp_path: Path, tiny_bert: str) -> None:
    """Words in many pieces are a sign of it, for a tuned encoder too, where nothing was chosen."""
    for place, word, weight in (("known", "cat", TUNED_WEIGHT), ("unknown", "Zweckverband", UNTUNED_WEIGHT)):
        documents = [Document(str(number), f"{word} {word} {number % 3}") for number in range(5)]
        with Retriever.build(documents, tmp_path / place, encoder=tiny_bert) as retriever:
            pieces = retriever.info()["pieces_per_word"]
            assert (pieces >= HARDLY_READ) == (weight == UNTUNED_WEIGHT), pieces
            assert retriever.info()["choice"] is None or retriever.info()["transform"]["family"] == "none"
            assert retriever.info()["weight_of_meaning"] == weight
    documents = [Document(str(number), "北京大学位于中国的首都北京") for number in range(5)]
    with Retriever.build(documents, tmp_path / "unspaced", encoder=tiny_bert, pooling="mean") as retriever:
        assert retriever.info()["pieces_per_word"] is None


@pytest.mark.parametrize("transform", ["none", "whiten"])
def test_scores_are_those_of_the_formula(tmp_path: Path, tiny_bert: str, transform: str) -> None:
    documents = some_documents(300)
    Retriever.build(documents, tmp_path / "c", encoder=tiny_bert, transform=transform).close()
    query = "cat dog yak"
    with Retriever.open(tmp_path / "c") as retriever:
        hits = retriever.search(query, 20, explain=True)
        cosine = {hit.id: hit.score for hit in retriever.search(query, 1000, mode="dense")}
        weight = retriever.info()["weight_of_meaning"]
    assert weight == (TUNED_WEIGHT if transform == "none" else UNTUNED_WEIGHT)
    lexical = np.array(bm25(query, documents))
    # Each document is one passage here, and all are the sample that the mean is measured on, without the nearest.
    cosines = np.array([cosine[document.id] for document in documents])
    mean = (cosines.sum() - cosines.max()) / (len(cosines) - 1)
    meaning = np.clip((cosines - mean) / (1 - mean), 0, 1)
    shared = np.minimum(lexical / ceiling(query, documents), 1)
    expected = (weight * meaning**POWER + (1 - weight) * shared) ** (1 / POWER)
    order = np.argsort(-expected, kind="stable")[:20]
    assert [hit.id for hit in hits] == [documents[place].id for place in order]
    np.testing.assert_allclose([hit.score for hit in hits], expected[order], rtol=1e-4)
    np.testing.assert_allclose([hit.relevance for hit in hits], 100 * expected[order], atol=0.051)
    ranks = {
        which: np.argsort(np.argsort(-values, kind="stable")) + 1 for which, values in (("m", cosines), ("w", lexical))
    }
    for hit, place in zip(hits, order, strict=True):
        why = hit.explanation
        assert why is not None and why.weight == weight
        assert why.meaning_rank in (ranks["m"][place], None) and (ranks["m"][place] > 90 or why.meaning_rank)
        assert why.words_rank in (ranks["w"][place], None) and (ranks["w"][place] > 90 or why.words_rank)
        np.testing.assert_allclose(
            [why.cosine, why.bm25, why.meaning, why.words],
            [cosines[place], lexical[place], 100 * meaning[place], 100 * np.cbrt(shared[place])],
            rtol=1e-4,
        )
        held = f"{documents[place].title} {documents[place].text}".split()
        assert why.matched == tuple(word for word in query.split() if word in held)


def test_a_hit_by_one_side_says_nothing_of_the_other(tmp_path: Path, tiny_bert: str) -> None:
    with Retriever.build(some_documents(50), tmp_path / "c", encoder=tiny_bert, transform="none") as retriever:
        (dense,) = retriever.search("cat", 1, mode="dense", explain=True)
        (lexical,) = retriever.search("cat", 1, mode="lexical", explain=True)
        assert retriever.search("cat", 1)[0].explanation is None
    assert dense.explanation is not None and lexical.explanation is not None
    assert (dense.explanation.cosine, dense.explanation.meaning_rank) == (dense.score, 1)
    assert (dense.explanation.bm25, dense.explanation.words, dense.explanation.words_rank) == (None, None, None)
    assert (lexical.explanation.bm25, lexical.explanation.words_rank) == (lexical.score, 1)
    assert lexical.explanation.matched == ("cat",)
    assert (lexical.explanation.cosine, lexical.explanation.meaning) == (None, None)


def test_a_document_whose_id_is_the_query_comes_first(tmp_path: Path, tiny_bert: str) -> None:
    documents = [
        *some_documents(200),
        Document("fdupes", "A program that finds files.", metadata={"lang": "xx"}),
        Document("17", "Seventeen."),
        Document("json", "json json json dumps"),
        Document("json.dumps", "Writes an object."),
    ]
    with Retriever.build(documents, tmp_path / "c", encoder=tiny_bert, transform="none") as retriever:
        for mode in ("hybrid", "lexical", "dense"):
            for id_ in ("fdupes", "17", "d150"):
                hit, other = retriever.search(f"{id_} ", 50, mode=mode, explain=True)[:2] + [None] * (mode == "lexical")
                assert (hit.id, hit.relevance) == (id_, 100), mode
                assert hit.explanation is not None and hit.explanation.same_id
                assert other is None or (not other.explanation.same_id and other.score <= hit.score)
                assert len(retriever.search(id_, 1, mode=mode)) == 1
            assert [hit.id for hit in retriever.search("fdupes", 1, mode=mode, where=["lang = xx"])] == ["fdupes"]
            assert not any(hit.id == "17" for hit in retriever.search("17", 5, mode=mode, where=["lang = xx"]))
        for mode in ("hybrid", "lexical"):
            assert retriever.search("JSON.DUMPS", 1, mode=mode)[0].id == "json.dumps"
            assert retriever.search("JSON", 1, mode=mode)[0].id == "json"
        assert not retriever.answer_many(["17"], mode="lexical")[0].note


def test_the_words_that_a_document_has_are_told_wherever_they_are(tmp_path: Path, tiny_bert: str) -> None:
    long = "Alpha. " + "A sentence about nothing. " * 300 + "Last came 北京."
    documents = [*some_documents(50), Document("17", long), Document("other", "Something 17.")]
    with Retriever.build(documents, tmp_path / "c", encoder=tiny_bert, transform="none") as retriever:
        for query, matched in (("alpha last", ("alpha", "last")), ("京 北", ("北",)), ("17 alpha", ("alpha",))):
            (hit,) = [hit for hit in retriever.search(query, 50, explain=True) if hit.id == "17"]
            assert hit.explanation is not None and hit.explanation.matched == matched


def test_the_note_knows_of_documents_beyond_the_hits(tmp_path: Path, tiny_bert: str) -> None:
    """A document with a word of the query need not be among the hits."""
    documents = [*some_documents(60), Document("z", "zebra " + "cat dog owl " * 60)]
    with Retriever.build(documents, tmp_path / "c", encoder=tiny_bert, transform="none") as retriever:
        near = retriever.query_vectors([f"{documents[3].title} {documents[3].text}"])
        (answer,) = retriever.answer_many(["zebra"], 1, vectors=near, explain=True)
        assert answer.note == "" and answer.hits[0].id != "z"
        assert answer.hits[0].explanation is not None and not answer.hits[0].explanation.bm25


def test_phrases_in_quotes_are_required_where_a_document_has_them(tmp_path: Path, tiny_bert: str) -> None:
    texts = {"a": "dog cat", "b": "cat dog", "c": "the cat dog runs", "d": "owl", "e": "cat owl dog"}
    documents = [Document(id_, text) for id_, text in texts.items()]
    with Retriever.build(documents, tmp_path / "c", encoder=tiny_bert, transform="none") as retriever:
        for mode in ("lexical", "hybrid"):
            found = retriever.search('"cat dog"', mode=mode)  # type: ignore[arg-type]
            assert {hit.id for hit in found} == {"b", "c"}, mode
        assert {hit.id for hit in retriever.search('"dog owl cat"', mode="lexical")} == {"a", "b", "c", "d", "e"}
        assert {hit.id for hit in retriever.search('"cat dog', mode="lexical")} == {"a", "b", "c", "e"}


def test_a_phrase_that_no_document_behind_the_filter_has_is_searched_by_its_words(
    tmp_path: Path, tiny_bert: str
) -> None:
    documents = [
        *some_documents(50),
        Document("fish", "Goldfish swim round and round in a bowl."),
        Document("ring", "The round table stands in a hall.", metadata={"lang": "xx"}),
    ]
    with Retriever.build(documents, tmp_path / "c", encoder=tiny_bert, transform="none") as retriever:
        for mode in ("hybrid", "lexical"):
            query = '"round in a bowl"'
            (answer,) = retriever.answer_many([query], 5, mode=mode, where=["lang = xx"], explain=True)
            assert [hit.id for hit in answer.hits] == ["ring"] and not answer.note
            assert answer.hits[0].explanation is not None and answer.hits[0].explanation.bm25
            assert [hit.id for hit in retriever.search(query, 5, mode=mode)] == ["fish"]


def test_without_a_word_in_common_it_is_the_order_of_the_vectors(tmp_path: Path, tiny_bert: str) -> None:
    with Retriever.build(some_documents(50), tmp_path / "c", encoder=tiny_bert, transform="none") as retriever:
        dense = [hit.id for hit in retriever.search("unicorn", 10, mode="dense")]
        assert [hit.id for hit in retriever.search("unicorn", 10)] == dense
        assert [hit.id for hit in retriever.search("unicorn", 10, space="raw")] == dense
        (answer,) = retriever.answer_many(["unicorn"])
        assert answer.note == "No document has a word of the query, so these hits are by meaning alone."


def test_one_document_or_all_alike(tmp_path: Path, tiny_bert: str) -> None:
    with Retriever.build(["cat"], tmp_path / "one", encoder=tiny_bert) as retriever:
        (hit,) = retriever.search("cat")
        assert np.isfinite(hit.score)
    alike = [Document(str(i), "the same words") for i in range(5)]
    with Retriever.build(alike, tmp_path / "alike", encoder=tiny_bert) as retriever:
        hits = retriever.search("same words")
        assert [hit.id for hit in hits] == ["0", "1", "2", "3", "4"]
        assert all(np.isfinite(hit.score) for hit in hits)


def test_documents_with_one_text_tie_and_come_by_arrival(tmp_path: Path, tiny_bert: str) -> None:
    documents = [Document(f"s{i}", "okapi okapi forest") for i in range(250)] + some_documents(60)
    with Retriever.build(
        documents, tmp_path / "c", encoder=tiny_bert, pooling="first-last", transform="whiten"
    ) as retriever:
        hits = retriever.search("okapi", 110)
        assert [hit.id for hit in hits] == [f"s{i}" for i in range(110)]
        assert len({hit.score for hit in hits}) == 1


@pytest.mark.filterwarnings("error")
def test_a_collection_that_was_emptied_finds_nothing(tmp_path: Path, tiny_bert: str) -> None:
    with Retriever.build([Document("a", "cat")], tmp_path / "c", encoder=tiny_bert) as retriever:
        retriever.delete(["a"])
        assert retriever.search("cat") == []
