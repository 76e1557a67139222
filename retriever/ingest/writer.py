"""Changes to a collection: documents added and deleted, and the index published when it is due."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from indexes.protocol import AnyCollection
from retriever.corpus.source import OnError, Source
from retriever.encoder.encoder import Encoder
from retriever.encoder.model_loader import resolve_device
from retriever.errors import Damaged, Misuse, NotACollection
from retriever.ingest import publishing
from retriever.ingest.engines import Engine, Local
from retriever.ingest.pipeline import Ingestion, IngestReport
from retriever.progress import Progress
from retriever.settings import IndexSettings
from retriever.transforms.drift import Drift, drift
from retriever.transforms.novelty import Novelty

COPY_OF = "copy_of"
"""The setting that marks a collection as an unfinished copy; it holds the origin."""


class Writer:
    """Writes to one collection."""

    def __init__(
        self, collection: AnyCollection, encoder: Callable[[], Encoder], device: str, progress: Progress
    ) -> None:
        self.report = IngestReport()
        """What the last ingestion did, or has done so far."""
        self.engine: Engine = Local()
        self._collection = collection
        self._encoder = encoder
        self._device = device
        self._progress = progress
        self._encoded: dict[tuple[str, ...], NDArray[np.float32]] = {}

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the write lock; refuse an unfinished copy, or settings with another encoder than the index."""
        with self._collection.writing():
            self._collection.refuse_another_encoder()
            if origin := self._collection.store.setting(COPY_OF):
                raise NotACollection(
                    f"{self._collection.name} is an unfinished copy of {origin['place']}; finish it with: "
                    f"retriever copy {origin['place']} {self._collection.name}"
                )
            yield

    def ingest(
        self, source: Source, wanted: IndexSettings, on_error: OnError, *, prune: bool = False, whole: bool = False
    ) -> None:
        """Store new and changed documents, then publish if due; with `whole`, also if any vector is newer."""
        encoder, store = self._encoder(), self._collection.store
        ingestion = Ingestion(store, encoder, on_error=on_error, progress=self._progress, engine=self.engine)
        self.report = ingestion.report
        last_before = store.last_vector()
        ingestion.run(self.engine.documents(source, encoder), prune=prune)
        newer, unused = self._collection.backlog()
        if publishing.is_due(self._collection, wanted) or (whole and newer):
            self.publish(wanted, compact=unused > publishing.BACKLOG_SHARE * store.count("vectors"))
        self.report.drift = self.drift(last_before)

    def delete(self, ids: Sequence[str]) -> list[str]:
        """Delete documents and return the ids that existed."""
        wanted, store = IndexSettings.of(self._collection), self._collection.store
        deleted = store.delete_documents(ids)
        if store.count("passages") and publishing.is_due(self._collection, wanted):
            self.publish(wanted, compact=True)
        return deleted

    def publish(self, wanted: IndexSettings, *, refit: bool = False, compact: bool = False) -> None:
        publishing.publish(
            self._collection,
            wanted,
            self._encode,
            refit=refit,
            compact=compact,
            device=resolve_device(self._device),
            apply_each=self.engine.mapped,
            progress=self._progress,
        )

    def restore(self, copies: Iterable[Mapping[str, bytes]], fitted_on: Mapping[str, int] | None) -> bool:
        """Publish again with the first sound copy of the transform's files, or fit a new one.

        Return whether a copy was sound. Settings that damage has made invalid go back to the defaults.
        """
        try:
            wanted = IndexSettings.of(self._collection)
            wanted.check(self._collection.dimension, "cpu", type(self._collection))
        except Misuse:
            wanted = IndexSettings()
        for files in copies:
            with contextlib.suppress(Damaged):
                publishing.republish(self._collection, wanted, files, fitted_on, progress=self._progress)
                return True
        self.publish(wanted, refit=True)
        return False

    def drift(self, after: int = 0) -> Drift | None:
        """Compare what was added since the fit, after the vector number `after`, with what the fit saw."""
        novelty = self._collection.with_generation(lambda generation: generation and Novelty.of(generation))
        return drift(self._collection, novelty, after) if novelty else None

    def _encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode texts for a fit; the last two sets are cached, because the next fit mostly needs the same."""
        key = tuple(texts)
        if key not in self._encoded:
            vectors = self.engine.encode(texts, self._encoder())
            self._encoded = dict([*self._encoded.items(), (key, vectors)][-2:])
        return self._encoded[key]
