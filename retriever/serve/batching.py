"""Threads that search, one per core. Each thread searches for several waiting queries in one batch.

A single query is never delayed to fill a batch. While all threads are busy, queries wait in a queue. The next free
thread takes its share of the queue, all for one collection. It encodes these queries in one batch. Queries with equal
parameters are also searched in the index in one batch.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import Any, TypeVar

from retriever.encoder.runtimes.onnx_runtime import cores
from retriever.hits import Answer, Options
from retriever.serve.collections import ServedCollection

LARGEST_BATCH = 32
"""Maximum number of queries per batch. Larger batches are not faster, and the first query waits for the last."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The answers to the queries of one request, and the generation that was published at that time."""

    answers: list[Answer]
    generation: int | None


@dataclass(slots=True, eq=False)
class Job:
    """The queries of one request."""

    served: ServedCollection
    queries: Sequence[str]
    k: int
    options: Options
    done: Future[SearchResult] = field(default_factory=Future)

    @property
    def lexical(self) -> bool:
        return self.options["mode"] == "lexical"

    @property
    def parameters(self) -> tuple[bool, str]:
        return self.lexical, f"{self.k} {self.options}"


class SearchThreads:
    """The threads and their queue of jobs. For every batch, `on_batch` is called with its number of queries."""

    def __init__(self, on_batch: Callable[[int], None]) -> None:
        self._on_batch = on_batch
        self._count = cores()
        self._threads = ThreadPoolExecutor(self._count, "search")
        self.close = self._threads.shutdown
        self._queue: deque[Job] = deque()
        self._busy = 0
        self._changing = threading.Lock()

    async def search(self, served: ServedCollection, queries: Sequence[str], k: int, options: Options) -> SearchResult:
        """Search for queries. They may share a batch with the queries of other requests."""
        job = Job(served, queries, k, options)
        with self._changing:
            self._queue.append(job)
        self._threads.submit(self._work)
        return await _result(served, job.done)

    async def call(self, served: ServedCollection, call: Callable[[], Result]) -> Result:
        """Run a short function that reads the collection in one of the threads."""
        return await _result(served, self._threads.submit(call))

    def _work(self) -> None:
        """Search for the next batch. The queue may be empty, because an earlier batch can take several jobs."""
        jobs = self._take()
        if jobs:
            self._on_batch(sum(len(job.queries) for job in jobs))
            _run([job for job in jobs if job.done.set_running_or_notify_cancel()])
            with self._changing:
                self._busy -= len(jobs)

    def _take(self) -> list[Job]:
        """Take the first job from the queue, and this thread's share of the jobs that search the same collection."""
        taken: list[Job] = []
        skipped: list[Job] = []
        queries = 0
        with self._changing:
            share = -(-(self._busy + len(self._queue)) // self._count)
            while self._queue and len(taken) < share and queries < LARGEST_BATCH:
                job = self._queue.popleft()
                fits = not taken or (job.served is taken[0].served and queries + len(job.queries) <= LARGEST_BATCH)
                (taken if fits else skipped).append(job)
                queries += len(job.queries) * fits
            self._queue.extendleft(reversed(skipped))
            self._busy += len(taken)
        return taken


async def _result(served: ServedCollection, done: Future[Result]) -> Result:
    """Wait for a result. The collection stays open until the work is done, even if the request ends earlier."""
    served.hold()
    done.add_done_callback(lambda _: served.release())
    with served.problems():
        return await asyncio.wrap_future(done)


def _run(jobs: Sequence[Job]) -> None:
    """Search for the jobs, and give each job its result or its error."""
    try:
        results = list(_search(jobs))
    except BaseException as error:
        if len(jobs) == 1:
            jobs[0].done.set_exception(error)
            return
        for job in jobs:  # an invalid query must not make the other jobs fail
            _run([job])
    else:
        for job, result in results:
            job.done.set_result(result)


def _search(jobs: Sequence[Job]) -> Iterator[tuple[Job, SearchResult]]:
    jobs = sorted(jobs, key=lambda job: job.parameters)  # jobs that need vectors come first
    dense = [query for job in jobs if not job.lexical for query in job.queries]
    vectors: Any = jobs[0].served.retriever.query_vectors(dense, here=True) if dense else ()
    for _, grouped in groupby(jobs, key=lambda job: job.parameters):
        group = list(grouped)
        queries = [query for job in group for query in job.queries]
        own, vectors = vectors[: len(queries)], vectors[len(queries) :]
        first = group[0]
        found = first.served.retriever.answer_many(
            queries, first.k, vectors=None if first.lexical else own, **first.options
        )
        answers, generation = iter(found), first.served.generation
        for job in group:
            yield job, SearchResult(list(islice(answers, len(job.queries))), generation)
