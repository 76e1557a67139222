"""Search threads, one per core, which batch the queries that are waiting.

There is no timer: a single query is searched at once. While all threads are busy, queries wait, and the next free
thread takes its share of them. These go through the encoder together. Those for the same collection with the same
parameters go through the index together too.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from retriever.encoder.runtimes.onnx_runtime import cores
from retriever.hits import Answer, Options
from retriever.serve.collections import ServedCollection
from retriever.serve.problems import problem_of

LARGEST_BATCH = 32
"""Queries per batch. Larger batches are not faster, and the first query would wait for the last."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The answers to some queries, and the generation that was published when they were found."""

    answers: list[Answer]
    generation: int | None


@dataclass(slots=True, eq=False)
class Job:
    """Work of a thread for one request: a search, or a `call` with no queries."""

    served: ServedCollection
    done: "asyncio.Future[Any]"
    call: Callable[[], Any] | None = None
    queries: Sequence[str] = ()
    k: int = 0
    options: Options = field(default_factory=Options)


class SearchThreads:
    """The threads and their queue of jobs. `on_batch` is called with the number of queries of every batch."""

    def __init__(self, on_batch: Callable[[int], None]) -> None:
        self._queue: deque[Job] = deque()
        self._changed = threading.Condition()
        self._busy = 0
        self._closed = False
        self._on_batch = on_batch
        self._threads = [threading.Thread(target=self._work, name=f"search-{number}") for number in range(cores())]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Finish the jobs in the queue, then end the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    async def search(self, served: ServedCollection, queries: Sequence[str], k: int, options: Options) -> SearchResult:
        """Search, possibly in one batch with the queries of other requests."""
        done = asyncio.get_running_loop().create_future()
        result: SearchResult = await self._put(Job(served, done, None, queries, k, options))
        return result

    async def call(self, served: ServedCollection, call: Callable[[], Result]) -> Result:
        """Run a short function that reads the collection."""
        result: Result = await self._put(Job(served, asyncio.get_running_loop().create_future(), call))
        return result

    def _put(self, job: Job) -> "asyncio.Future[Any]":
        job.served.hold()  # the request may end before the job does
        with self._changed:
            self._queue.append(job)
            self._changed.notify()
        return job.done

    def _work(self) -> None:
        while jobs := self._take():
            try:
                if jobs[0].call is None:
                    self._on_batch(sum(len(job.queries) for job in jobs))
                results = _results(jobs)
            finally:
                with self._changed:
                    self._busy -= len(jobs)
                for job in jobs:
                    job.served.release()
            with contextlib.suppress(RuntimeError):  # the event loop has been closed meanwhile
                jobs[0].done.get_loop().call_soon_threadsafe(_set_results, jobs, results)

    def _take(self) -> list[Job]:
        """Take the first job; if it is a search, also this thread's share of the searches of the same collection."""
        with self._changed:
            while not self._queue:
                if self._closed:
                    return []
                self._changed.wait()
            first = self._queue.popleft()
            taken, skipped = [first], []
            if first.call is None:
                share = -(-(self._busy + len(self._queue) + 1) // len(self._threads))
                queries = len(first.queries)
                while self._queue and len(taken) < share and queries < LARGEST_BATCH:
                    job = self._queue.popleft()
                    fits = queries + len(job.queries) <= LARGEST_BATCH
                    if job.call is None and job.served is first.served and fits:
                        taken.append(job)
                        queries += len(job.queries)
                    else:
                        skipped.append(job)
                self._queue.extendleft(reversed(skipped))
            self._busy += len(taken)
            return taken


def _set_results(jobs: Sequence[Job], results: Sequence[Any]) -> None:
    for job, result in zip(jobs, results, strict=True):
        if job.done.done():  # the request was cancelled
            continue
        if isinstance(result, BaseException):
            job.done.set_exception(problem_of(result, job.served.name) if isinstance(result, Exception) else result)
        else:
            job.done.set_result(result)


def _results(jobs: Sequence[Job]) -> list[Any]:
    """Return each job's result, or the error that it ended with."""
    try:
        return [jobs[0].call()] if jobs[0].call else _search(jobs)
    except BaseException as error:
        if len(jobs) == 1:
            return [error]
        return [result for job in jobs for result in _results([job])]  # an invalid query must not fail the others


def _search(jobs: Sequence[Job]) -> list[SearchResult]:
    retriever = jobs[0].served.retriever
    groups: dict[str, list[Job]] = {}
    for job in sorted(jobs, key=_is_lexical):  # so that the queries that need vectors come first
        groups.setdefault(f"{job.k} {job.options}", []).append(job)
    dense = [query for group in groups.values() for job in group if not _is_lexical(job) for query in job.queries]
    vectors = retriever.encoder().encode_here(dense) if dense else None
    found: dict[int, SearchResult] = {}
    for group in groups.values():
        queries = [query for job in group for query in job.queries]
        own, vectors = (None, None) if vectors is None else (vectors[: len(queries)], vectors[len(queries) :])
        lexical = _is_lexical(group[0])
        answers = retriever.answer_many(queries, group[0].k, vectors=None if lexical else own, **group[0].options)
        generation = group[0].served.generation
        for job in group:
            found[id(job)] = SearchResult(answers[: len(job.queries)], generation)
            answers = answers[len(job.queries) :]
    return [found[id(job)] for job in jobs]


def _is_lexical(job: Job) -> bool:
    return job.options["mode"] == "lexical"
