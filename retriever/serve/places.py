"""The collections a server answers for, by the names of their folders, whatever becomes of these while it runs.

A folder may be removed, or another collection put in its place. That is looked for at every request: then what is there
now is opened, or, where nothing can be, the client is told so until something can.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from retriever.files import folders_by_name
from retriever.progress import Progress, silent
from retriever.retriever import Retriever
from retriever.serve.problems import Problem, problem_of
from retriever.serve.served import Facts, Served

HELD = "held"
OPEN_AGAIN_AFTER = 1.0
"""Seconds after which it is tried again to open what could not be opened: it may have been half copied."""


class Place:
    """A folder with a name: the collection that was opened there last, and why there is none now if so."""

    def __init__(self, served: Served, open_again: Callable[[], Served]) -> None:
        self.name = served.name
        self.served = served
        self._open_again = open_again
        self._opening = asyncio.Lock()
        self._failed: tuple[float, str] | None = None

    async def current(self) -> Served:
        """The collection that is there now; a problem for the client where there is none."""
        if self.served.replaced:
            async with self._opening:  # others wait, and find it done
                if self.served.replaced:
                    await self._replace()
        return self.served

    async def facts(self) -> Facts:
        """What it holds now; the last known with the problem where it cannot be opened."""
        try:
            served = await self.current()
        except Problem as problem:
            return replace(self.served.facts, problem=problem.detail)
        served.hold()
        try:
            return await served.current_facts()
        finally:
            served.release()

    async def _replace(self) -> None:
        if self._failed and time.monotonic() - self._failed[0] < OPEN_AGAIN_AFTER:
            raise Problem(503, self._failed[1])
        try:
            served = await asyncio.to_thread(self._open_again)
        except Exception as error:
            problem = problem_of(error, self.name)
            self._failed = (time.monotonic(), problem.detail)
            raise Problem(503, problem.detail) from error
        self._failed = None
        self.served.retire()
        self.served = served


class ServedCollections:
    """All of them by name; the first is the default."""

    def __init__(self, places: Iterable[Place]) -> None:
        self._by_name = {one.name: one for one in places}
        self.default = next(iter(self._by_name.values()))

    @classmethod
    def open(
        cls, folders: Iterable[Path], *, encoder: str | None = None, device: str = "auto", progress: Progress = silent
    ) -> "ServedCollections":
        """Open collections; each goes by its folder's name, which no two may share."""

        def opened(name: str, folder: Path, progress: Progress = silent) -> Served:
            retriever = Retriever.open(folder, encoder=encoder, device=device, progress=progress)
            try:
                return Served(name, retriever)
            except BaseException:
                retriever.close()
                raise

        def opening_again(name: str, folder: Path) -> Callable[[], Served]:
            def open_again() -> Served:
                served = opened(name, folder)
                try:
                    served.load()
                except BaseException:
                    served.close()
                    raise
                return served

            return open_again

        places: list[Place] = []
        try:
            for name, folder in folders_by_name(folders).items():
                places.append(Place(opened(name, folder, progress), opening_again(name, folder)))
        except BaseException:
            for one in places:
                one.served.close()
            raise
        return cls(places)

    def __iter__(self) -> Iterator[Place]:
        return iter(self._by_name.values())

    def named(self, name: str | None) -> Place:
        """The one of this name, or the default one; a problem for the client if there is none."""
        if name is None:
            return self.default
        if name not in self._by_name:
            raise Problem(404, f"there is no collection {name!r}; there are: {', '.join(self._by_name)}.")
        return self._by_name[name]

    def load(self) -> None:
        """Load all of them at once."""
        failures: list[Exception] = []

        def load(one: Place) -> None:
            try:
                one.served.load()
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
            one.served.close()


async def chosen(request: Request, name: str | None) -> Served:
    """The collection a request names, or the default one; it stays open until the request has ended."""
    collections: ServedCollections = request.app.state.collections
    served = await collections.named(name).current()
    served.hold()
    request.scope[HELD].callback(served.release)
    return served


class Holding:
    """Lets go of the collections that a request held when it has ended."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.ExitStack() as scope[HELD]:
            await self._app(scope, receive, send)
