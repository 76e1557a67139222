"""A retriever for asyncio: every method runs in a thread and does not block the event loop."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from itertools import islice
from typing import TYPE_CHECKING, Concatenate, NoReturn, ParamSpec, TypeVar

from retriever.errors import Misuse
from retriever.retriever import Retriever

if TYPE_CHECKING:
    from indexes.folder.collection import Collection
    from retriever.ingest.pipeline import IngestReport

Given = ParamSpec("Given")
Result = TypeVar("Result")

IDS_AT_ONCE = 1000


class Opening:
    """A retriever that is being opened. `await` it, or enter it with `async with`, which closes it at the end."""

    def __init__(self, opened: Callable[[], Awaitable["AsyncRetriever"]]) -> None:
        self._opened = opened
        self._retriever: AsyncRetriever | None = None

    def __await__(self) -> Generator[object, None, "AsyncRetriever"]:
        return self._opened().__await__()

    def __getattr__(self, name: str) -> NoReturn:
        if name in vars(AsyncRetriever):
            raise Misuse(
                f"`{name}` was used before the retriever was open. Write: pets = await AsyncRetriever.open(…), or: "
                "async with AsyncRetriever.open(…) as pets."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    async def __aenter__(self) -> "AsyncRetriever":
        self._retriever = await self
        return self._retriever

    async def __aexit__(self, *error: object) -> None:
        if self._retriever is not None:
            await self._retriever.close()


def _opening(make: Callable[Given, Retriever]) -> Callable[Given, Opening]:
    """Return a function with the parameters of `make` that opens an `AsyncRetriever`."""

    @wraps(make)
    def opening(*given: Given.args, **named: Given.kwargs) -> Opening:
        async def opened() -> AsyncRetriever:
            return AsyncRetriever(await asyncio.to_thread(make, *given, **named))

        return Opening(opened)

    return opening


def _threaded(
    method: Callable[Concatenate[Retriever, Given], Result],
) -> Callable[Concatenate["AsyncRetriever", Given], Coroutine[object, object, Result]]:
    """Return an async method that calls a method of `Retriever` in a thread, with the same parameters."""

    @wraps(method)
    async def threaded(self: "AsyncRetriever", /, *given: Given.args, **named: Given.kwargs) -> Result:
        return await asyncio.to_thread(method, self.retriever, *given, **named)

    return threaded


def _writing(
    method: Callable[Concatenate[Retriever, Given], Result],
) -> Callable[Concatenate["AsyncRetriever", Given], Coroutine[object, object, Result]]:
    """Return a method that waits for the writes before it, and then calls a method of `Retriever` in a thread."""

    @wraps(method)
    async def writing(self: "AsyncRetriever", /, *given: Given.args, **named: Given.kwargs) -> Result:
        call = partial(method, self.retriever, *given, **named)
        return await asyncio.get_running_loop().run_in_executor(self._writes, call)

    return writing


class AsyncRetriever:
    """A `Retriever` for asyncio. It has the same methods, and each of them is awaited.

    >>> async def ask():
    ...     async with AsyncRetriever.open("collections/pets") as pets:
    ...         hits, count = await asyncio.gather(pets.search("an animal that catches mice"), pets.count())
    ...         return hits[0].id, count, [id_ async for id_ in pets]
    >>> asyncio.run(ask())
    ('cat', 3, ['cat', 'dog', 'bird'])

    `open` and `build` are awaited, or entered with `async with`, which closes the collection at the end. The methods
    run in threads. `add`, `delete`, `describe` and `rebuild` wait for each other. If a task is cancelled, its work goes
    on in its thread until it is done.
    """

    def __init__(self, retriever: Retriever) -> None:
        """Wrap an open retriever. Usually, call `AsyncRetriever.open` or `AsyncRetriever.build` instead."""
        self.retriever = retriever
        """The retriever, for use in other threads."""
        self._writes = ThreadPoolExecutor(1, "writes")

    open = staticmethod(_opening(Retriever.open))
    build = staticmethod(_opening(Retriever.build))
    close = _threaded(Retriever.close)

    search = _threaded(Retriever.search)
    search_many = _threaded(Retriever.search_many)
    answer_many = _threaded(Retriever.answer_many)
    query_vectors = _threaded(Retriever.query_vectors)
    embed = _threaded(Retriever.embed)
    similar = _threaded(Retriever.similar)
    check_filters = _threaded(Retriever.check_filters)

    document = _threaded(Retriever.document)
    get = _threaded(Retriever.get)
    count = _threaded(Retriever.__len__)
    contains = _threaded(Retriever.__contains__)
    add = _writing(Retriever.add)
    delete = _writing(Retriever.delete)
    describe = _writing(Retriever.describe)
    rebuild = _writing(Retriever.rebuild)

    info = _threaded(Retriever.info)
    card = _threaded(Retriever.card)
    map = _threaded(Retriever.map)
    export = _threaded(Retriever.export)
    verify = _threaded(Retriever.verify)
    encoder = _threaded(Retriever.encoder)

    @property
    def local(self) -> "Collection":
        """The collection in a folder, as `Retriever.local`."""
        return self.retriever.local

    @property
    def report(self) -> "IngestReport":
        """The report of the last `build` or `add`, as `Retriever.report`."""
        return self.retriever.report

    def notes(self) -> list[str]:
        """Return the warnings of `Retriever.notes`. They are in memory, so this is not awaited."""
        return self.retriever.notes()

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield the ids of all documents, in the order in which they were added."""
        ids = iter(self.retriever)
        while some := await asyncio.to_thread(lambda: list(islice(ids, IDS_AT_ONCE))):
            for id_ in some:
                yield id_

    async def __aenter__(self) -> "AsyncRetriever":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return repr(self.retriever).replace("<Retriever", "<AsyncRetriever", 1)
