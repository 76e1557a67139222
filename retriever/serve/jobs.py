"""The work of requests (searches, and texts to embed), divided into parts that are run in one batch each.

Jobs of several requests may share a batch. Their queries are then encoded together, and queries with equal parameters
are also searched in the index together.
"""

import base64
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic_core import to_json

from retriever.encoder.functions import is_brought
from retriever.hits import Answer, Options
from retriever.serve.collections import ServedCollection
from retriever.serve.models import Encoding

LARGEST_BATCH = 32
"""Maximum number of texts per batch. Larger batches are not faster, and the first query waits for the last."""
MOST_HITS_AT_ONCE = 400
"""Maximum number of hits per batch, unless a single query has more. A batch cannot be stopped."""
MOST_CHARACTERS_AT_ONCE = 20_000
"""Maximum number of characters of all texts of a batch, unless a single text has more."""
HIGHLIGHT_COST = 10
"""A hit with a highlight takes as long as this number of hits, because its sentences are encoded."""

Result = TypeVar("Result")


@dataclass(slots=True, eq=False)
class Job(Generic[Result]):
    """Texts of one request that are handled in one batch."""

    served: ServedCollection
    texts: Sequence[str]
    done: Future[Result] = field(default_factory=Future, kw_only=True)

    @property
    def hits(self) -> int:
        return 0

    @property
    def characters(self) -> int:
        return sum(map(len, self.texts))

    @staticmethod
    @abstractmethod
    def results(jobs: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """Run jobs of one class and one collection in one batch. Yield each with its result."""


def run(jobs: Sequence[Job[Any]]) -> None:
    """Run jobs of one class and one collection, and give each job its result or its error."""
    try:
        results = list(jobs[0].results(jobs))
    except BaseException as error:
        if len(jobs) == 1:
            jobs[0].done.set_exception(error)
            return
        for job in jobs:  # an invalid query must not make the other jobs fail
            run([job])
    else:
        for job, result in results:
            job.done.set_result(result)


# ---- searching ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The answers to the queries of one request, and the generation that was published at that time."""

    answers: list[Answer]
    generation: int | None


@dataclass(slots=True, eq=False)
class SearchJob(Job[SearchResult]):
    """Queries to search for."""

    k: int
    options: Options

    @property
    def lexical(self) -> bool:
        """Whether the job needs no vectors: it is a search by words, or there is no encoder."""
        mode = self.options["mode"]
        return mode == "lexical" or (mode == "hybrid" and is_brought(self.served.retriever.collection.encoder))

    @property
    def parameters(self) -> tuple[bool, str]:
        return self.lexical, f"{self.k} {self.options}"

    @property
    def hits(self) -> int:
        return len(self.texts) * hits_of_query(self.k, self.options)

    @staticmethod
    def results(jobs: Sequence["SearchJob"]) -> Iterator[tuple["SearchJob", SearchResult]]:
        jobs = sorted(jobs, key=lambda job: job.parameters)  # jobs that need vectors come first
        dense = [query for job in jobs if not job.lexical for query in job.texts]
        vectors: Any = jobs[0].served.retriever.query_vectors(dense, here=True) if dense else ()
        for _, grouped in groupby(jobs, key=lambda job: job.parameters):
            group = list(grouped)
            queries = [query for job in group for query in job.texts]
            own, vectors = vectors[: len(queries)], vectors[len(queries) :]
            first = group[0]
            found = first.served.retriever.answer_many(
                queries, first.k, vectors=None if first.lexical else own, **first.options
            )
            answers, generation = iter(found), first.served.generation
            for job in group:
                yield job, SearchResult(list(islice(answers, len(job.texts))), generation)


def hits_of_query(k: int, options: Options) -> int:
    """Return the cost of a query as a number of hits."""
    return k * (HIGHLIGHT_COST if options["highlight"] else 1)


def search_parts(queries: Sequence[str], k: int, options: Options) -> Iterator[Sequence[str]]:
    """Divide the queries of a request into parts that are searched in one batch each."""
    return parts(queries, max(1, min(LARGEST_BATCH, MOST_HITS_AT_ONCE // hits_of_query(k, options))))


def parts(texts: Sequence[str], most: int = LARGEST_BATCH) -> Iterator[Sequence[str]]:
    """Divide texts into parts of at most `most` texts that fit into one batch each."""
    begin = characters = 0
    for end, text in enumerate(texts):
        if end > begin and (end - begin == most or characters + len(text) > MOST_CHARACTERS_AT_ONCE):
            yield texts[begin:end]
            begin, characters = end, 0
        characters += len(text)
    yield texts[begin:]


# ---- embedding ---------------------------------------------------------------------------------------------


class EmbedResult(NamedTuple):
    """The vectors of the texts of a job as JSON values, the number of their tokens, and what made them."""

    vectors: list[bytes]
    tokens: int
    fingerprint: str


@dataclass(slots=True, eq=False)
class EmbedJob(Job[EmbedResult]):
    """Texts to embed, as queries or as passages."""

    queries: bool
    encoding: Encoding

    @staticmethod
    def results(jobs: Sequence["EmbedJob"]) -> Iterator[tuple["EmbedJob", EmbedResult]]:
        jobs = sorted(jobs, key=lambda job: job.queries)
        for queries, grouped in groupby(jobs, key=lambda job: job.queries):
            group = list(grouped)
            found = group[0].served.retriever.embed([text for job in group for text in job.texts], queries=queries)
            begin = 0
            for job in group:
                own = slice(begin, begin := begin + len(job.texts))
                vectors = [_json(vector, job.encoding) for vector in found.vectors[own]]
                yield job, EmbedResult(vectors, int(found.tokens[own].sum()), found.fingerprint)


def _json(vector: NDArray[np.float32], encoding: Encoding) -> bytes:
    if encoding == "float":
        return to_json(vector.tolist())
    return b'"' + base64.b64encode(vector.astype("<f4").tobytes()) + b'"'
