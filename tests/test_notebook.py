"""Hits and collections as a notebook shows them: well-formed, escaped, and still plain lists."""

import copy
import json
import pickle
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from pages import Element, parse_page
from samples import PETS

from retriever import Hit, Hits, Retriever

HOSTILE = "<script>alert(1)</script> & \"quotes\" <img src=x onerror='alert(2)'> \x1b[31mred \u202eright to left"


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Iterator[Retriever]:
    folder = tmp_path_factory.mktemp("notebook") / "pets <b>"
    with Retriever.build(PETS, folder, encoder=tiny_bert, transform="none") as built:
        yield built


def hit(rank: int = 1, relevance: float = 50.0, **fields: Any) -> Hit:
    own = {"id": "one", "title": "", "passage": "A text.", "start": 0, "end": 7, "metadata": {}}
    return Hit(rank=rank, score=relevance / 100, relevance=relevance, **{**own, **fields})


def shown(rich: Any) -> Element:
    return parse_page(rich._repr_html_())


def test_a_search_shows_what_it_found(pets: Retriever) -> None:
    hits = pets.search("cats hunt mice", highlight=True)
    items = shown(hits).find("li")
    assert len(items) == len(hits) == len(PETS)
    for item, found in zip(items, hits, strict=True):
        assert item.find("span", "rank")[0].text == str(found.rank)
        assert item.find("span", "relevance")[0].text == f"{found.relevance:.0f}"
        assert item.find("p", "passage")[0].text == found.passage
        assert item.find("bdi", "title")[0].text == (found.title or found.id)
        expected = [found.passage[slice(*found.highlight)]] if found.highlight else []
        assert [mark.text for mark in item.find("mark")] == expected
        assert [field.text for field in item.find("bdi", "field")] == [f"{k}: {v}" for k, v in found.metadata.items()]
    assert any(item.find("mark") for item in items)
    assert [len(shown(rich).find("li")) for rich in (hits[0], hits[1:3], pets.similar("cat"))] == [1, 2, 4]
    assert shown(pets.search("a horse", where=["legs = 0"])[1:]).text == "Nothing found."


def test_still_a_plain_list(pets: Retriever) -> None:
    hits = pets.search("cats")
    assert isinstance(hits, list) and hits == list(hits) and list(hits) == hits
    assert repr(hits) == repr(list(hits))
    assert type(hits[1:3]) is Hits and hits[1:3] == list(hits)[1:3] and hits[::-1] == list(hits)[::-1]
    assert type(hits[0]) is Hit and hits[-1] == list(hits)[-1]
    with pytest.raises(IndexError):
        hits[99]
    for again in (pickle.loads(pickle.dumps(hits)), copy.copy(hits), copy.deepcopy(hits)):  # noqa: S301
        assert type(again) is Hits and again == hits
    assert json.loads(json.dumps(hits, default=asdict)) == json.loads(
        json.dumps([one.to_json() | {"highlight": None} for one in hits])
    )
    first, *rest = hits
    assert [first, *rest] == hits == [*hits] and type(sorted(hits, key=lambda one: one.id)) is list
    (answer,) = pets.answer_many(["cats"])
    assert asdict(answer)["hits"] == [one.to_json() for one in hits]


def test_nothing_of_a_document_is_markup() -> None:
    hostile = hit(id=HOSTILE, title=HOSTILE, passage=HOSTILE, metadata={HOSTILE: HOSTILE, "list": [HOSTILE]})
    page = shown(Hits([hostile, hit(highlight=(0, 1), passage=HOSTILE), hit(id=HOSTILE)]))
    assert {element.tag for element in page} <= set("style div ol li span bdi p mark".split())
    assert {name for element in page for name in element.attributes} <= {"class", "style", "dir"}
    clean = "<script>alert(1)</script> & \"quotes\" <img src=x onerror='alert(2)'> \ufffd[31mred right to left"
    assert page.find("p", "passage")[0].text == page.find("p", "passage")[1].text == clean
    assert page.find("mark")[0].text == "<"
    assert "\x1b" not in page.text and "\u202e" not in page.text


def test_long_things_are_cut() -> None:
    passage = "Nothing here. " * 500 + "The needle. " + "Nothing there. " * 500
    place = passage.index("The needle.")
    many = {f"field {i}": "x" * 1000 for i in range(30)}
    page = shown(hit(passage=passage, highlight=(place, place + 11), title="t" * 1000, metadata=many))
    assert page.find("mark")[0].text == "The needle."
    text = page.find("p", "passage")[0].text
    assert text.startswith("… ") and text.endswith(" …") and len(text) < 1500
    assert page.find("span", "field")[0].text == "22 more"
    assert len(page.find("li")[0].text) < 2500


def test_bars_show_the_relevance() -> None:
    page = shown(Hits(hit(rank, relevance) for rank, relevance in enumerate([100.0, 61.8, 0.0], 1)))
    bars = [element.attributes["style"] for element in page if "style" in element.attributes]
    assert bars == ["width: 100%", "width: 62%", "width: 0%"]
    assert [element.text for element in page.find("span", "relevance")] == ["100", "62", "0"]


def test_nothing_is_fetched_or_run(pets: Retriever) -> None:
    for html in (pets.search("cats")._repr_html_(), pets._repr_html_()):
        assert not re.search(r"https?:|url\(|@import|<script|<link|<img|javascript:|\son\w+=", html)


def test_a_collection_shows_what_it_is(pets: Retriever, tiny_bert: str) -> None:
    page = shown(pets)
    assert page.find("strong")[0].text == "pets <b>"
    facts = dict(zip((e.text for e in page.find("dt")), (e.text for e in page.find("dd")), strict=True))
    assert facts["documents"] == "5 in 5 passages"
    assert facts["transform"] == "none" and tiny_bert in facts["encoder"]
    assert facts["index"] == "Flat, generation 1, 5 vectors"


def test_a_closed_collection_says_so(pets: Retriever, tmp_path: Path) -> None:
    closed = Retriever.open(pets.collection.folder)
    closed.close()
    assert "the collection is closed" in shown(closed).text
