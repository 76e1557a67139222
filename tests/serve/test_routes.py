"""Every route, over HTTP: what it answers is what the Python API says, in the shape that was promised."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from serving import DOCUMENTS, SCRIPT, STRANGE_ID, Running, running

from retriever import Corpus
from retriever.retriever import Retriever
from retriever.serve.app import PAGE
from retriever.serve.models import Added, Collections, Document, Fields, SearchAnswer, SimilarAnswer

Fresh = Callable[..., Path]
QUERY = "animals that like to run"


def test_collections(server: Running) -> None:
    found = Collections.model_validate_json(server.get("/v1/collections").content).collections
    assert [(one.name, one.default) for one in found] == [("pets", True), ("others", False)]
    assert {(one.documents, one.passages, one.transform, one.writable, one.problem) for one in found} == {
        (7, 7, "whiten", False, None)
    }


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
@pytest.mark.parametrize("space", ["index", "raw"])
def test_search_is_the_python_api(server: Running, made_collection: Path, mode: str, space: str) -> None:
    query = "cats hunt mice in the morning"
    options = {"mode": mode, "space": space, "highlight": True, "explain": True, "where": ["legs >= 2"]}
    answer = server.search(query, k=3, **options)
    SearchAnswer.model_validate(answer)
    with Retriever.open(made_collection) as retriever:
        (expected,) = retriever.answer_many([query], 3, **options)
    assert answer["hits"] == json.loads(json.dumps([hit.to_json() for hit in expected.hits]))
    assert (answer["novelty"], answer["limit"], answer["strange"]) == (
        expected.novelty,
        expected.limit,
        expected.strange,
    )
    assert (answer["note"], answer["suggestion"]) == (expected.note, expected.suggestion)
    assert (answer["collection"], answer["query"], answer["generation"]) == ("pets", query, 1)
    assert answer["took_ms"] > 0


def test_the_default_is_a_search_by_both(server: Running) -> None:
    answer = server.search(QUERY)
    assert answer["mode"] == "hybrid"
    assert answer["hits"] == server.search(QUERY, mode="hybrid")["hits"]
    assert all(hit["explanation"] is None for hit in answer["hits"])


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_relevance_is_0_to_100_and_falls_with_the_rank(server: Running, mode: str) -> None:
    for query in (QUERY, "cats", "Goldfish swim round and round in a bowl.", "fish"):
        found = [hit["relevance"] for hit in server.search(query, mode=mode)["hits"]]
        assert found == sorted(found, reverse=True)
        assert all(0 <= relevance <= 100 for relevance in found)


def test_an_explanation_says_what_each_side_found(server: Running) -> None:
    query = "cats hunt in the fields"
    found = {mode: server.search(query, mode=mode, explain=True)["hits"] for mode in ("dense", "lexical", "hybrid")}
    ranks = {mode: {hit["id"]: hit["rank"] for hit in hits} for mode, hits in found.items()}
    for hit in found["hybrid"]:
        why = hit["explanation"]
        assert why["meaning_rank"] == ranks["dense"][hit["id"]]
        assert why["words_rank"] == ranks["lexical"].get(hit["id"])
        assert 0 <= why["meaning"] <= 100 and 0 <= why["words"] <= 100 and 0 < why["weight"] < 1
        assert (why["bm25"] > 0) == (hit["id"] in ranks["lexical"])
    first = next(hit for hit in found["hybrid"] if hit["id"] == "cat")
    assert first["explanation"]["matched"] == ["cats", "hunt"]
    for hit in found["dense"]:
        assert (hit["explanation"]["words"], hit["explanation"]["weight"]) == (None, 1)
        assert hit["explanation"]["cosine"] == hit["score"]
    for hit in found["lexical"]:
        assert (hit["explanation"]["meaning"], hit["explanation"]["weight"]) == (None, 0)
        assert hit["explanation"]["bm25"] == hit["score"]


def test_a_misspelt_word_is_noted_and_corrected(server: Running) -> None:
    answer = server.search("goldfsh")
    assert answer["note"] == "No document has a word of the query, so these hits are by meaning alone."
    assert answer["suggestion"] == "Goldfish"
    assert len(answer["hits"]) == 7
    answer = server.search("goldfsh", mode="lexical")
    assert (answer["hits"], answer["note"]) == ([], "No document has a word of the query.")
    corrected = server.search(answer["suggestion"])
    assert (corrected["note"], corrected["suggestion"]) == ("", None)
    assert corrected["hits"][0]["id"] == "fish"


def test_a_quoted_phrase_must_occur(server: Running) -> None:
    assert {hit["id"] for hit in server.search("bark in the morning")["hits"]} > {"dog", "horse"}
    assert [hit["id"] for hit in server.search('bark "in the morning"')["hits"]] == ["horse"]


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_min_score_is_a_relevance(server: Running, mode: str) -> None:
    query = "cats and dogs in the morning"
    best = server.search(query, mode=mode)["hits"]
    middle = (best[0]["relevance"] + best[-1]["relevance"]) / 2
    kept = server.search(query, mode=mode, min_score=middle)["hits"]
    assert kept == [hit for hit in best if hit["relevance"] > middle]
    assert 0 < len(kept) < len(best)
    assert server.search(query, mode=mode, min_score=0)["hits"] == best


def test_the_named_collection(server: Running) -> None:
    answer = server.search(QUERY, collection="others")
    assert answer["collection"] == "others"
    assert [hit["rank"] for hit in answer["hits"]] == list(range(1, 8))


def test_batch_is_each_query_alone_in_order(server: Running) -> None:
    queries = [f"{word} in the {place}" for word in ("cats", "dogs", "parrots") for place in ("bowl", "field")] * 15
    response = server.post("/v1/search/batch", {"queries": queries, "k": 2})
    assert response.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in response.text.splitlines()]
    assert [line["query"] for line in lines] == queries
    for line in lines[:6]:
        alone = server.search(line["query"], k=2)
        assert [hit["id"] for hit in line["hits"]] == [hit["id"] for hit in alone["hits"]]
        assert [hit["score"] for hit in line["hits"]] == pytest.approx(
            [hit["score"] for hit in alone["hits"]], abs=1e-5
        )


def test_similar(server: Running, made_collection: Path) -> None:
    answer = server.post("/v1/similar", {"id": "cat", "k": 3, "where": ["legs > 0"]}).json()
    SimilarAnswer.model_validate(answer)
    with Retriever.open(made_collection) as retriever:
        expected = [hit.id for hit in retriever.similar("cat", 3, where=["legs > 0"])]
    assert [hit["id"] for hit in answer["hits"]] == expected
    assert "cat" not in expected


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: repr(document["id"]))
def test_document_by_any_id(server: Running, document: dict[str, object]) -> None:
    response = server.get(f"/v1/documents/{quote(str(document['id']), safe='')}")
    found = Document.model_validate_json(response.content)
    assert (found.id, found.text) == (document["id"], document["text"])


def test_markup_comes_as_data_that_no_browser_runs(server: Running) -> None:
    response = server.get("/v1/documents/script")
    assert response.json()["text"] == SCRIPT
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-content-type-options"] == "nosniff"


def test_similar_to_a_path_like_id(server: Running) -> None:
    assert len(server.post("/v1/similar", {"id": STRANGE_ID}).json()["hits"]) == 6


def test_fields(server: Running) -> None:
    found = {field.name: field for field in Fields.model_validate_json(server.get("/v1/fields").content).fields}
    assert {name: field.documents for name, field in found.items()} == {
        "legs": 5,
        "tags": 1,
        "lang": 1,
        "known": 1,
        "place.city": 1,
        "<i>": 1,
    }
    assert [(one.value, one.count) for one in found["legs"].values] == [(4, 3), (0, 1), (2, 1)]
    assert [one.value for one in found["tags"].values] == ["pet", "water"]
    assert found["known"].values[0].value is True
    for name, field in found.items():  # each can be used as a filter
        value = json.dumps(field.values[0].value, ensure_ascii=False)
        assert server.search("anything at all", where=[f"'{name}' = {value}"])["hits"], name


def test_fields_are_those_a_filter_can_name(fresh: Fresh) -> None:
    folder = fresh()
    metadata = {
        "whole.name": "a b",
        "in": {"side": {"x y": 1}, "to.p": 1, "nul\0": 1},
        "with.dot": {"below": 1},
        "big": [2**53, -(2**60), 2**53 - 1],
        "deep." * 20 + "end": 1,
    }
    with Retriever.open(folder) as retriever:
        retriever.add([{"id": "new", "text": "a new one", "metadata": metadata}])
    with running([folder]) as server:
        found = {field["name"]: field for field in server.get("/v1/fields").json()["fields"]}
        assert {"whole.name", "in.side.x y", "in.nul", "big"} == set(found) - {"legs", "tags", "lang", "known"} - {
            "place.city",
            "<i>",
        }
        assert ([one["value"] for one in found["big"]["values"]], found["big"]["more"]) == ([2**53 - 1], True)
        for name, field in found.items():
            value = json.dumps(field["values"][0]["value"], ensure_ascii=False)
            assert server.search("anything at all", where=[f"'{name}' = {value}"])["hits"], name


def test_many_fields_and_values_are_cut(fresh: Fresh) -> None:
    folder = fresh()
    with Retriever.open(folder) as retriever:
        retriever.add(
            [
                {"id": f"n{n}", "text": f"text number {n}", "metadata": {"n": n, f"rare{n}": "x", "long": "y" * 300}}
                for n in range(60)
            ]
        )
    with running([folder]) as server:
        found = {field["name"]: field for field in server.get("/v1/fields").json()["fields"]}
    assert len(found) == 50
    assert (len(found["n"]["values"]), found["n"]["more"]) == (20, True)
    assert (found["long"]["values"], found["long"]["more"]) == ([], True)


def test_add_change_and_delete(fresh: Fresh) -> None:
    with running([fresh()], writable=True) as server:
        assert server.get("/v1/collections").json()["collections"][0]["writable"] is True
        new = {"id": "snake/1", "text": "Snakes have no legs at all.", "metadata": {"legs": 0}}
        changed = {"id": "dog", "text": "Dogs guard the house.", "title": "Dogs"}
        unchanged = {"id": "bird", "text": DOCUMENTS[3]["text"], "metadata": {"legs": 2, "lang": "en"}}
        skipped = {"id": "empty", "text": "   "}
        response = server.post("/v1/documents", {"documents": [new, changed, unchanged, skipped]})
        added = Added.model_validate_json(response.content)
        assert (added.new, added.changed, added.unchanged) == (1, 1, 1)
        assert [(one.where, "no text" in one.reason) for one in added.skipped] == [("document 4", True)]
        assert server.search("Snakes have no legs at all.", k=1)["hits"][0]["id"] == "snake/1"
        assert server.get("/v1/documents/dog").json()["text"] == "Dogs guard the house."
        assert server.get("/v1/collections").json()["collections"][0]["documents"] == 8
        zero = {"value": 0, "count": 2}
        assert zero in next(f["values"] for f in server.get("/v1/fields").json()["fields"] if f["name"] == "legs")
        assert server.client.delete("/v1/documents/snake%2F1").json() == {"collection": "pets", "deleted": ["snake/1"]}
        assert server.client.delete("/v1/documents/snake%2F1").status_code == 404
        assert server.get("/v1/collections").json()["collections"][0]["documents"] == 7
        assert "snake/1" not in [hit["id"] for hit in server.search("Snakes have no legs at all.")["hits"]]


def test_adding_nothing_that_can_be_stored_says_why_of_each(fresh: Fresh) -> None:
    with running([fresh()], writable=True) as server:
        documents = [{"id": "a", "text": " "}, {"id": " ", "text": "x"}]
        response = server.post("/v1/documents", {"documents": documents})
        assert response.status_code == 200
        added = Added.model_validate_json(response.content)
        assert (added.new, added.changed, added.unchanged, added.generation) == (0, 0, 0, 1)
        assert [one.where for one in added.skipped] == ["document 1", "document 2"]


def test_health_ready_and_metrics(server: Running) -> None:
    assert server.get("/health").json() == server.get("/ready").json() == {"state": "ok"}
    server.search(QUERY)
    server.get("/v1/documents/cat")
    server.get("/nowhere/at/all")
    text = server.get("/metrics").text
    assert 'retriever_requests_total{method="POST",route="/v1/search",status="200"}' in text
    assert 'retriever_requests_total{method="GET",route="/v1/documents/{id}",status="200"}' in text
    assert 'route="none",status="404"' in text
    assert 'retriever_documents{collection="others"} 7.0' in text
    assert "retriever_batch_queries_count" in text
    assert "/nowhere" not in text


def test_page_files_have_etags(server: Running) -> None:
    for file in PAGE.glob("*.[chj]*"):
        first = server.get(f"/{file.name}")
        again = server.get(f"/{file.name}", headers={"If-None-Match": first.headers["etag"]})
        assert (first.status_code, again.status_code, again.content) == (200, 304, b"")


def test_title_description_and_examples(fresh: Callable[[str], Path]) -> None:
    folder = fresh("pets")
    with running([folder]) as server:
        (one,) = server.get("/v1/collections").json()["collections"]
        assert (one["title"], one["description"]) == (None, None)
        with Retriever.open(folder) as retriever:
            retriever.describe(title="Pets <b>", description="Animals.")
        (one,) = server.get("/v1/collections").json()["collections"]
        assert (one["title"], one["description"]) == ("Pets <b>", "Animals.")
        found = server.get("/v1/examples").json()["examples"]
        texts = " ".join(f"{document.get('title', '')} {document['text']}" for document in DOCUMENTS)
        assert len(found) == 3 and all(text in texts for text in found)
        assert server.get("/v1/examples", params={"collection": "nowhere"}).status_code == 404


def test_numbers_and_dates_have_a_range_and_values_can_be_searched(tiny_bert: str, tmp_path: Path) -> None:
    documents = [
        {
            "id": str(n),
            "text": f"number {n}",
            "metadata": {
                "year": 1990 + n % 30,
                "price": str(n / 4),  # as from a CSV file
                "day": f"2020-{1 + n % 12:02d}-{1 + n % 28:02d}",
                "at": f"2020-01-{1 + n % 28:02d}T10:00:00Z",
                "grade": n % 3,
                "author": f"Person {n} of <b>Zürich</b>",
                "odd": [float("1e308"), -1e308, n][n % 3],
            },
        }
        for n in range(60)
    ]
    documents[7]["metadata"] |= {"day": "2020-02-31", "year": 10**400}  # type: ignore[operator]
    Retriever.build(documents, tmp_path / "c", encoder=tiny_bert, transform="none", precision="fp32").close()
    with running([tmp_path / "c"]) as server:
        found = {one["name"]: one for one in server.get("/v1/fields").json()["fields"]}
        ranges = {name: one["range"] for name, one in found.items()}
        assert ranges["grade"] is ranges["author"] is None
        year = ranges["year"]
        assert (year["kind"], year["least"], year["greatest"], year["whole"]) == ("number", 1990, 2019, True)
        assert sum(year["histogram"]) == 59 and all(many >= 0 for many in year["histogram"])
        assert (ranges["price"]["least"], ranges["price"]["greatest"], ranges["price"]["whole"]) == (0, 14.75, False)
        day, at = ranges["day"], ranges["at"]
        assert (day["kind"], day["least"], day["whole"], at["kind"], at["whole"]) == (
            "date",
            "2020-01-01",
            True,
            "date",
            False,
        )
        assert at["greatest"] == "2020-01-28" and sum(ranges["odd"]["histogram"]) == 60
        # What the page asks for finds what it shows.
        hits = server.search("number", k=100, mode="dense", where=["day >= '2020-03-01'", "day <= '2020-03-31'"])[
            "hits"
        ]
        assert {hit["metadata"]["day"][:7] for hit in hits} == {"2020-03"}
        assert len(server.search("number", k=100, mode="dense", where=["price >= 14", "price <= 14.75"])["hits"]) == 4

        def values(**asked: str) -> dict[str, Any]:
            answer = server.get("/v1/fields/values", params={"field": "author", **asked})
            assert answer.status_code == 200
            return dict(answer.json())

        assert [one["value"] for one in values(contains="PERSON 42 OF")["values"]] == ["Person 42 of <b>Zürich</b>"]
        assert len(values(contains="zürich")["values"]) == 20 and values(contains="zürich")["more"]
        assert values(contains="nobody") == {"values": [], "more": False}
        assert server.get("/v1/fields/values", params={"field": "nothing"}).status_code == 404
        assert server.get("/v1/fields/values").status_code == 422


def test_a_document_says_where_an_offset_is(tiny_bert: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    text = "# Cats\n\nThey purr.\n\n## Food\n\nThey eat mice.\n"
    (tmp_path / "in" / "pets.md").write_text(text, encoding="utf-8")
    encoder = {"encoder": tiny_bert, "transform": "none", "precision": "fp32"}
    Retriever.build(Corpus([tmp_path / "in"]), tmp_path / "c", **encoder).close()
    with running([tmp_path / "c"]) as server:
        stored = server.get("/v1/documents/pets.md").json()
        assert stored["place"]["line"] == 3 and stored["text"].startswith("They purr")
        start = stored["text"].index("They eat")
        place = server.get("/v1/documents/pets.md", params={"start": start}).json()["place"]
        assert place == {"file": "pets.md", "line": 7, "page": None, "headings": ["Cats", "Food"]}
        assert server.get("/v1/documents/pets.md", params={"start": -1}).status_code == 422
        assert server.get("/v1/documents/pets.md", params={"start": 10**6}).status_code == 200


def test_a_search_in_the_url_is_the_same_search(server: Running) -> None:
    asked: dict[str, Any] = {"k": 2, "mode": "dense", "where": ["legs >= 2", "legs <= 4"], "highlight": True}
    posted = server.search("hunts at night", **asked)
    response = server.get("/v1/search", params={"q": "hunts at night", **asked})
    assert response.status_code == 200, response.text
    assert response.json() | {"took_ms": 0} == posted | {"took_ms": 0}
    other = server.get("/v1/search", params={"q": "cats", "collection": "others"}).json()
    assert other["collection"] == "others" and other["mode"] == "hybrid"


@pytest.mark.parametrize(
    ("query", "field"),
    [("", "q"), ("q=", "q"), ("q=x&k=many", "k"), ("q=x&what=1", "what"), ("q=x&where=+", "where.0")],
)
def test_a_wrong_search_in_the_url_is_named(server: Running, query: str, field: str) -> None:
    response = server.get(f"/v1/search?{query}")
    assert response.status_code == 422
    assert [one["field"] for one in response.json()["errors"]] == [field]
