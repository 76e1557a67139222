"""Hybrid search: every score by the formula, from a brute-force scan of vectors and words."""

from pathlib import Path

import numpy as np
import pytest
from bm25 import bm25, some_documents
from scipy.stats import norm

from retriever import Document, Retriever
from retriever.search.fusion import surprise
from retriever.settings import LEARNED_WEIGHT, UNTUNED_WEIGHT, trust


def test_surprise_is_the_gaussian_tail() -> None:
    z = np.array([-40.0, -3.0, 0.0, 1.0, 8.0, 60.0])
    np.testing.assert_allclose(surprise(z), -norm.logsf(z), rtol=1e-9)


def test_vectors_count_less_if_the_encoder_was_not_tuned_for_similarity() -> None:
    for family in ("none", "flow"):
        assert trust({"verdict": {"tuned": True}}, family, "mean") == 1
        assert trust({"verdict": {"tuned": False}}, family, "mean") == UNTUNED_WEIGHT
    for nothing in (None, {"candidates": []}, {}, {"verdict": None}):
        assert trust(nothing, "none", "mean") == 1
        assert trust(nothing, "flow", "mean") == UNTUNED_WEIGHT
        assert trust(nothing, "none", "learned") == LEARNED_WEIGHT


@pytest.mark.parametrize("transform", ["none", "whiten"])
def test_scores_are_those_of_the_formula(tmp_path: Path, tiny_bert: str, transform: str) -> None:
    documents = some_documents(300)
    Retriever.build(documents, tmp_path / "c", encoder=tiny_bert, transform=transform).close()
    query = "cat dog yak"
    with Retriever.open(tmp_path / "c") as retriever:
        hits = retriever.search(query, 20, mode="hybrid")
        cosine = {hit.id: hit.score for hit in retriever.search(query, 1000)}
        believed = retriever.info()["hybrid_trust"]
    assert believed == (1 if transform == "none" else UNTUNED_WEIGHT)
    lexical = bm25(query, [f"{document.title} {document.text}" for document in documents])
    # Each document is one passage here, and all are the sample that the background is measured on.
    cosines = np.array([cosine[document.id] for document in documents])
    z = (cosines - cosines.mean()) / cosines.std()
    expected = believed * -norm.logsf(z) + np.array(lexical) / 2.2
    order = np.argsort(-expected, kind="stable")[:20]
    assert [hit.id for hit in hits] == [documents[place].id for place in order]
    np.testing.assert_allclose([hit.score for hit in hits], expected[order], rtol=1e-4)


def test_without_a_word_in_common_it_is_the_order_of_the_vectors(tmp_path: Path, tiny_bert: str) -> None:
    with Retriever.build(some_documents(50), tmp_path / "c", encoder=tiny_bert, transform="none") as retriever:
        dense = [hit.id for hit in retriever.search("unicorn", 10)]
        assert [hit.id for hit in retriever.search("unicorn", 10, mode="hybrid")] == dense
        raw = [hit.id for hit in retriever.search("unicorn", 10, mode="hybrid", space="raw")]
        assert raw == dense


def test_one_document_or_all_alike(tmp_path: Path, tiny_bert: str) -> None:
    with Retriever.build(["cat"], tmp_path / "one", encoder=tiny_bert) as retriever:
        (hit,) = retriever.search("cat", mode="hybrid")
        assert np.isfinite(hit.score)
    alike = [Document(str(i), "the same words") for i in range(5)]
    with Retriever.build(alike, tmp_path / "alike", encoder=tiny_bert) as retriever:
        hits = retriever.search("same words", mode="hybrid")
        assert [hit.id for hit in hits] == ["0", "1", "2", "3", "4"]
        assert all(np.isfinite(hit.score) for hit in hits)


def test_documents_with_one_text_tie_and_come_by_arrival(tmp_path: Path, tiny_bert: str) -> None:
    documents = [Document(f"s{i}", "okapi okapi forest") for i in range(250)] + some_documents(60)
    with Retriever.build(
        documents, tmp_path / "c", encoder=tiny_bert, pooling="first-last", transform="whiten"
    ) as retriever:
        hits = retriever.search("okapi", 110, mode="hybrid")
        assert [hit.id for hit in hits] == [f"s{i}" for i in range(110)]
        assert len({hit.score for hit in hits}) == 1


@pytest.mark.filterwarnings("error")
def test_a_collection_that_was_emptied_finds_nothing(tmp_path: Path, tiny_bert: str) -> None:
    with Retriever.build([Document("a", "cat")], tmp_path / "c", encoder=tiny_bert) as retriever:
        retriever.delete(["a"])
        assert retriever.search("cat", mode="hybrid") == []
