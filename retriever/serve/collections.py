"""The collections of a server, by the names of their folders.

A folder may be removed, or replaced by another collection, while the server runs. The server checks this at every
request. It then opens the new collection. As long as that is not possible, it answers 503. If the server was given a
folder of collections, it also finds the collections that are put into it later, and drops those that are removed.
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

from indexes.folder.collection import Collection
from indexes.places import collections_in
from retriever.encoder.functions import is_brought, no_encoder_of_text
from retriever.errors import EncoderUnavailable, Misuse
from retriever.files import folders_by_name
from retriever.info import Summary, summary
from retriever.progress import Progress, silent
from retriever.retriever import Retriever
from retriever.search.facets import RangedFacet, facets
from retriever.serve.logs import COLLECTION
from retriever.serve.models import CollectionParameter
from retriever.serve.problems import Problem, log, problem_of

Kind = Literal["quick read", "slow read", "write"]
Result = TypeVar("Result")

HELD = "held_collections"
REOPEN_AFTER = 1.0
"""Seconds between attempts to open a collection. An attempt may fail because the folder is still being copied."""
SECONDS_TO_RETURN = 1.0
"""A folder is replaced by two renames. Requests that arrive between them wait this long for the second one."""
SECONDS_BETWEEN_LOOKS = 1.0
"""How often the server looks for collections that were added or removed."""
MOST_CACHED = 16
NO_COLLECTION = "this server has no collection now; one that is put into its folder is found within seconds."


class ServedCollection:
    """An open collection with three threads: for quick reads, slow reads and writes. Searches do not wait for them.

    Callers hold the collection while they use it. A retired collection is closed once nobody holds it.
    """

    def __init__(self, name: str, retriever: Retriever) -> None:
        self.name = name
        self.retriever = retriever
        retriever.local.store.owner_detects_replacement = True
        self.summary = Summary(None, None, 0, 0, "", "", None)
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
        self.refuse_without_encoder()
        if len(self.retriever) or is_brought(self.retriever.collection.encoder):
            self.retriever.answer_many(["ready"], 1)
        else:
            self.retriever.query_vectors(["ready"])
        self.summary = summary(self.retriever.local)
        self.retriever.progress = silent  # do not show the progress of requests in the server's terminal

    def refuse_without_encoder(self) -> None:
        """Refuse a collection whose queries nothing in this process can encode."""
        if why := no_encoder_of_text(self.retriever.collection.encoder):
            place = self.retriever.collection.name
            raise EncoderUnavailable(
                f"nothing here can encode a query of {place}, so it cannot be served: {why}. Search it from Python, "
                f"or by words: retriever search --mode lexical --index {place}"
            )

    async def current_summary(self) -> Summary:
        self.summary = await self.run("quick read", lambda: summary(self.retriever.local), "summary")
        return self.summary

    async def current_facets(self) -> list[RangedFacet]:
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

    def __init__(self, name: str, folder: Path, open_: Callable[..., Retriever], progress: Progress) -> None:
        self.name = name
        self.folder = folder
        self._open = open_
        self.served = ServedCollection(name, open_(folder, progress=progress))
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
            served = ServedCollection(self.name, self._open(self.folder, progress=silent))
            try:
                served.load()
            except BaseException:
                served.close()
                raise
            return served

        if self._failed and time.monotonic() - self._failed[0] < REOPEN_AFTER:
            raise Problem(503, self._failed[1])
        if self._failed is None:  # it was there a moment ago
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SECONDS_TO_RETURN):
                    while not Collection.exists(self.folder):
                        await asyncio.sleep(0.01)
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
    """All collections of a server by name. The first one is the default. Two folders must not have the same name.

    `parents` are folders of collections. `look` finds the collections in them that were added or removed.
    """

    def __init__(
        self,
        folders: Iterable[Path],
        parents: Iterable[Path] = (),
        *,
        encoder: str | None = None,
        device: str = "auto",
        progress: Progress = silent,
    ) -> None:
        self._by_name: dict[str, CollectionFolder] = {}
        self.parents = tuple(parents)
        self._open = partial(Retriever.open, encoder=encoder, device=device)
        self._missing: set[str] = set()
        self._not_served: dict[Path, str] = {}
        failures: dict[Path, Exception] = {}
        try:
            for name, folder in folders_by_name(folders).items():
                try:
                    self._by_name[name] = CollectionFolder(name, folder, self._open, progress)
                except Exception as error:
                    failures[folder] = error
            self._leave_out(failures)
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[CollectionFolder]:
        return iter(list(self._by_name.values()))

    @property
    def default(self) -> CollectionFolder:
        """The first collection. Raise a problem if there is none."""
        if not self._by_name:
            raise Problem(503, NO_COLLECTION)
        return next(iter(self))

    def named(self, name: str | None) -> CollectionFolder:
        """Return the folder with this name, or the default if `name` is None. Raise a problem for an unknown name."""
        if name is None:
            return self.default
        if name not in self._by_name:
            known = f"the collections are: {', '.join(self._by_name)}." if self._by_name else NO_COLLECTION
            raise Problem(404, f"there is no collection {name!r}; {known}")
        return self._by_name[name]

    async def look(self) -> None:
        """Serve the collections that were added to the parents, and drop those that were removed from them.

        Collections that were replaced are opened, so that no request has to wait for that. A folder is dropped only if
        it is missing twice, because a folder that is being replaced is missing for a moment.
        """
        found = await asyncio.to_thread(lambda: [one for parent in self.parents for one in collections_in(parent)])
        for folder in found:
            await self._add(folder)
        for one in self:
            if one.folder not in found and one.folder.parent in self.parents:
                if one.name in self._missing:
                    log.info("the collection %s was removed", one.name)
                    del self._by_name[one.name]
                    one.served.retire()
                self._missing ^= {one.name}
            else:
                self._missing.discard(one.name)
                with contextlib.suppress(Problem):
                    await one.current()

    async def _add(self, folder: Path) -> None:
        """Open and load a collection that is not served yet. If that fails, log the reason once."""

        def open_and_load() -> CollectionFolder:
            found = CollectionFolder(name, folder, self._open, silent)
            try:
                found.served.load()
            except BaseException:
                found.served.close()
                raise
            return found

        (name,) = folders_by_name([folder])
        known = self._by_name.get(name)
        try:
            if known and known.folder.resolve() != folder.resolve():
                raise Misuse(f"a collection named {name!r} is already served from {known.folder}; rename this folder")
            if not known:
                self._by_name[name] = await asyncio.to_thread(open_and_load)
                log.info("the collection %s was added", name)
            self._not_served.pop(folder, None)
        except Exception as error:
            if self._not_served.get(folder) != str(error):
                log.warning("the collection in %s is not served: %s", folder, error)
            self._not_served[folder] = str(error)

    def load(self) -> None:
        """Load all collections at the same time. Log which ones are left out, because they cannot be searched."""
        failures: dict[Path, Exception] = {}

        def load(one: CollectionFolder) -> None:
            try:
                one.served.load()
            except Exception as error:
                failures[one.folder] = error

        every = list(self)
        threads = [threading.Thread(target=load, args=[one], daemon=True) for one in every]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for one in every:
            if one.folder in failures:
                del self._by_name[one.name]
                one.served.close()
        self._leave_out(failures)
        for folder, reason in self._not_served.items():
            log.warning("the collection in %s is not served: %s", folder, reason)

    def _leave_out(self, failures: dict[Path, Exception]) -> None:
        """Note why collections are not served.

        Raise the error of a collection that was not found in a parent, and any error if no other collection is left.
        """
        for folder, error in failures.items():
            if folder.parent not in self.parents or not self._by_name:
                raise error
            self._not_served[folder] = str(error)

    def close(self) -> None:
        for one in self:
            one.served.close()


async def requested_collection(request: Request, name: CollectionParameter = None) -> ServedCollection:
    """Return the collection with this name, or the default. Hold it until the request has ended."""
    collections: ServedCollections = request.app.state.collections
    served = await collections.named(name).current()
    request.scope[HELD].enter_context(served.held())
    request.scope[COLLECTION] = served.name
    return served


Served = Annotated[ServedCollection, Depends(requested_collection)]
"""The collection that the URL parameter `collection` names, or the default."""
