"""The collections a server answers for: opened, named after their folders, and what is known of each."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from retriever.errors import Misuse, RetrieverError
from retriever.progress import Progress, silent
from retriever.retriever import Retriever
from retriever.serving.facets import Facet, facets
from retriever.serving.problems import Problem, problem_of

Result = TypeVar("Result")


@dataclass(frozen=True)
class Facts:
    """What a collection holds, and why it cannot be read if it cannot."""

    documents: int
    passages: int
    encoder: str
    transform: str
    generation: int | None
    problem: str | None = None


class Served:
    """One collection. What is slow or writes has a thread of its own here, so that searches do not wait for it."""

    def __init__(self, name: str, retriever: Retriever) -> None:
        self.name = name
        self.retriever = retriever
        self.facts = _facts(retriever)
        self._facts_version: tuple[int, ...] | None = None
        self._facets: tuple[tuple[int, ...], list[Facet]] | None = None
        # One thread, whose connection sees every change of all the others by its data_version.
        self._reading = ThreadPoolExecutor(1, f"facts-{name}")
        self._writing = ThreadPoolExecutor(1, f"writing-{name}")

    @property
    def generation(self) -> int | None:
        """The number of the published generation; to be asked in a thread that reads."""
        published = self.retriever.collection.published()
        return published[0] if published else None

    def load(self) -> None:
        """Load encoder and index and search once, so that the first who asks does not wait."""
        if len(self.retriever):
            self.retriever.answer_many(["ready"], 1)
        else:
            self.retriever.encoder().encode(["ready"])
        self.retriever.progress = silent  # what clients have done is not to be told here

    async def current_facts(self) -> Facts:
        """What the collection holds now."""
        return await asyncio.get_running_loop().run_in_executor(self._reading, self._read_facts)

    async def current_facets(self) -> list[Facet]:
        """The metadata fields with their commonest values."""
        return await asyncio.get_running_loop().run_in_executor(self._reading, self._read_facets)

    async def write(self, change: Callable[[], Result]) -> Result:
        """Change the collection, after the changes that came before."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._writing, change)
        except Exception as error:
            raise problem_of(error, self.name) from error

    def _read_facts(self) -> Facts:
        try:
            version = self.retriever.collection.store.data_version
            if version != self._facts_version:
                self.facts, self._facts_version = _facts(self.retriever), version
        except (RetrieverError, sqlite3.Error) as error:
            self.facts, self._facts_version = replace(self.facts, problem=problem_of(error, self.name).detail), None
        return self.facts

    def _read_facets(self) -> list[Facet]:
        try:
            version = self.retriever.collection.store.data_version
            if self._facets is None or self._facets[0] != version:
                self._facets = (version, facets(self.retriever.collection.store.db.conn))
            return self._facets[1]
        except Exception as error:
            raise problem_of(error, self.name) from error

    def close(self) -> None:
        """Finish what is being written, and close."""
        self._writing.shutdown()
        self._reading.shutdown()
        self.retriever.close()


def _facts(retriever: Retriever) -> Facts:
    collection, store = retriever.collection, retriever.collection.store
    generation = collection.generation()
    transform: dict[str, Any] = generation.manifest["transform"] if generation else {}
    return Facts(
        documents=store.count("documents"),
        passages=store.count("passages"),
        encoder=str(collection.encoder["name"]),
        transform=str(transform.get("spec") or store.setting("transform")),
        generation=generation.number if generation else None,
    )


class ServedCollections:
    """All of them by name; the first is the default."""

    def __init__(self, served: Iterable[Served]) -> None:
        self._by_name = {one.name: one for one in served}
        self.default = next(iter(self._by_name.values()))

    @classmethod
    def open(
        cls, folders: Iterable[Path], *, encoder: str | None = None, device: str = "auto", progress: Progress = silent
    ) -> "ServedCollections":
        """Open collections; each goes by its folder's name, which no two may share."""
        named: dict[str, Path] = {}
        for folder in folders:
            name = folder.resolve().name
            if name in named:
                raise Misuse(
                    f"{named[name]} and {folder} would both be called {name!r}, for a collection goes by the name of "
                    "its folder; rename one of them, or serve it on another port."
                )
            named[name] = folder
        opened: list[Served] = []
        try:
            for name, folder in named.items():
                retriever = Retriever.open(folder, encoder=encoder, device=device, progress=progress)
                try:
                    opened.append(Served(name, retriever))
                except BaseException:
                    retriever.close()
                    raise
        except BaseException:
            for one in opened:
                one.close()
            raise
        return cls(opened)

    def __iter__(self) -> Iterator[Served]:
        return iter(self._by_name.values())

    def named(self, name: str | None) -> Served:
        """The collection of this name, or the default one; a problem for the client if there is none."""
        if name is None:
            return self.default
        if name not in self._by_name:
            raise Problem(404, f"there is no collection {name!r}; there are: {', '.join(self._by_name)}.")
        return self._by_name[name]

    def load(self) -> None:
        """Load all of them at once."""
        failures: list[Exception] = []

        def load(one: Served) -> None:
            try:
                one.load()
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=load, args=[one], name=f"loading-{one.name}", daemon=True) for one in self]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def close(self) -> None:
        for one in self:
            one.close()
