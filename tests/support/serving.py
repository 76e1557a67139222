"""A real server for tests: uvicorn in a thread, asked over HTTP."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from retriever.serve.app import create_app
from retriever.serve.collections import ServedCollections
from retriever.serve.server import Server, listening_socket, url_of
from retriever.serve.settings import Settings

STRANGE_ID = "a/../b c/\nü?x=1#y%2F\n"
SCRIPT = "<script>alert('1')</script> is what a page might run."

DOCUMENTS: list[dict[str, Any]] = [
    {"id": "cat", "title": "Cats", "text": "Cats purr when they are content. They hunt mice at night.", "legs": 4},
    {"id": "dog", "title": "Dogs", "text": "Dogs bark at strangers. They like to fetch sticks.", "legs": 4},
    {"id": "fish", "text": "Goldfish swim round and round in a bowl.", "legs": 0, "tags": ["water", "pet"]},
    {"id": "bird", "text": "Parrots can learn to speak a few words.", "legs": 2, "lang": "en"},
    {"id": "horse", "text": "Horses gallop over the fields in the morning.", "legs": 4, "known": True},
    {"id": STRANGE_ID, "text": "An id may hold anything: ∀ 🐈‍⬛ é.", "metadata": {"place": {"city": "Zürich"}}},
    {"id": "script", "title": "<b>bold</b>", "text": SCRIPT, "metadata": {"<i>": "<img src=x onerror=alert(1)>"}},
]


@dataclass
class Running:
    """A server that runs, and a client of it."""

    url: str
    client: httpx.Client
    app: FastAPI

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.client.get(path, **options)

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        return self.client.post(path, json=body, **options)

    def search(self, query: str, **options: Any) -> dict[str, Any]:
        response = self.post("/v1/search", {"query": query, **options})
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer


@contextmanager
def running(folders: Sequence[Path], **options: Any) -> Iterator[Running]:
    """Serve collections on a free port, and wait until they are loaded."""
    settings = Settings(port=0, **options)
    collections = ServedCollections(folders, encoder=settings.encoder)
    listening = listening_socket(settings.host, 0)
    app = create_app(collections, settings)
    server = Server(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    url = url_of(listening)
    try:
        with httpx.Client(base_url=url, timeout=60) as client:
            while client.get("/ready").status_code != 200:
                time.sleep(0.01)
            yield Running(url, client, app)
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
