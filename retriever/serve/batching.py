"""Threads that search and embed. Each thread takes several waiting jobs in one batch.

A single query is never delayed to fill a batch. While all threads are busy, queries wait in a queue. The next free
thread takes its share of the queue, all for one collection. It encodes these queries in one batch.

Short and long work and reads of documents have their own threads and queues, so that a short call never waits behind a
long one. A search with highlights is long, because it encodes every sentence of its hits. A long request is divided
into parts. Between two parts, other requests get their turn. If the client has closed its connection, the remaining
parts are dropped.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from retriever.encoder.runtimes.onnx_runtime import cores
from retriever.hits import Options
from retriever.serve.collections import ServedCollection
from retriever.serve.jobs import (
    LARGEST_BATCH,
    MOST_CHARACTERS_AT_ONCE,
    MOST_HITS_AT_ONCE,
    EmbedJob,
    EmbedResult,
    Job,
    SearchJob,
    SearchResult,
    run,
)
from retriever.serve.models import Encoding

LONGEST_SHORT = 200
"""A search for more hits than this counts as long work, and so does every search with highlights."""

Result = TypeVar("Result")


class SearchThreads:
    """The threads for short work, for long work and for reads.

    For every batch, `on_batch` is called with its number of queries.
    """

    def __init__(self, on_batch: Callable[[int], None]) -> None:
        self._short = Lane("search", on_batch)
        self._long = Lane("long search", on_batch)
        self._reads = ThreadPoolExecutor(cores(), "read")

    def close(self) -> None:
        """Drop the work that waits, and finish the work that is running."""
        every = (self._short.threads, self._long.threads, self._reads)
        for threads in every:
            threads.shutdown(wait=False, cancel_futures=True)
        for threads in every:
            threads.shutdown()

    async def search(
        self, served: ServedCollection, queries: Sequence[str], k: int, options: Options, *, long: bool = False
    ) -> SearchResult:
        """Search for queries. They may share a batch with the queries of other requests.

        The queries must be one part of a request. `long` says that the request has other parts.
        """
        job = SearchJob(served, queries, k, options)
        long = long or options["highlight"] or job.hits > LONGEST_SHORT
        (self._long if long else self._short).add(job)
        return await _result(served, job.done)

    async def embed(
        self, served: ServedCollection, texts: Sequence[str], *, queries: bool, encoding: Encoding, long: bool = False
    ) -> EmbedResult:
        """Embed texts, one part of a request. They may share a batch with the texts of other requests."""
        job = EmbedJob(served, texts, queries, encoding)
        (self._long if long else self._short).add(job)
        return await _result(served, job.done)

    async def call(self, served: ServedCollection, call: Callable[[], Result], *, long: bool = False) -> Result:
        """Run a function that searches the collection in one of the threads."""
        return await _result(served, (self._long if long else self._short).threads.submit(call))

    async def read(self, served: ServedCollection, read: Callable[[], Result]) -> Result:
        """Run a function that reads a document. It never waits for a search."""
        return await _result(served, self._reads.submit(read))


class Lane:
    """Threads, one per core, and their queue of jobs."""

    def __init__(self, name: str, on_batch: Callable[[int], None]) -> None:
        self._on_batch = on_batch
        self._count = cores()
        self.threads = ThreadPoolExecutor(self._count, name)
        self._queue: deque[Job[Any]] = deque()
        self._busy = 0
        self._changing = threading.Lock()

    def add(self, job: Job[Any]) -> None:
        with self._changing:
            self._queue.append(job)
        self.threads.submit(self._work)

    def _work(self) -> None:
        """Run the next batch. The queue may be empty, because an earlier batch can take several jobs."""
        jobs = self._take()
        if jobs:
            wanted = [job for job in jobs if job.done.set_running_or_notify_cancel()]
            if wanted:
                self._on_batch(sum(len(job.texts) for job in wanted))
                run(wanted)
            with self._changing:
                self._busy -= len(jobs)

    def _take(self) -> list[Job[Any]]:
        """Take the first job from the queue, and this thread's share of the jobs that search the same collection."""
        taken: list[Job[Any]] = []
        skipped: list[Job[Any]] = []
        texts = hits = characters = 0
        with self._changing:
            share = -(-(self._busy + len(self._queue)) // self._count)
            while self._queue and len(taken) < share and texts < LARGEST_BATCH:
                job = self._queue.popleft()
                fits = not taken or (
                    type(job) is type(taken[0])
                    and job.served is taken[0].served
                    and texts + len(job.texts) <= LARGEST_BATCH
                    and hits + job.hits <= MOST_HITS_AT_ONCE
                    and characters + job.characters <= MOST_CHARACTERS_AT_ONCE
                )
                if fits:
                    taken.append(job)
                    texts, hits = texts + len(job.texts), hits + job.hits
                    characters += job.characters
                else:
                    skipped.append(job)
            self._queue.extendleft(reversed(skipped))
            self._busy += len(taken)
        return taken


async def _result(served: ServedCollection, done: Future[Result]) -> Result:
    """Wait for a result. The collection stays open until the work is done, even if the request ends earlier."""
    served.hold()
    done.add_done_callback(lambda _: served.release())
    with served.problems():
        return await asyncio.wrap_future(done)
