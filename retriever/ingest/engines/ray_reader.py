"""Files read and split into passages by a process beside this one, ahead of it, in order.

It runs on the node that this process is on, where the files are sure to be the same, and takes no core from the
workers: reading is quicker than embedding. Where a source is no files, or that process would not see the same files
(another user, another machine behind ray://), they are read here.
"""

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import TYPE_CHECKING, Any

from retriever.corpus import Corpus, Document, Skipped
from retriever.corpus.files import SourceFile
from retriever.corpus.passages import encoded_passages, encoded_text, fit_title, split
from retriever.errors import RetrieverError, first_line
from retriever.ingest.engines.ray_cluster import Cluster, ClusterLost
from retriever.ingest.engines.ray_worker import EncoderSpec

if TYPE_CHECKING:
    from retriever.corpus.source import Source
    from retriever.encoder.encoder import Encoder

TOGETHER = 512
CHARACTERS_TOGETHER = 1_000_000
# Chunks that are read before they are asked for.
AHEAD = 2
MOST_DEATHS = 3
# After so many chunks without a document that is new, they are sent as they are.
SPLIT_WITHOUT_NEWS = 8


@dataclass(frozen=True, slots=True)
class SplitDocument(Document):
    """A document with its passages found."""

    encoded_title: str = ""
    spans: tuple[tuple[int, int], ...] = ()


@dataclass
class Chunk:
    """Some of what a corpus has; `failure` is what came after it, and `fraction` how much has been read by then."""

    items: list[Document | Skipped] = field(default_factory=list)
    failure: Exception | None = None
    last: bool = False
    fraction: float | None = None


def passages_of(document: Document, encoder: "Encoder") -> Iterator[tuple[int, int, str]]:
    """The passages of a document, found before or to be found now."""
    if not isinstance(document, SplitDocument):
        return encoded_passages(document, encoder)
    title, text = document.encoded_title, document.text
    return ((start, end, encoded_text(title, text[start:end])) for start, end in document.spans)


def _split(document: Document, encoder: "Encoder") -> SplitDocument:
    budget, count_tokens = encoder.token_budget, encoder.count_tokens
    title = fit_title(document.title, budget, count_tokens)
    spans = tuple((p.start, p.end) for p in split(document.text, title, budget, count_tokens))
    given = {one.name: getattr(document, one.name) for one in fields(Document)}
    return SplitDocument(**given, encoded_title=title, spans=spans)


def _place(corpus: Corpus) -> tuple[int, int, int] | None:
    """Who looks at the first file, and which it is: equal only where the same is seen by the same user."""
    first = next((place.path for place in corpus.places if isinstance(place, SourceFile)), None)
    try:
        found = os.stat(first) if first else None  # noqa: PTH116 - nothing else of a path is wanted
    except OSError:
        return None
    return (os.getuid() if hasattr(os, "getuid") else 0, found.st_dev, found.st_ino) if found else None


class Reader:
    """What runs in the other process."""

    def __init__(self, corpus: Corpus, skip: int, spec: EncoderSpec, folder: str) -> None:
        from retriever.corpus.source import Source

        self._seen: tuple[int, int, int] | None = None
        try:
            os.chdir(folder)
        except OSError:
            return
        self._seen = _place(corpus)
        self._source = Source(corpus)
        self._items = islice(iter(self._source), skip, None)
        self._spec = spec
        self._encoder: Encoder | None = None

    def seen(self) -> tuple[int, int, int] | None:
        return self._seen

    def next(self, split: bool) -> Chunk:
        """The next documents, with their passages if wanted."""
        chunk, characters = Chunk(), 0
        try:
            if split and self._encoder is None:
                self._encoder = self._spec.made()
            for item in islice(self._items, TOGETHER):
                if isinstance(item, Document):
                    characters += item.characters()
                    item = _split(item, self._encoder) if split and self._encoder else item
                chunk.items.append(item)
                if characters >= CHARACTERS_TOGETHER:
                    break
            else:
                chunk.last = len(chunk.items) < TOGETHER
        except RetrieverError as error:
            chunk.failure = error
        chunk.fraction = self._source.fraction_read
        return chunk


class Reading:
    """The documents of a source, as they come from a reader."""

    def __init__(self, source: "Source", corpus: Corpus, spec: EncoderSpec, cluster: Cluster) -> None:
        self._source, self._corpus, self._spec, self._cluster = source, corpus, spec, cluster
        self._received = source.taken
        self._chunk = Chunk()
        self._left = 0
        self._before: float = 0.0
        self._without_news = 0
        self._reader: Any = None

    @classmethod
    def of(cls, source: "Source", spec: EncoderSpec, cluster: Cluster) -> "Reading | None":
        """None where the source must be read in this process."""
        corpus = source.files
        if corpus is None or cluster.client:
            return None
        reading = cls(source, corpus, spec, cluster)
        reading._reader = reading._begun()
        try:
            same = cluster.ray.get(reading._reader.seen.remote()) == _place(corpus) is not None
        except cluster.ray.exceptions.RayError:
            same = False
        if not same:
            reading.close()
            return None
        return reading

    def _begun(self) -> Any:
        ray = self._cluster.ray
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        actor = ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0, scheduling_strategy=here)(Reader)
        return actor.remote(self._corpus, self._received, self._spec, os.getcwd())  # noqa: PTH109 - a text is sent

    def has_news(self) -> None:
        """A document was new. Where none has been for a while, all is stored, and need not be split once more."""
        self._without_news = 0

    @property
    def fraction_read(self) -> float | None:
        """How much has been given out, from 0 to 1."""
        if self._chunk.fraction is None:
            return self._source.fraction_read
        share = 1 - self._left / max(1, len(self._chunk.items))
        return self._before + share * (self._chunk.fraction - self._before)

    def __iter__(self) -> Iterator[Document | Skipped]:
        yield from self._source.read_ahead()
        for chunk in self._chunks():
            self._before, self._chunk = self._chunk.fraction or 0.0, chunk
            self._left = len(chunk.items)
            for item in chunk.items:
                self._left -= 1
                yield item
            if chunk.failure:
                raise chunk.failure

    def _chunks(self) -> Iterator[Chunk]:
        ray, deaths = self._cluster.ray, 0
        asked: deque[Any] = deque()
        while True:
            while len(asked) < AHEAD:
                asked.append(self._reader.next.remote(self._without_news < SPLIT_WITHOUT_NEWS))
                self._without_news += 1
            try:
                while not ray.wait([asked[0]], timeout=1.0)[0]:
                    self._cluster.check()
                chunk = ray.get(asked.popleft())
            except ray.exceptions.RayTaskError as error:
                raise error.cause if isinstance(error.cause, Exception) else error from None
            except ray.exceptions.RayError as error:
                deaths += 1
                if deaths >= MOST_DEATHS:
                    raise ClusterLost(f"its reader died {deaths} times ({first_line(error)})") from error
                asked.clear()
                self._cluster.wait_for_head()
                self._reader = self._begun()  # another goes on where this one was
                continue
            deaths = 0
            self._received += len(chunk.items)
            yield chunk
            if chunk.last or chunk.failure:
                return

    def close(self) -> None:
        """Let the reader go."""
        self._cluster.kill(self._reader)
