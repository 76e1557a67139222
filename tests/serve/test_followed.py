"""A folder of collections that is served: what is added, removed and replaced while clients search."""

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from samples import Run
from serving_process import served

from retriever.cli.places import every
from retriever.retriever import Retriever

Fresh = Callable[..., Path]
PATIENCE = 60


def names(url: str) -> list[str]:
    return [one["name"] for one in httpx.get(f"{url}v1/collections", timeout=PATIENCE).json()["collections"]]


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.1)


@contextmanager
def searching(url: str, **body: object) -> Iterator[list[tuple[int, str]]]:
    """Four clients that search all the time, and the statuses and best hits that they got."""
    found: list[tuple[int, str]] = []
    stop = threading.Event()

    def search() -> None:
        with httpx.Client(base_url=url, timeout=PATIENCE) as client:
            while not stop.is_set():
                response = client.post("/v1/search", json={"query": "which animal", "k": 1, **body})
                hits = response.json().get("hits")
                found.append((response.status_code, hits[0]["id"] if hits else response.text))

    threads = [threading.Thread(target=search) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield found
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_collections_are_found_and_dropped(fresh: Fresh, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    shutil.move(fresh("pets"), home / "pets")
    later = fresh("later")
    log: list[str] = []
    with served(home, "--log-level", "info") as (process, url, _):
        assert process.stderr
        reading = threading.Thread(target=log.extend, args=[process.stderr])
        reading.start()
        assert names(url) == ["pets"]
        (home / "notes").mkdir()
        (home / "notes" / "documents.sqlite").write_bytes(b"this is no database" * 100)
        with searching(url) as found:
            later.rename(home / "later")
            until(lambda: names(url) == ["pets", "later"])
            answer = httpx.post(f"{url}v1/search", json={"query": "cats", "collection": "later"}).json()
            assert answer["collection"] == "later" and answer["hits"]
            assert 'collection="later"' in httpx.get(f"{url}metrics").text
            (home / "later").rename(later)
            until(lambda: names(url) == ["pets"])
        assert {status for status, _ in found} == {200}
        gone = httpx.post(f"{url}v1/search", json={"query": "cats", "collection": "later"})
        assert gone.status_code == 404 and "pets" in gone.json()["detail"]
        assert 'collection="later"' not in httpx.get(f"{url}metrics").text
        (home / "pets").rename(tmp_path / "away")
        until(lambda: names(url) == [])
        assert httpx.post(f"{url}v1/search", json={"query": "cats"}).status_code == 503
        (tmp_path / "away").rename(home / "pets")
        until(lambda: names(url) == ["pets"])
        process.terminate()
        assert process.wait(PATIENCE) == 0
        reading.join()
    messages = [json.loads(line)["message"] for line in log]
    for what in ("added", "removed"):
        assert messages.count(f"the collection later was {what}") == 1
    assert sum("notes is not served" in one for one in messages) == 1  # although the server looked many times


def test_a_collection_that_was_named_is_not_dropped(fresh: Fresh, tmp_path: Path) -> None:
    """Only a folder of collections says that what is missing was removed on purpose."""
    one, two = fresh("one"), fresh("two")
    with served(one, two) as (_, url, _):
        two.rename(tmp_path / "away")
        time.sleep(3)
        assert httpx.post(f"{url}v1/search", json={"query": "cats", "collection": "two"}).status_code == 503
        assert names(url) == ["one", "two"]


@pytest.mark.parametrize("followed", [True, False], ids=["in a folder", "named"])
def test_rolling_over_fails_no_request(fresh: Fresh, tiny_bert: str, tmp_path: Path, followed: bool) -> None:
    """The commands of the documentation, under load: build the next one elsewhere, then rename twice."""
    home = tmp_path / "collections"
    home.mkdir()
    live = home / "pets"
    shutil.move(fresh("made"), live)
    for number in range(3):
        texts = [{"id": f"{number}-{n}", "text": f"Animal {n} of turn {number} has {n} legs."} for n in range(20)]
        path = tmp_path / "next" / str(number) / "pets"
        Retriever.build(texts, path, encoder=tiny_bert, transform="whiten", precision="fp32").close()
    with served(home if followed else live) as (_, url, _), searching(url) as found:
        for number in range(3):
            until(lambda: len(found) > 20)
            move = f"mv {live} {tmp_path}/before-{number} && mv {tmp_path}/next/{number}/pets {live}"
            subprocess.run(move, shell=True, check=True)
            until(lambda wanted=f"{number}-": found[-1][1].startswith(wanted))  # type: ignore[misc]
            found_before = len(found)
            until(lambda before=found_before: len(found) > before + 20)  # type: ignore[misc]
            assert {best.partition("-")[0] for _, best in found[found_before + 4 :]} == {str(number)}
    assert {status for status, _ in found} == {200}, [text for status, text in found if status != 200][:3]


def test_an_empty_folder_waits_for_its_first_collection(fresh: Fresh, tmp_path: Path) -> None:
    """A container with a new volume starts, and says what is missing. A volume may hold an empty folder of its own."""
    home, first = tmp_path / "volume", fresh("first")
    (home / "lost+found").mkdir(parents=True)
    with served(home) as (_, url, said):
        assert f"There is no collection in {home} yet. Make one with: retriever index SOURCE -i {home}/NAME" in said[0]
        assert names(url) == []
        refused = httpx.get(f"{url}v1/search", params={"q": "cats"})
        assert refused.status_code == 503 and "no collection" in refused.json()["detail"]
        assert httpx.get(f"{url}v1/search", params={"q": "cats", "collection": "first"}).status_code == 404
        first.rename(home / "first")
        until(lambda: names(url) == ["first"])
        assert httpx.get(f"{url}v1/search", params={"q": "cats"}).json()["hits"]


def test_what_people_say_of_a_collection_that_came_later(fresh: Fresh, tmp_path: Path) -> None:
    home, later = tmp_path / "home", fresh("later")
    home.mkdir()
    with Retriever.open(later) as retriever:
        retriever.describe(title="Later animals")
    with served(home) as (_, url, _):
        later.rename(home / "later")
        until(lambda: names(url) == ["later"])
        assert httpx.get(f"{url}v1/collections").json()["collections"][0]["title"] == "Later animals"
        assert httpx.get(f"{url}v1/examples", params={"collection": "later"}).json()["examples"]
        with Retriever.open(home / "later") as retriever:
            retriever.describe(title="", description="Described while it is served.")
        (told,) = httpx.get(f"{url}v1/collections").json()["collections"]
        assert (told["title"], told["description"]) == (None, "Described while it is served.")


def test_a_damaged_collection_does_not_keep_the_others_from_being_served(
    fresh: Fresh, tmp_path: Path, run: Run
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for name in ("notes", "pets", "texts"):
        shutil.move(fresh(name), home / name)
    (home / "notes" / "documents.sqlite").write_bytes(b"this is no database" * 100)
    (index,) = (home / "texts").glob("generations/*/vectors.faiss")
    index.write_bytes(b"")
    with served(home) as (process, url, _):
        assert names(url) == ["pets"]
        assert httpx.get(f"{url}v1/search", params={"q": "cats"}).json()["hits"]
        process.terminate()
        assert process.wait(PATIENCE) == 0 and process.stderr
        messages = [json.loads(line)["message"] for line in process.stderr]
    for name in ("notes", "texts"):
        assert sum(f"the collection in {home / name} is not served: " in one for one in messages) == 1
    shutil.rmtree(home / "pets")
    assert "verify --repair" in run("serve", home, code=1).output  # there is nothing to serve


def test_a_folder_that_is_named_twice_is_served_once(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "collections").mkdir()
    for name in ("notes", "pets"):
        shutil.move(fresh(name), tmp_path / "collections" / name)
    monkeypatch.chdir(tmp_path)
    home, named = Path("collections"), tmp_path / "collections" / "pets"
    assert every([home], [named], [home]) == (named, home / "notes")


def test_folders_that_hold_no_collection_are_refused(run: Run, tmp_path: Path) -> None:
    notes, damaged = tmp_path / "notes", tmp_path / "damaged"
    notes.mkdir()
    (notes / "a.txt").write_text("A note.")
    (damaged / "generations").mkdir(parents=True)  # the database is lost
    for folder in (notes, damaged, tmp_path / "missing"):
        assert "retriever index SOURCE" in run("serve", folder, code=2).output
    (tmp_path / "empty").mkdir()
    assert "is not a collection" in run("mcp", tmp_path / "empty", code=2).output  # nothing would ever come
