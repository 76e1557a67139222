"""A reader process, which reads files and splits documents into passages, in order and ahead of the main process.

The reader runs on the node of the main process, so that it sees the same files. It reserves no CPU of the cluster,
because reading is much faster than embedding. The main process reads the source itself in two cases: if the source is
not made of files, or if the reader would not see the same files (another user, or another machine behind ray://).
"""

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import TYPE_CHECKING, Any

from retriever.corpus import Corpus, Document
from retriever.corpus.files import Item
from retriever.corpus.listing import SourceFile
from retriever.corpus.passages import encoded_passages, encoded_text, passage_spans
from retriever.errors import RetrieverError, first_line
from retriever.ingest.engines.ray.cluster import Cluster, ClusterLost
from retriever.ingest.engines.ray.worker import EncoderSpec

if TYPE_CHECKING:
    from retriever.corpus.account import Account
    from retriever.corpus.source import Source
    from retriever.encoder.encoder import Encoder

CHUNK_ITEMS = 512
CHUNK_CHARACTERS = 1_000_000
# Number of chunks that are requested ahead.
AHEAD = 2
MAX_DEATHS = 3
# After this many chunks without a new document, the reader sends documents without splitting them.
CHUNKS_WITHOUT_NEW = 8

FileIdentity = tuple[int, int, int]
"""The user id of the process, and the device and inode of the first file of a corpus."""


@dataclass(frozen=True, slots=True)
class SplitDocument(Document):
    """A document with its passages."""

    encoded_title: str = ""
    spans: tuple[tuple[int, int], ...] = ()


@dataclass
class Chunk:
    """Some documents of a corpus. `fraction` is the share of the corpus that has been read at the end of the chunk."""

    items: list[Item] = field(default_factory=list)
    failure: Exception | None = None
    """The error that ended the reading after these documents, if any."""
    last: bool = False
    fraction: float | None = None
    account: "Account | None" = None
    """What the reader has read and has not read of the files, at the end of the chunk."""


def passages_of(document: Document, encoder: "Encoder") -> Iterator[tuple[int, int, str]]:
    """Return the passages of a document. If the reader has already split the document, use its result."""
    if not isinstance(document, SplitDocument):
        return encoded_passages(document, encoder)
    title, text = document.encoded_title, document.text
    return ((start, end, encoded_text(title, text[start:end])) for start, end in document.spans)


def _split(document: Document, encoder: "Encoder") -> SplitDocument:
    title, found = passage_spans(document, encoder)
    spans = tuple((span.start, span.end) for span in found)
    values = {attribute.name: getattr(document, attribute.name) for attribute in fields(Document)}
    return SplitDocument(**values, encoded_title=title, spans=spans)


def _identity(corpus: Corpus) -> FileIdentity | None:
    """Return a value that identifies the user and the first file; None if the file cannot be accessed.

    It is equal in two processes only if both run as the same user and see the same files.
    """
    first = next((place.path for place in corpus.places if isinstance(place, SourceFile)), None)
    try:
        found = os.stat(first) if first else None  # noqa: PTH116 - the type of the path is not needed
    except OSError:
        return None
    return (os.getuid() if hasattr(os, "getuid") else 0, found.st_dev, found.st_ino) if found else None


class Reader:
    """The actor that reads a corpus."""

    def __init__(self, corpus: Corpus, skip: int, spec: EncoderSpec, folder: str) -> None:
        from retriever.corpus.source import Source

        self._identity: FileIdentity | None = None
        try:
            os.chdir(folder)
        except OSError:
            return
        self._identity = _identity(corpus)
        self._source = Source(corpus)
        self._items = islice(iter(self._source), skip, None)
        self._spec = spec
        self._encoder: Encoder | None = None

    def identity(self) -> FileIdentity | None:
        return self._identity

    def next(self, split: bool) -> Chunk:
        """Return the next documents. If `split` is True, they include their passages."""
        chunk, characters = Chunk(), 0
        try:
            if split and self._encoder is None:
                self._encoder = self._spec.load()
            for item in islice(self._items, CHUNK_ITEMS):
                if isinstance(item, Document):
                    characters += item.characters()
                    item = _split(item, self._encoder) if split and self._encoder else item
                chunk.items.append(item)
                if characters >= CHUNK_CHARACTERS:
                    break
            else:
                chunk.last = len(chunk.items) < CHUNK_ITEMS
        except RetrieverError as error:
            chunk.failure = error
        chunk.fraction, chunk.account = self._source.fraction_read, self._source.account
        return chunk


class RemoteSource:
    """The documents of a source, read by a `Reader` in another process."""

    def __init__(self, source: "Source", corpus: Corpus, spec: EncoderSpec, cluster: Cluster) -> None:
        self._source, self._corpus, self._spec, self._cluster = source, corpus, spec, cluster
        self._received = source.taken
        self._chunk = Chunk()
        self._left = 0
        self._fraction_before = 0.0
        self._chunks_without_new = 0
        self._reader = self._start_reader()

    @classmethod
    def open(cls, source: "Source", spec: EncoderSpec, cluster: Cluster) -> "RemoteSource | None":
        """Start a reader. Return None if this process must read the source itself."""
        corpus = source.files
        if corpus is None or cluster.client:
            return None
        opened = cls(source, corpus, spec, cluster)
        try:
            same = cluster.ray.get(opened._reader.identity.remote()) == _identity(corpus) is not None
        except cluster.ray.exceptions.RayError:
            same = False
        if not same:
            opened.close()
            return None
        return opened

    def _start_reader(self) -> Any:
        ray = self._cluster.ray
        node = ray.get_runtime_context().get_node_id()
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        actor = ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0, scheduling_strategy=here)(Reader)
        return actor.remote(self._corpus, self._received, self._spec, os.getcwd())  # noqa: PTH109 - sent as a text

    def found_new_document(self) -> None:
        """Record that a document was new, so that the reader continues to split documents.

        The reader stops splitting documents if all of them are already stored, because their passages are not needed.
        """
        self._chunks_without_new = 0

    @property
    def account(self) -> "Account | None":
        return self._chunk.account or self._source.account

    @property
    def fraction_read(self) -> float | None:
        """The fraction of the source that has been yielded so far."""
        if self._chunk.fraction is None:
            return self._source.fraction_read
        share = 1 - self._left / max(1, len(self._chunk.items))
        return self._fraction_before + share * (self._chunk.fraction - self._fraction_before)

    def __iter__(self) -> Iterator[Item]:
        yield from self._source.read_ahead()
        for chunk in self._chunks():
            self._fraction_before, self._chunk = self._chunk.fraction or 0.0, chunk
            self._left = len(chunk.items)
            for item in chunk.items:
                self._left -= 1
                yield item
            if chunk.failure:
                raise chunk.failure

    def _chunks(self) -> Iterator[Chunk]:
        ray, deaths = self._cluster.ray, 0
        requests: deque[Any] = deque()
        while True:
            while len(requests) < AHEAD:
                requests.append(self._reader.next.remote(self._chunks_without_new < CHUNKS_WITHOUT_NEW))
                self._chunks_without_new += 1
            try:
                while not ray.wait([requests[0]], timeout=1.0)[0]:
                    self._cluster.check()
                chunk = ray.get(requests.popleft())
            except ray.exceptions.RayTaskError as error:
                raise error.cause if isinstance(error.cause, Exception) else error from None
            except ray.exceptions.RayError as error:
                deaths += 1
                if deaths >= MAX_DEATHS:
                    raise ClusterLost(f"its reader died {deaths} times ({first_line(error)})") from error
                requests.clear()
                self._cluster.wait_for_head()
                self._reader = self._start_reader()  # the new reader continues after the last chunk received
                continue
            deaths = 0
            self._received += len(chunk.items)
            yield chunk
            if chunk.last or chunk.failure:
                return

    def close(self) -> None:
        self._cluster.kill(self._reader)
