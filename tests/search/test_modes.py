"""Filters, reranking and similar documents in every mode of search, through the public API."""

from pathlib import Path

import numpy as np
import pytest
from bm25 import some_documents
from samples import make_cross_encoder

from retriever import Document, Retriever
from retriever.encoder.reranker import Reranker
from retriever.errors import BadFilter, Misuse

COUNT = 2000
SHARES = {"0.1 %": 0.001, "1 %": 0.01, "10 %": 0.1, "50 %": 0.5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Path:
    """Documents numbered in random order, so that `number < n` lets through a known share of them."""
    folder = tmp_path_factory.mktemp("modes") / "c"
    numbers = np.random.default_rng(7).permutation(COUNT).tolist()
    documents = [
        Document(d.id, d.text, d.title, {"number": number, "kind": "odd" if number % 2 else "even"})
        for d, number in zip(some_documents(COUNT), numbers, strict=True)
    ]
    Retriever.build(documents, folder, encoder=tiny_bert, transform="whiten").close()
    return folder


@pytest.mark.heavy
@pytest.mark.parametrize("share", SHARES.values(), ids=SHARES)
@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_a_filtered_search_is_the_whole_ranking_without_the_others(folder: Path, mode: str, share: float) -> None:
    queries = ["cat dog owl", "sea ice", "yak"]
    with Retriever.open(folder) as retriever:
        everything = retriever.search_many(queries, COUNT, mode=mode)  # type: ignore[arg-type]
        found = retriever.search_many(queries, 10, mode=mode, where=[f"number < {share * COUNT}"])  # type: ignore[arg-type]
    for whole, hits in zip(everything, found, strict=True):
        expected = [hit for hit in whole if hit.metadata["number"] < share * COUNT][:10]
        assert [hit.id for hit in hits] == [hit.id for hit in expected]
        np.testing.assert_allclose([hit.score for hit in hits], [hit.score for hit in expected], rtol=1e-6)


def test_every_filter_must_be_met(folder: Path) -> None:
    with Retriever.open(folder) as retriever:
        hits = retriever.search("cat", 2000, where=["number >= 100", "number < 110", "kind = odd"])
        assert sorted(hit.metadata["number"] for hit in hits) == [101, 103, 105, 107, 109]
        assert retriever.search("cat", where=["number > 9999"]) == []
        near = retriever.similar(hits[0].id, 50, where=["kind = even"])
        assert len(near) == 50 and all(hit.metadata["kind"] == "even" for hit in near)
        whole = [hit for hit in retriever.similar(hits[0].id, COUNT) if hit.metadata["kind"] == "even"]
        assert [hit.id for hit in near] == [hit.id for hit in whole[:50]]


def test_bad_filters_are_refused_before_anything_is_encoded(folder: Path) -> None:
    with Retriever.open(folder, encoder="/nowhere/at/all") as retriever:
        for mode in ("dense", "lexical", "hybrid"):
            with pytest.raises(BadFilter, match="did you mean 'number'"):
                retriever.search("cat", mode=mode, where=["numbr = 1"])  # type: ignore[arg-type]
        with pytest.raises(BadFilter, match="column 8"):
            retriever.search("cat", where=["number ~ 1"])
        with pytest.raises(Misuse, match="must be a list of filters"):
            retriever.search("cat", where="number = 1")
        with pytest.raises(Misuse, match="unknown mode 'fuzzy'"):
            retriever.search("cat", mode="fuzzy")  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_a_cross_encoder_has_the_last_word(folder: Path, tmp_path: Path, mode: str) -> None:
    judge = Reranker(str(make_cross_encoder(tmp_path / "judge")))
    with Retriever.open(folder) as retriever:
        first = retriever.search("cat dog", 50, mode=mode)  # type: ignore[arg-type]
        hits = retriever.search("cat dog", 5, mode=mode, rerank=judge, highlight=True)  # type: ignore[arg-type]
        texts = [f"{hit.title}\n{hit.passage}" if hit.title else hit.passage for hit in first]
        scores = dict(zip([hit.id for hit in first], judge.scores("cat dog", texts).tolist(), strict=True))
        assert [hit.id for hit in hits] == sorted(scores, key=lambda id_: -scores[id_])[:5]
        np.testing.assert_allclose([hit.score for hit in hits], sorted(scores.values(), reverse=True)[:5], atol=1e-5)
        shown = [100 / (1 + np.exp(-scores[hit.id])) for hit in hits]
        np.testing.assert_allclose([hit.relevance for hit in hits], shown, atol=0.051)
        least = hits[2].relevance
        kept = retriever.search("cat dog", 5, mode=mode, rerank=judge, min_score=least)  # type: ignore[arg-type]
        assert [hit.id for hit in kept] == [hit.id for hit in hits if hit.relevance >= least]


def test_the_document_itself_takes_no_place_among_its_likes(tmp_path: Path, tiny_bert: str) -> None:
    same = [Document(f"s{i}", "the same words") for i in range(3)]
    with Retriever.build(same, tmp_path / "c", encoder=tiny_bert) as retriever:
        assert [hit.id for hit in retriever.similar("s1", 1)] == ["s0"]
        assert [hit.id for hit in retriever.similar("s1")] == ["s0", "s2"]
        with pytest.raises(Misuse, match="there is no document"):
            retriever.similar("\udcff")
