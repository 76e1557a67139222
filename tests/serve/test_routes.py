"""Every route, over HTTP: what it answers is what the Python API says, in the shape that was promised."""

import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from serving import DOCUMENTS, SCRIPT, STRANGE_ID, Running, running

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
    options = {"mode": mode, "space": space, "highlight": True, "where": ["legs >= 2"]}
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
    assert (answer["collection"], answer["query"], answer["generation"]) == ("pets", query, 1)
    assert answer["took_ms"] > 0


def test_min_score_and_the_named_collection(server: Running) -> None:
    best = server.search(QUERY, collection="others")["hits"]
    assert [hit["rank"] for hit in best] == list(range(1, 8))
    kept = server.search(QUERY, collection="others", min_score=best[2]["score"])
    assert kept["hits"] == best[:3]
    assert kept["collection"] == "others"


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
