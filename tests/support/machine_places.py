"""The places that tests/torture/test_state_machine.py drives: a folder, Milvus Lite, and a server over HTTP."""

import shutil
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from collection_jobs import Contents, contents_of
from serving import Running, running

from retriever import Document, Retriever

Found = list[tuple[str, float]]
"""Ids and scores."""
IN_MILVUS = {"flat": "flat", "sq8": "hnsw"}
"""Milvus has other index types than FAISS."""


class InFolder:
    """A collection in a folder, used by Python."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.address = str(self.folder / "c")

    def build(self, documents: list[dict[str, Any]], **options: Any) -> None:
        self.retriever = Retriever.build(_made(documents), self.address, precision="fp32", **options)

    def add(self, documents: list[dict[str, Any]]) -> None:
        self.retriever.add(_made(documents))

    def delete(self, ids: list[str]) -> list[str]:
        """Return the ids that were there."""
        return self.retriever.delete(ids)

    def rebuild(self, transform: str, index_type: str) -> None:
        self.retriever.rebuild(transform=transform, index_type=index_type)

    def reopen(self) -> None:
        self.retriever.close()
        self.retriever = Retriever.open(self.address)

    def contents(self) -> Contents:
        return contents_of(self.retriever)

    def counts(self) -> set[int]:
        """Return the number of documents, as each part that counts them has it."""
        return {len(self.retriever), self.retriever.info()["documents"]}

    def search(self, query: str, k: int, where: list[str]) -> Found:
        return [(hit.id, hit.score) for hit in self.retriever.search(query, k, where=where, mode="dense")]

    def problems(self) -> list[str]:
        """Return what `verify` finds."""
        return list(map(str, self.retriever.verify().problems))

    def close(self) -> None:
        if hasattr(self, "retriever"):
            self.retriever.close()
        shutil.rmtree(self.folder)


class InMilvus(InFolder):
    """A collection in Milvus Lite, used by Python."""

    def __init__(self) -> None:
        super().__init__()
        self.address = f"milvus:{self.folder / 'm.db'}"

    def build(self, documents: list[dict[str, Any]], **options: Any) -> None:
        super().build(documents, **options | {"index_type": IN_MILVUS[options["index_type"]]})

    def rebuild(self, transform: str, index_type: str) -> None:
        super().rebuild(transform, IN_MILVUS[index_type])

    def contents(self) -> Contents:
        every = map(self.retriever.document, self.retriever)
        return {one.id: (one.title, one.text, one.metadata) for one in every}


class OverHttp(InFolder):
    """A collection that a server lets clients change. `retriever` has the same folder open, and rebuilds the index."""

    _server: AbstractContextManager[Running] | None = None

    def build(self, documents: list[dict[str, Any]], **options: Any) -> None:
        super().build(documents, **options)
        self._start()

    def _start(self) -> None:
        self._server = running([Path(self.address)], writable=True)
        self.http = self._server.__enter__()

    def _stop(self) -> None:
        if self._server:
            self._server.__exit__(None, None, None)
            self._server = None

    def add(self, documents: list[dict[str, Any]]) -> None:
        made = [{key: one[key] for key in ("id", "title", "text")} | {"metadata": {"n": one["n"]}} for one in documents]
        answer = self.http.post("/v1/documents", {"documents": made})
        assert answer.status_code == 200 and not answer.json()["skipped"], answer.text

    def delete(self, ids: list[str]) -> list[str]:
        gone = []
        for id_ in dict.fromkeys(ids):
            answer = self.http.client.delete(f"/v1/documents/{quote(id_)}")
            assert answer.status_code in (200, 404), answer.text
            gone += [id_] * (answer.status_code == 200)
        return gone

    def reopen(self) -> None:
        self._stop()
        self._start()

    def contents(self) -> Contents:
        found = {}
        for id_ in super().contents():
            answer = self.http.get(f"/v1/documents/{quote(id_)}").json()
            found[id_] = (answer["title"], answer["text"], answer["metadata"])
        return found

    def counts(self) -> set[int]:
        (told,) = self.http.get("/v1/collections").json()["collections"]
        return super().counts() | {told["documents"]}

    def search(self, query: str, k: int, where: list[str]) -> Found:
        hits = self.http.search(query, k=k, where=where, mode="dense")["hits"]
        return [(hit["id"], hit["score"]) for hit in hits]

    def close(self) -> None:
        self._stop()
        super().close()


def _made(documents: list[dict[str, Any]]) -> list[Document]:
    return [Document(one["id"], one["text"], one["title"], {"n": one["n"]}) for one in documents]
