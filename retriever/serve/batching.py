"""Who searches: a thread a core, each of which takes whatever queries wait when it is free.

There is no timer: a lone query is taken at once, and waits for nobody. While the threads are busy queries gather, and
the next thread that is free takes its share of them: they go through the encoder together, and those that ask for the
same collection in the same way through the index together too.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from retriever.encoder.runtimes.onnx_runtime import cores
from retriever.hits import Answer, Mode, Options, Space
from retriever.serve.problems import problem_of
from retriever.serve.served import Served

MOST_TOGETHER = 32
"""Queries that go through the encoder at once; more of them gain nothing, and the first would wait for the last."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Way:
    """How to search: queries of the same way can be searched together."""

    k: int
    mode: Mode
    where: tuple[str, ...]
    space: Space
    highlight: bool
    min_score: float | None

    def options(self) -> Options:
        return Options(
            mode=self.mode, where=self.where, space=self.space, highlight=self.highlight, min_score=self.min_score
        )


@dataclass(frozen=True, slots=True)
class Found:
    """What a search gave, and which generation was published by then."""

    answers: list[Answer]
    generation: int | None


@dataclass(slots=True, eq=False)
class Job(Generic[Result]):
    """Something a thread is to do for one request."""

    served: Served
    loop: asyncio.AbstractEventLoop
    done: "asyncio.Future[Result]"


@dataclass(slots=True, eq=False)
class SearchJob(Job[Found]):
    queries: Sequence[str]
    way: Way


@dataclass(slots=True, eq=False)
class CallJob(Job[Any]):
    call: Callable[[], Any]


class Searchers:
    """The threads, and the jobs that wait for them. `batch_seen` is told the size of every batch."""

    def __init__(self, batch_seen: Callable[[int], None]) -> None:
        self._waiting: deque[SearchJob | CallJob] = deque()
        self._changed = threading.Condition()
        self._busy = 0
        self._closed = False
        self._batch_seen = batch_seen
        self._threads = [threading.Thread(target=self._work, name=f"search-{number}") for number in range(cores())]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Finish what waits, then end the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    async def search(self, served: Served, queries: Sequence[str], way: Way) -> Found:
        """What the queries find, searched together with those of others where that is sooner done."""
        loop = asyncio.get_running_loop()
        job = SearchJob(served, loop, loop.create_future(), queries, way)
        self._put(job)
        return await job.done

    async def call(self, served: Served, call: Callable[[], Result]) -> Result:
        """What a short call that reads the collection returns."""
        loop = asyncio.get_running_loop()
        job = CallJob(served, loop, loop.create_future(), call)
        self._put(job)
        result: Result = await job.done
        return result

    def _put(self, job: SearchJob | CallJob) -> None:
        job.served.hold()  # whoever asked may go before it is searched
        with self._changed:
            self._waiting.append(job)
            self._changed.notify()

    def _work(self) -> None:
        while jobs := self._take():
            try:
                if isinstance(jobs[0], CallJob):
                    results = [_outcome(jobs[0].call)]
                else:
                    searches = [job for job in jobs if isinstance(job, SearchJob)]
                    self._batch_seen(sum(len(job.queries) for job in searches))
                    results = _search(searches)
            finally:
                with self._changed:
                    self._busy -= len(jobs)
                for job in jobs:
                    job.served.release()
            with contextlib.suppress(RuntimeError):  # the server has ended without waiting
                jobs[0].loop.call_soon_threadsafe(_give, jobs, results)

    def _take(self) -> list[SearchJob | CallJob]:
        """The first job that waits, and of the searches behind it in the same collection this thread's share."""
        with self._changed:
            while not self._waiting:
                if self._closed:
                    return []
                self._changed.wait()
            first = self._waiting.popleft()
            taken: list[SearchJob | CallJob] = [first]
            if isinstance(first, SearchJob):
                share = -(-(self._busy + len(self._waiting) + 1) // len(self._threads))
                queries = len(first.queries)
                passed: list[SearchJob | CallJob] = []
                while self._waiting and len(taken) < share and queries < MOST_TOGETHER:
                    job = self._waiting.popleft()
                    if (
                        isinstance(job, SearchJob)
                        and job.served is first.served
                        and queries + len(job.queries) <= MOST_TOGETHER
                    ):
                        taken.append(job)
                        queries += len(job.queries)
                    else:
                        passed.append(job)
                self._waiting.extendleft(reversed(passed))
            self._busy += len(taken)
            return taken


def _give(jobs: Sequence[Job[Any]], results: Sequence[Any]) -> None:
    for job, result in zip(jobs, results, strict=True):
        if job.done.done():  # who asked has gone
            continue
        if isinstance(result, BaseException):
            job.done.set_exception(problem_of(result, job.served.name) if isinstance(result, Exception) else result)
        else:
            job.done.set_result(result)


def _outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except BaseException as error:
        return error


def _search(jobs: Sequence[SearchJob]) -> list[Any]:
    """What each job finds, or the error it ends with."""
    try:
        return _search_together(jobs)
    except Exception as error:
        if len(jobs) == 1:
            return [error]
        return [result for job in jobs for result in _search([job])]  # one that fails does not fail the others


def _search_together(jobs: Sequence[SearchJob]) -> list[Found]:
    served = jobs[0].served
    encoded = _encoded(served, jobs)
    by_way: dict[Way, list[SearchJob]] = {}
    for job in jobs:
        by_way.setdefault(job.way, []).append(job)
    found: dict[int, Found] = {}
    for way, own in by_way.items():
        queries = [query for job in own for query in job.queries]
        vectors = None if way.mode == "lexical" else np.concatenate([encoded[id(job)] for job in own])
        answers = served.retriever.answer_many(queries, way.k, vectors=vectors, **way.options())
        generation = served.generation
        place = 0
        for job in own:
            found[id(job)] = Found(answers[place : place + len(job.queries)], generation)
            place += len(job.queries)
    return [found[id(job)] for job in jobs]


def _encoded(served: Served, jobs: Sequence[SearchJob]) -> dict[int, NDArray[np.float32]]:
    """The vectors of the queries of each job that needs some."""
    dense = [job for job in jobs if job.way.mode != "lexical"]
    queries = [query for job in dense for query in job.queries]
    if not queries:
        return {}
    vectors = served.retriever.encoder().encode_here(queries)
    places = np.cumsum([0, *(len(job.queries) for job in dense)])
    return {id(job): vectors[places[n] : places[n + 1]] for n, job in enumerate(dense)}
