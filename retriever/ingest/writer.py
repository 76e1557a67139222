"""Write to a collection: ingest and delete documents, and publish a new index when it is due.

Publishing has four steps: fit the transform if necessary, apply it to the stored raw vectors, build the index, and
switch to the new index.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.folder.collection import Collection
from indexes.generation import Generation, Publication
from indexes.protocol import AnyCollection
from indexes.rows import ApplyEach
from retriever.corpus.source import OnError, Source
from retriever.encoder.base import AnyEncoder
from retriever.encoder.encoder import Encoder, resolve_device
from retriever.encoder.model_files import LEARNED, EncoderIdentity
from retriever.encoder.static.folder import replace_table
from retriever.errors import Damaged, Misuse, NotACollection
from retriever.ingest.engines import Engine
from retriever.ingest.fitted import FIT_SAMPLE, Fitted, return_free_memory
from retriever.ingest.pipeline import Ingestion, IngestReport, hash_of_text
from retriever.progress import Progress, silent
from retriever.settings import IndexSettings, made_by
from retriever.transforms.base import Transform
from retriever.transforms.choice import FEWEST_PASSAGES
from retriever.transforms.novelty import Drift, Novelty, drift

# A transform that was fitted on few passages is fitted again when their number has grown by this factor.
REFIT_GROWTH = 2
# A search compares a query with every vector that is newer than the index. Above this number, a new index is due.
BACKLOG_ROWS = 1000
BACKLOG_SHARE = 0.1
COPY_OF = "copy_of"
"""The setting that marks a collection as an unfinished copy. Its value describes the source of the copy."""

SOURCES = "sources"
"""The setting with the paths that the collection was made from. A copy of the collection does not have it."""

Changes = Sequence[Any]
"""The arguments of `IndexSettings.changed`. An empty sequence keeps all settings."""


class Writer:
    """Writes to one collection."""

    def __init__(
        self, collection: AnyCollection, encoder: Callable[[], AnyEncoder], device: str, progress: Progress
    ) -> None:
        self.report = IngestReport()
        """The report of the last ingestion, or of the ingestion that is running."""
        self.engine = Engine()
        self._collection = collection
        self._encoder = encoder
        self._device = device
        self._progress = progress
        self._encoded: dict[tuple[str, ...], NDArray[np.float32]] = {}

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Hold the write lock.

        Refuse an unfinished copy. Also refuse a collection whose settings and index name different encoders.
        """
        with self._collection.writing():
            self._collection.refuse_another_encoder()
            if origin := self._collection.store.setting(COPY_OF):
                raise NotACollection(
                    f"{self._collection.name} is an unfinished copy of {origin['place']}; finish it with: "
                    f"retriever copy {origin['place']} {self._collection.name}"
                )
            yield

    def ingest(self, source: Source, on_error: OnError, changes: Changes = (), prune: bool = False) -> None:
        """Store new and changed documents, then publish a new index if one is due.

        With `changes`, a new index is also published if any vector is newer than the index.
        """
        with self._lock():
            self._ingest(source, self._wanted(changes), on_error, prune, bool(changes))

    def _wanted(self, changes: Changes) -> IndexSettings:
        wanted = IndexSettings.of(self._collection).changed(*changes)
        if changes:
            wanted.check(self._collection.dimension, self._device, type(self._collection))
        return wanted

    def _ingest(self, source: Source, wanted: IndexSettings, on_error: OnError, prune: bool, whole: bool) -> None:
        encoder, store = self._encoder(), self._collection.store
        ingestion = Ingestion(store, encoder, on_error=on_error, progress=self._progress, engine=self.engine)
        self.report = ingestion.report
        last_before = store.last_vector()
        source.leave_out(store.file_states())
        known = store.setting(SOURCES)
        complete = whole and (prune or covers(source.origins, known))
        if complete and source.origins != known:
            store.set_settings({SOURCES: source.origins})
        ingestion.run(self.engine.documents(source, encoder), prune=prune, whole=complete)
        newer, unused = self._collection.backlog()
        if is_due(self._collection, wanted) or (whole and newer):
            self.publish(wanted, compact=unused > BACKLOG_SHARE * store.count("vectors"))
        self.report.drift = self.drift(last_before)

    def delete(self, ids: Sequence[str]) -> list[str]:
        """Delete documents and return the ids that existed."""
        with self._lock():
            wanted, store = IndexSettings.of(self._collection), self._collection.store
            deleted = store.delete_documents(ids)
            if store.count("passages") and is_due(self._collection, wanted):
                self.publish(wanted, compact=True)
            return deleted

    def rebuild(self, changes: Changes) -> None:
        """Fit the transform and build the index again, with changed settings if `changes` are given."""
        with self._lock():
            if not self._collection.store.count("passages"):
                raise Misuse(f"{self._collection.name} has no documents to rebuild an index from.")
            wanted = self._wanted(changes)
            if self._collection.encoder["pooling"] == LEARNED and isinstance(self._collection, Collection):
                self._learn_again(self._collection, wanted)
            else:
                self.publish(wanted, refit=True, compact=True)

    def _learn_again(self, collection: Collection, wanted: IndexSettings) -> None:
        """Learn the word table again if the documents have changed, and publish an index of the new vectors.

        The settings, the vectors and the index change in one transaction.
        """
        from retriever.ingest.word_table import embed_again, learned_again

        old = self._encoder()
        assert isinstance(old, Encoder)  # a word table is one
        if changed := learned_again(collection, old, self._progress):
            with collection.store.changing():
                collection.store.set_settings(changed)
                self._encoded = {}
                embed_again(collection, old, self._encoder(), self._progress)
                self.publish(wanted, refit=True, compact=True)
            replace_table(EncoderIdentity.from_json(collection.encoder), collection.encoder_place(collection.folder))
            if published := collection.published():
                collection.remove_older(published[0])
        else:
            self.publish(wanted, refit=True, compact=True)

    def publish(self, wanted: IndexSettings, *, refit: bool = False, compact: bool = False) -> Transform:
        """Publish a new generation of the index, and return its transform.

        The transform is chosen and fitted again only if that is necessary or if `refit` is True. If `compact` is True,
        unused vectors are removed.
        """
        return_free_memory()
        collection = self._collection
        generation = None if refit else collection.generation()
        if generation and generation.manifest["asked"] == wanted.transform and not _is_outgrown(collection, generation):
            fitted, new = Fitted.from_generation(collection, generation), False
        else:
            device = resolve_device(self._device)
            fitted, new = Fitted.fit(collection, wanted.transform, self._encode, device, self._progress), True
        apply_each = partial(self.engine.mapped, fitted.transform)
        publication = _publication(collection, wanted, fitted, compact=compact, reconsider=new, apply_each=apply_each)
        collection.publish(publication, self._progress)
        return fitted.transform

    def restore(self, copies: Iterable[Mapping[str, bytes]], fitted_on: Mapping[str, int] | None) -> bool:
        """Publish the index again with the first intact copy of the transform's files.

        If no copy is intact, fit a new transform. Return whether a copy was intact. If damage has made the settings
        of the index invalid, the defaults are used.
        """
        try:
            wanted = IndexSettings.of(self._collection)
            wanted.check(self._collection.dimension, "cpu", type(self._collection))
        except Misuse:
            wanted = IndexSettings()
        for files in copies:
            with contextlib.suppress(Damaged):
                republish(self._collection, wanted, files, fitted_on, progress=self._progress)
                return True
        self.publish(wanted, refit=True)
        return False

    def drift(self, after: int = 0) -> Drift | None:
        """Compare the vectors that were added after the fit, and after vector number `after`, with those of the fit."""
        novelty = self._collection.with_generation(lambda generation: generation and Novelty.of(generation))
        return drift(self._collection, novelty, after) if novelty else None

    def _encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode short texts for a fit, as queries.

        The last two lists are cached, because the next fit usually needs the same texts.
        """
        key = tuple(texts)
        if key not in self._encoded:
            self._encoded = dict([*self._encoded.items(), (key, self._query_vectors(texts))][-2:])
        return self._encoded[key]

    def _query_vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode texts as queries. A text that is also a passage, e.g. a document of one sentence, has a vector."""
        encoder, store = self._encoder(), self._collection.store
        if encoder.identity.query_prompt != encoder.identity.document_prompt:
            return self.engine.encode_queries(texts, encoder)
        hashes = [hash_of_text(text) for text in texts]
        known = store.vectors_of_texts(hashes)
        found = np.array([text_hash in known for text_hash in hashes], bool)
        rows = np.empty((len(texts), self._collection.dimension), np.float32)
        if found.any():
            numbers = [known[text_hash] for text_hash in hashes if text_hash in known]
            rows[found] = store.vectors(numbers, self._collection.dimension, checked=True)
        if not found.all():
            missing = [text for text, text_hash in zip(texts, hashes, strict=True) if text_hash not in known]
            rows[~found] = self.engine.encode_queries(missing, encoder)
        return rows


def covers(origins: Sequence[str] | None, known: Sequence[str] | None) -> bool:
    """Return whether a source has everything that the collection was made from.

    If it has not, e.g. because it is one new file, the documents that it lacks are not gone. What no longer exists
    does not count.
    """
    return known is None or set(origins or ()) >= {one for one in known if os.path.lexists(one)}


def is_due(collection: AnyCollection, wanted: IndexSettings) -> bool:
    """Return whether a new index is due.

    It is due if there is no published index, if its settings are not `wanted`, if its transform was fitted on too few
    passages, or if too many vectors are newer or no longer used.
    """
    generation = collection.generation()
    if generation is None:
        return collection.store.count("passages") > 0
    if generation.manifest["asked"] != wanted.transform or generation.requested != wanted.index:
        return True
    if _is_outgrown(collection, generation):
        return True
    newer, unused = collection.backlog()
    return newer + unused > max(BACKLOG_ROWS, BACKLOG_SHARE * generation.count)


def republish(
    collection: AnyCollection,
    wanted: IndexSettings,
    files: Mapping[str, bytes],
    fitted_on: Mapping[str, int] | None,
    *,
    settings: Mapping[str, Any] | None = None,
    progress: Progress = silent,
) -> None:
    """Build the index again with the transform in `files`, without fitting.

    `settings` are other settings that are stored in the same step. `fitted_on` is None if the manifest is lost.
    """
    fitted = Fitted.from_files(collection, files, fitted_on)
    collection.publish(_publication(collection, wanted, fitted, settings=settings), progress)


def _publication(
    collection: AnyCollection,
    wanted: IndexSettings,
    fitted: Fitted,
    *,
    compact: bool = False,
    reconsider: bool = False,
    apply_each: ApplyEach | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Publication:
    transform = fitted.transform
    facts = {
        "made_by": made_by(),
        "encoder": collection.encoder,
        "asked": wanted.transform,
        "transform": transform.describe(),
        "fitted_on": dict(fitted.fitted_on),
    }
    return Publication(
        transform.apply,
        transform.dimension_out,
        wanted.index,
        fitted.write,
        facts,
        {**wanted.to_json(), "choice": fitted.choice, **(settings or {})},
        compact=compact,
        queries=None if fitted.queries is None else fitted.queries.astype(np.float32),
        reconsider=reconsider,
        apply_each=apply_each,
    )


def _is_outgrown(collection: AnyCollection, generation: Generation) -> bool:
    """Return whether the transform was fitted on so few passages that fitting it again is worthwhile."""
    passages = int(generation.manifest["fitted_on"]["passages"])
    if passages >= FIT_SAMPLE:
        return False
    if passages < FEWEST_PASSAGES and collection.store.setting("choice") is not None:
        return collection.store.count_used_after(0) >= min(REFIT_GROWTH * passages, FEWEST_PASSAGES)
    return collection.store.count_used_after(0) >= REFIT_GROWTH * passages
