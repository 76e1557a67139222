"""Collections that are removed or replaced while they are served."""

import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from serving import Running, running
from serving_process import served

from retriever.retriever import Retriever

Fresh = Callable[..., Path]
QUERY = "Snakes have no legs at all."
PATHS = ("/v1/documents/cat", "/v1/fields", "/v1/card", "/v1/map")


@pytest.fixture(scope="module")
def snakes(tiny_bert: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another collection, whose generation has the same number."""
    folder = tmp_path_factory.mktemp("other") / "pets"
    documents = [{"id": f"snake {n}", "text": f"Snake number {n} is {n} ells long.", "ells": n} for n in range(30)]
    documents.append({"id": "cat", "text": QUERY, "ells": 99})
    Retriever.build(documents, folder, encoder=tiny_bert, transform="whiten", precision="fp32").close()
    return folder


def put_in_place(folder: Path, other: Path) -> None:
    ready = Path(shutil.copytree(other, folder.with_name("ready")))
    folder.rename(folder.with_name("before"))
    ready.rename(folder)


def best(server: Running) -> tuple[str, str]:
    hit = server.search(QUERY, k=1)["hits"][0]
    return hit["id"], hit["passage"]


def test_what_takes_its_place_is_what_everybody_gets(fresh: Fresh, snakes: Path) -> None:
    folder = fresh()
    with running([folder], writable=True) as server:
        for _ in range(4):
            server.search(QUERY)
        for path in PATHS:
            server.get(path)
        put_in_place(folder, snakes)
        found: list[tuple[str, str]] = []
        threads = [threading.Thread(target=lambda: found.append(best(server))) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [("cat", QUERY)] * 12
        assert server.get("/v1/documents/cat").json()["text"] == QUERY
        assert [field["name"] for field in server.get("/v1/fields").json()["fields"]] == ["ells"]
        (listed,) = server.get("/v1/collections").json()["collections"]
        assert (listed["documents"], listed["problem"]) == (31, None)
        assert server.get("/v1/card").json()["info"]["documents"] == 31
        assert server.get("/v1/map").status_code in (200, 202)
        assert server.post("/v1/documents", {"documents": [{"id": "x", "text": "new"}]}).json()["new"] == 1
    with Retriever.open(folder) as retriever:
        assert len(retriever) == 32 and retriever.verify().clean


def test_a_batch_under_way_goes_on_with_what_it_began_with(fresh: Fresh, snakes: Path) -> None:
    folder = fresh()
    with running([folder]) as server:
        queries = [f"query number {number}" for number in range(300)]
        body = {"queries": queries, "mode": "hybrid", "k": 20}
        for _ in range(2):  # by now every thread has read there
            assert server.post("/v1/search/batch", body).status_code == 200
        with server.client.stream("POST", "/v1/search/batch", json=body) as response:
            lines = response.iter_lines()
            next(lines)
            put_in_place(folder, snakes)
            assert best(server) == ("cat", QUERY)
            rest = list(lines)
            assert len(rest) == 299 and not any("snake" in line for line in rest)
        assert best(server) == ("cat", QUERY)


def test_removed_and_there_again(fresh: Fresh) -> None:
    folder, sound = fresh("pets"), fresh("sound")
    with running([folder, sound], writable=True) as server:
        server.search("cats")
        folder.rename(folder.with_name("away"))
        for _ in range(2):
            answers = [server.get(path) for path in PATHS]
            answers.append(server.post("/v1/search", {"query": "cats"}))
            answers.append(server.post("/v1/similar", {"id": "cat"}))
            answers.append(server.post("/v1/documents", {"documents": [{"id": "x", "text": "y"}]}))
            answers.append(server.client.delete("/v1/documents/cat"))
            assert {answer.status_code for answer in answers} == {503}
            assert all(str(folder) not in answer.text for answer in answers)
        first, second = server.get("/v1/collections").json()["collections"]
        assert "cannot be used" in first["problem"] and first["documents"] == 7 and second["problem"] is None
        assert 'retriever_documents{collection="pets"} 7.0' in server.get("/metrics").text
        assert server.search("cats", collection="sound")["hits"]
        assert not folder.exists()
        shutil.copytree(folder.with_name("away"), folder)
        while server.post("/v1/search", {"query": "cats"}).status_code == 503:
            time.sleep(0.1)
        assert server.search("cats")["hits"]
        assert server.get("/v1/collections").json()["collections"][0]["problem"] is None


@pytest.mark.parametrize("gone", [True, False], ids=["removed", "replaced"])
def test_it_ends_without_a_trace_all_the_same(fresh: Fresh, snakes: Path, gone: bool) -> None:
    folder = fresh()
    with served(folder) as (process, url, _):
        httpx.post(f"{url}v1/search", json={"query": "cats"})
        if gone:
            shutil.rmtree(folder)
        else:
            put_in_place(folder, snakes)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stderr and "Traceback" not in process.stderr.read()
