"""The map over HTTP: made beside the searches, its points, colours and documents."""

import base64
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving import DOCUMENTS, STRANGE_ID, Running, running

from retriever import Retriever
from retriever.serve import maps


@pytest.fixture(autouse=True)
def no_maps(own_cache: Path) -> None:
    for path in (own_cache / "maps").glob("*.npz"):
        path.unlink()


def ready(server: Running, **options: Any) -> dict[str, Any]:
    """Ask until the map is there."""
    while (answer := server.get("/v1/map", **options)).status_code == 202:
        making = answer.json()
        assert making["state"] == "making" and 0 <= making["done"] <= 1 and making["what"]
        assert server.search("purring")["hits"]  # searches go on
        time.sleep(0.05)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def codes(answer: dict[str, Any]) -> list[int]:
    return list(base64.b64decode(answer["codes"]))


def test_points_and_their_documents(fresh: Callable[[str], Path]) -> None:
    with running([fresh("pets")]) as server:
        assert server.get("/v1/map").status_code == 202
        found = ready(server)
        assert found["state"] == "ready" and found["documents"] == len(DOCUMENTS) and found["missing"] == 0
        assert sum(one["documents"] for one in found["clusters"]) == len(DOCUMENTS)
        key, count = {"key": found["key"]}, len(DOCUMENTS)
        points = server.get("/v1/map/points", params=key)
        assert points.headers["content-type"] == "application/octet-stream" and len(points.content) == 5 * count
        x, y = np.frombuffer(points.content[: 4 * count], "<u2").reshape(2, count)
        assert len(set(zip(x.tolist(), y.tolist(), strict=True))) == count
        clusters = np.frombuffer(points.content[4 * count :], np.uint8)
        assert np.bincount(clusters).tolist() == [one["documents"] for one in found["clusters"]]

        answer = server.post("/v1/map/locate", {**key, "ids": ["cat", STRANGE_ID, "nobody"]}).json()
        assert answer["numbers"][2] is None
        point = server.get(f"/v1/map/points/{answer['numbers'][0]}", params=key).json()
        assert point == {"id": "cat", "title": "Cats", "passage": DOCUMENTS[0]["text"]}
        assert server.get(f"/v1/map/points/{answer['numbers'][1]}", params=key).json()["id"] == STRANGE_ID
        everyone = [server.get(f"/v1/map/points/{n}", params=key).json()["id"] for n in range(count)]
        assert sorted(everyone) == sorted(one["id"] for one in DOCUMENTS)

        legs = server.get("/v1/map/colours", params={**key, "field": "legs"}).json()
        assert legs["kind"] == "category" and set(legs["values"]) == {"0", "2", "4"}
        names = dict(zip(everyone, codes(legs), strict=True))
        assert legs["values"][names["cat"]] == "4" and names["script"] == 255
        city = server.get("/v1/map/colours", params={**key, "field": "place.city"}).json()
        assert city["values"] == ["Zürich"] and codes(city).count(255) == count - 1
        tag = server.get("/v1/map/colours", params={**key, "field": "<i>"}).json()
        assert tag["values"] == ["<img src=x onerror=alert(1)>"]


def test_what_is_wrong_is_said(server: Running) -> None:
    key = ready(server)["key"]
    for path, params, status in (
        ("/v1/map", {"collection": "nowhere"}, 404),
        ("/v1/map/points", {}, 422),
        ("/v1/map/points", {"key": "another"}, 404),
        ("/v1/map/points/0", {"key": "another"}, 404),
        ("/v1/map/points/99", {"key": key}, 404),
        ("/v1/map/points/-1", {"key": key}, 422),
        ("/v1/map/points/x", {"key": key}, 422),
        ("/v1/map/colours", {"key": key}, 422),
        ("/v1/map/colours", {"key": key, "field": "nothing"}, 404),
        ("/v1/map/colours", {"key": key, "field": "place"}, 404),
    ):
        answer = server.get(path, params=params)
        assert answer.status_code == status, (path, params, answer.text)
        assert answer.headers["content-type"] == "application/problem+json" and answer.json()["status"] == status
    for body in ({"key": key}, {"key": key, "ids": "cat"}, {"key": key, "ids": ["x"] * 1001}, {"ids": []}):
        assert server.post("/v1/map/locate", body).status_code == 422, body
    assert server.post("/v1/map/locate", {"key": "another", "ids": []}).status_code == 404


def test_it_is_made_once_and_then_read(fresh: Callable[[str], Path]) -> None:
    folder = fresh("pets")
    with running([folder]) as server:
        first = ready(server)
    with Retriever.open(folder) as retriever:
        assert retriever.map().key == first["key"]
    with running([folder]) as server:
        answer = server.get("/v1/map")
        assert answer.status_code == 200 and answer.json()["key"] == first["key"]


def test_documents_that_come_and_go(fresh: Callable[[str], Path]) -> None:
    with running([fresh("pets")], writable=True) as server:
        first = ready(server)
        point = server.post("/v1/map/locate", {"key": first["key"], "ids": ["dog"]}).json()["numbers"][0]
        server.post("/v1/documents", {"documents": [{"id": "hamster", "text": "Hamsters run in wheels at night."}]})
        assert server.client.delete("/v1/documents/dog").status_code == 200
        shown = server.get("/v1/map").json()
        assert shown["state"] == "ready"  # the old one, until the new one is there
        if shown["key"] == first["key"]:
            assert shown["missing"] == 1
            gone = server.get(f"/v1/map/points/{point}", params={"key": first["key"]})
            assert gone.status_code == 404 and "deleted" in gone.json()["detail"]
        while (after := ready(server))["key"] == first["key"]:
            time.sleep(0.05)
        assert after["missing"] == 0 and after["documents"] == first["documents"]
        assert server.get("/v1/map/points", params={"key": first["key"]}).status_code == 200
        found = server.post("/v1/map/locate", {"key": after["key"], "ids": ["hamster", "dog"]}).json()["numbers"]
        assert found[0] is not None and found[1] is None


def test_a_scale_of_numbers(tiny_bert: str, tmp_path: Path) -> None:
    documents = [
        {
            "id": str(n),
            "text": f"number {n}",
            "metadata": {"year": 1900 + n, "grade": n % 3, "url": f"u{n}", "on": n > 9},
        }
        for n in range(30)
    ]
    documents[3]["metadata"] = {"year": "1903", "grade": 1}
    documents[4]["metadata"] = {"year": None}
    documents[5]["metadata"] = {"year": 10**400, "grade": [2, 1]}
    Retriever.build(documents, tmp_path / "years", encoder=tiny_bert, transform="none", precision="fp32").close()
    with running([tmp_path / "years"]) as server:
        while (answer := server.get("/v1/map")).status_code == 202:
            time.sleep(0.05)
        found = answer.json()
        assert set(found["fields"]) == {"year", "grade", "on"}
        key = {"key": found["key"]}
        at = server.post("/v1/map/locate", {**key, "ids": [str(n) for n in range(30)]}).json()["numbers"]
        year = server.get("/v1/map/colours", params={**key, "field": "year"}).json()
        assert (year["kind"], year["least"], year["greatest"]) == ("number", 1900, 1929)
        scale = [codes(year)[place] for place in at]
        assert scale[0] == 0 and scale[29] == 254 and scale[3] == round(254 * 3 / 29) and scale[4] == scale[5] == 255
        grade = server.get("/v1/map/colours", params={**key, "field": "grade"}).json()
        assert grade["kind"] == "category" and sorted(grade["values"]) == ["0", "1", "2"]
        assert grade["values"][codes(grade)[at[5]]] == "2"
        on = server.get("/v1/map/colours", params={**key, "field": "on"}).json()
        assert on["values"][codes(on)[at[20]]] == "true"


def test_a_token_is_needed(fresh: Callable[[str], Path]) -> None:
    with running([fresh("pets")], token="secret") as server:
        for path in ("/v1/map", "/v1/map/points?key=x", "/v1/card", "/v1/card.html"):
            assert server.get(path).status_code == 401


def test_a_map_that_cannot_be_made(fresh: Callable[[str], Path]) -> None:
    folder = fresh("pets")
    with running([folder]) as server:
        for path in (folder / "generations").glob("*/transform*"):
            path.write_bytes(b"damaged")
        while (answer := server.get("/v1/map")).status_code == 202:
            time.sleep(0.05)
        assert answer.status_code == 503 and str(folder) not in answer.text
        assert server.search("purring")["hits"]


def test_the_process_ends_with_the_one_that_started_it(made_collection: Path, tmp_path: Path) -> None:
    target = tmp_path / "map.npz"
    command = [sys.executable, "-m", "retriever.serve.map_process", str(made_collection), str(target)]
    process = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
    assert process.returncode == 1 and not target.exists()


def test_the_process_ends_cleanly(made_collection: Path, tmp_path: Path) -> None:
    """Its standard input stays open, as a server keeps it."""
    target = tmp_path / "map.npz"
    command = [sys.executable, "-m", "retriever.serve.map_process", str(made_collection), str(target)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        assert process.wait() == 0, said
    assert "Fatal" not in said and target.exists()


def test_a_process_that_fails_is_told_and_tried_again(
    fresh: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another Python runs it, which prints what is no JSON and fails with a word on standard error."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho Downloading...\necho '[1]'\necho '{}'\necho why it failed >&2\nexit 3\n")
    python.chmod(0o755)
    with running([fresh("pets")]) as server, monkeypatch.context() as patched:
        patched.setattr(maps.sys, "executable", str(python))
        while (answer := server.get("/v1/map")).status_code == 202:
            time.sleep(0.05)
        assert answer.status_code == 503 and "log" in answer.json()["detail"]
        assert "why it failed" in caplog.text
        patched.undo()
        monkeypatch.setattr(maps, "RETRY_AFTER", 0.0)
        assert ready(server)["documents"] == len(DOCUMENTS)
