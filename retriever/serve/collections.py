"""The collections of a server, by the names of their folders.

A folder may be removed, or replaced by another collection, while the server runs. The server checks this at every
request. It then opens the new collection. As long as that is not possible, it answers 503.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from fastapi import Depends, Request

from retriever.files import folders_by_name
from retriever.info import Summary, summary
from retriever.progress import Progress, silent
from retriever.retriever import Retriever
from retriever.search.facets import Facet, facets
from retriever.serve.models import CollectionParameter
from retriever.serve.problems import Problem, log, problem_of

Kind = Literal["quick read", "slow read", "write"]
Result = TypeVar("Result")

HELD = "held_collections"
REOPEN_AFTER = 1.0
"""Seconds between attempts to open a collection. An attempt may fail because the folder is still being copied."""
MOST_CACHED = 16


class ServedCollection:
    """An open collection with three threads: for quick reads, slow reads and writes. Searches do not wait for them.

    Callers hold the collection while they use it. A retired collection is closed once nobody holds it.
    """

    def __init__(self, name: str, retriever: Retriever) -> None:
        self.name = name
        self.retriever = retriever
        retriever.local.store.owner_detects_replacement = True
        self.summary = Summary(0, 0, "", "", None)
        """The summary as it was last read."""
        self._threads = {kind: ThreadPoolExecutor(1, f"{kind} {name}") for kind in get_args(Kind)}
        self._cache: dict[tuple[str, Hashable], tuple[tuple[int, ...], Any]] = {}
        self._holders = 0
        self._retired = False
        self._lock = threading.Lock()
        self._closing = threading.Lock()

    @property
    def generation(self) -> int | None:
        """The number of the published generation. It is read from the database, so use it only in a worker thread."""
        published = self.retriever.local.published()
        return published[0] if published else None

    def load(self) -> None:
        """Load the encoder and the index by searching once, so that the first client does not wait for this."""
        if len(self.retriever):
            self.retriever.answer_many(["ready"], 1)
        else:
            self.retriever.query_vectors(["ready"])
        self.summary = summary(self.retriever.local)
        self.retriever.progress = silent  # do not show the progress of requests in the server's terminal

    async def current_summary(self) -> Summary:
        self.summary = await self.run("quick read", lambda: summary(self.retriever.local), "summary")
        return self.summary

    async def current_facets(self) -> list[Facet]:
        """Return the metadata fields with their most frequent values."""
        return await self.run("quick read", lambda: facets(self.retriever.local.store), "facets")

    async def run(self, kind: Kind, work: Callable[[], Result], cache_key: Hashable = None) -> Result:
        """Run `work` in the thread of its kind, after everything of this kind that was requested earlier.

        If `cache_key` is given, cache the result until the collection changes.
        """

        def cached() -> Any:
            # `data_version` differs between the connections of the threads, so each thread has its own cache entries.
            key, version = (kind, cache_key), self.retriever.local.store.data_version
            known, result = self._cache.pop(key, (None, None))
            if known != version:
                result = work()
            with self._lock:
                self._cache = dict([*self._cache.items(), (key, (version, result))][-MOST_CACHED:])
            return result

        with self.problems():
            thread = self._threads[kind]
            return await asyncio.get_running_loop().run_in_executor(thread, work if cache_key is None else cached)

    @contextlib.contextmanager
    def problems(self) -> Iterator[None]:
        """Convert errors of the collection into problems for the client."""
        try:
            yield
        except Exception as error:
            raise problem_of(error, self.name) from error

    def hold(self) -> None:
        """Keep the collection open until `release` is called."""
        with self._lock:
            self._holders += 1

    def release(self) -> None:
        with self._lock:
            self._holders -= 1
            unused = self._retired and not self._holders
        if unused:
            threading.Thread(target=self.close, name=f"closing-{self.name}").start()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        self.hold()
        try:
            yield
        finally:
            self.release()

    def retire(self) -> None:
        """Close the collection as soon as nobody holds it."""
        with self.held():
            self._retired = True

    def close(self) -> None:
        """Finish all reads and writes, then close. Errors are only logged, because no caller could handle them."""
        with self._closing:
            for thread in self._threads.values():
                thread.shutdown()
            try:
                self.retriever.close()
            except Exception as error:
                log.error("the collection %s could not be closed: %s", self.name, error)


class CollectionFolder:
    """A served folder, and the collection in it that was opened last."""

    def __init__(self, name: str, open_: Callable[..., Retriever], progress: Progress) -> None:
        self.name = name
        self._open = open_
        self.served = ServedCollection(name, open_(progress=progress))
        self._opening = asyncio.Lock()
        self._failed: tuple[float, str] | None = None

    async def current(self) -> ServedCollection:
        """Return the collection that is in the folder now. Raise a problem if it cannot be opened."""
        if self.served.retriever.local.store.replaced:
            async with self._opening:
                if self.served.retriever.local.store.replaced:  # another request may have opened it
                    await self._reopen()
        return self.served

    async def summary(self) -> tuple[Summary, str | None]:
        """Return the collection's summary and None. If it cannot be read, return the last summary and the reason."""
        try:
            served = await self.current()
            with served.held():
                return await served.current_summary(), None
        except Problem as problem:
            return self.served.summary, problem.detail

    async def _reopen(self) -> None:
        def open_and_load() -> ServedCollection:
            served = ServedCollection(self.name, self._open(progress=silent))
            try:
                served.load()
            except BaseException:
                served.close()
                raise
            return served

        if self._failed and time.monotonic() - self._failed[0] < REOPEN_AFTER:
            raise Problem(503, self._failed[1])
        try:
            served = await asyncio.to_thread(open_and_load)
        except Exception as error:
            problem = problem_of(error, self.name)
            self._failed = (time.monotonic(), problem.detail)
            raise Problem(503, problem.detail) from error
        self._failed = None
        self.served.retire()
        self.served = served


class ServedCollections:
    """All collections of a server by name. The first one is the default. Two folders must not have the same name."""

    def __init__(
        self, folders: Iterable[Path], *, encoder: str | None = None, device: str = "auto", progress: Progress = silent
    ) -> None:
        self._by_name: dict[str, CollectionFolder] = {}
        try:
            for name, folder in folders_by_name(folders).items():
                open_ = partial(Retriever.open, folder, encoder=encoder, device=device)
                self._by_name[name] = CollectionFolder(name, open_, progress)
        except BaseException:
            self.close()
            raise
        self.default = next(iter(self))

    def __iter__(self) -> Iterator[CollectionFolder]:
        return iter(self._by_name.values())

    def named(self, name: str | None) -> CollectionFolder:
        """Return the folder with this name, or the default if `name` is None. Raise a problem for an unknown name."""
        if name is None:
            return self.default
        if name not in self._by_name:
            raise Problem(404, f"there is no collection {name!r}; the collections are: {', '.join(self._by_name)}.")
        return self._by_name[name]

    def load(self) -> None:
        """Load all collections at the same time. Raise the first error, if there is one."""
        failures: list[Exception] = []

        def load(served: ServedCollection) -> None:
            try:
                served.load()
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=load, args=[one.served], daemon=True) for one in self]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def close(self) -> None:
        for one in self:
            one.served.close()


async def requested_collection(request: Request, name: CollectionParameter = None) -> ServedCollection:
    """Return the collection with this name, or the default. Hold it until the request has ended."""
    collections: ServedCollections = request.app.state.collections
    served = await collections.named(name).current()
    request.scope[HELD].enter_context(served.held())
    return served


Served = Annotated[ServedCollection, Depends(requested_collection)]
"""The collection that the URL parameter `collection` names, or the default."""
