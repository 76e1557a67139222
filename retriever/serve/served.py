"""A collection that is served: what is known of it, who uses it, and the threads that read and change it."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from retriever.encoder.model_files import public_name
from retriever.errors import RetrieverError
from retriever.progress import silent
from retriever.retriever import Retriever
from retriever.search.facets import Facet, facets
from retriever.serve.problems import log, problem_of

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
    """One open collection. What is slow or writes has a thread of its own here, so that searches do not wait for it.

    Who uses it holds it: when another has taken its place it is closed once nobody does.
    """

    def __init__(self, name: str, retriever: Retriever) -> None:
        self.name = name
        self.retriever = retriever
        retriever.local.store.owner_detects_replacement = True
        self.facts = _facts(retriever)
        self._facts_version: tuple[int, ...] | None = None
        self._facets: tuple[tuple[int, ...], list[Facet]] | None = None
        # One thread, whose connection sees every change of all the others by its data_version.
        self._reading = ThreadPoolExecutor(1, f"facts-{name}")
        self._writing = ThreadPoolExecutor(1, f"writing-{name}")
        self._holders = 0
        self._retired = False
        self._counting = threading.Lock()
        self._closing = threading.Lock()

    @property
    def generation(self) -> int | None:
        """The number of the published generation; to be asked in a thread that reads."""
        published = self.retriever.local.published()
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
            version = self.retriever.local.store.data_version
            if version != self._facts_version:
                self.facts, self._facts_version = _facts(self.retriever), version
        except (RetrieverError, sqlite3.Error) as error:
            self.facts, self._facts_version = replace(self.facts, problem=problem_of(error, self.name).detail), None
        return self.facts

    def _read_facets(self) -> list[Facet]:
        try:
            version = self.retriever.local.store.data_version
            if self._facets is None or self._facets[0] != version:
                self._facets = (version, facets(self.retriever.local.store.db.conn))
            return self._facets[1]
        except Exception as error:
            raise problem_of(error, self.name) from error

    # ---- who uses it -------------------------------------------------------------------------------------

    @property
    def replaced(self) -> bool:
        """Whether the folder no longer has what was opened."""
        return self.retriever.local.store.replaced

    def hold(self) -> None:
        """Keep it open until `release`."""
        with self._counting:
            self._holders += 1

    def release(self) -> None:
        with self._counting:
            self._holders -= 1
        self._close_if_done_with()

    def retire(self) -> None:
        """Close it as soon as nobody holds it."""
        self._retired = True
        self._close_if_done_with()

    def _close_if_done_with(self) -> None:
        with self._counting:
            done_with = self._retired and not self._holders
        if done_with:
            threading.Thread(target=self.close, name=f"closing-{self.name}").start()

    def close(self) -> None:
        """Finish what is being written, and close; raises nothing, for nobody could do anything about it."""
        with self._closing:
            self._writing.shutdown()
            self._reading.shutdown()
            try:
                self.retriever.close()
            except Exception as error:
                log.error("the collection %s could not be closed: %s", self.name, error)


def _facts(retriever: Retriever) -> Facts:
    collection, store = retriever.local, retriever.local.store
    generation = collection.generation()
    transform: dict[str, Any] = generation.manifest["transform"] if generation else {}
    return Facts(
        documents=store.count("documents"),
        passages=store.count("passages"),
        encoder=public_name(str(collection.encoder["name"])),
        transform=str(transform.get("spec") or store.setting("transform")),
        generation=generation.number if generation else None,
    )
