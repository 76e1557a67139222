"""Open the collection that a build writes to. For a new one, first choose encoder, pooling, precision and language."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from indexes.places import collection_class
from indexes.protocol import AnyCollection
from retriever.corpus.language import language_of
from retriever.corpus.source import Source
from retriever.encoder.functions import brought
from retriever.encoder.model_files import LEARNED
from retriever.errors import Mismatch, Misuse
from retriever.ingest.encoder_choice import is_pooling_open, pieces_per_word, with_chosen_precision
from retriever.ingest.engines import Engine
from retriever.ingest.pooling_choice import with_chosen_pooling
from retriever.ingest.word_table import with_word_table
from retriever.progress import Progress
from retriever.settings import CollectionSettings, EncoderOptions, IndexSettings
from retriever.transforms.spec import AUTO


def refuse_contradictions(options: EncoderOptions, pooling: str | None, precision: str | None, engine: str) -> None:
    """Refuse settings of an encoder that exclude each other. Call this before anything is read."""
    if not options.is_model:
        if given := [name for name, value in (("pooling", pooling), ("precision", precision)) if value is not None]:
            raise Misuse(
                f"`{given[0]}` is a setting of a model; leave it out for a function, an object or an endpoint."
            )
        if engine == "ray":
            raise Misuse(
                '`engine="ray"` needs an encoder that is given by its name or folder, so that the workers can load it.'
            )
    if pooling == LEARNED and precision == "int8":
        raise Misuse("a word table cannot use 8-bit integers; leave `precision` out.")
    if pooling == LEARNED and (options.query_prompt or options.document_prompt):
        raise Misuse("a learned word table has no prompts; leave `query_prompt` and `document_prompt` out.")


class Creation:
    """The settings of a collection that is made, or brought up to date, from a source."""

    def __init__(
        self,
        index: str | Path,
        source: Source,
        options: EncoderOptions,
        changes: Sequence[Any],
        pooling: str | None,
        progress: Progress,
    ) -> None:
        """Check the settings, before the source is read. `changes` are those of the index."""
        self.options = options
        """How to find the encoder. `open` may change it."""
        self._index, self._source, self._pooling, self._progress = index, source, pooling, progress
        self._kind = collection_class(index)
        self._new = None if self._kind.is_begun(index) else IndexSettings().changed(*changes)
        self._settings: CollectionSettings | None = None
        if self._new and not (options.name is None and source.brings_vectors()):
            self._settings = CollectionSettings.new(self._kind, options, self._new, progress)

    def open(self, running: Engine, device: str) -> AnyCollection:
        """Return the open collection. Call this after the source was found not to be empty."""
        collection = self._create(running) if self._new else self._existing()
        collection.device = device
        return collection

    def _existing(self) -> AnyCollection:
        collection = self._kind.open(self._index)
        if self._pooling == LEARNED != collection.encoder["pooling"]:
            collection.close()
            raise Mismatch(f"{self._index} was made without a word table. To learn one, index into another folder.")
        return collection

    def _create(self, running: Engine) -> AnyCollection:
        assert self._new is not None
        self._kind.refuse_if_taken(self._index)
        settings = self._settings
        if settings is None:
            dimension = self._source.dimension()
            self._new.check(dimension, self.options.device, self._kind)
            settings = CollectionSettings(brought(dimension), self._new)
        elif self.options.is_model:
            settings = self._with_choices(settings, running)
        settings = replace(settings, language=language_of(self._source.peek()))
        return self._kind.create(self._index, settings.to_json())

    def _with_choices(self, settings: CollectionSettings, running: Engine) -> CollectionSettings:
        """Choose the pooling and the precision if they were not given, or learn a word table."""
        source, options, progress = self._source, self.options, self._progress
        texts = [document.text for document in source.peek()]
        settings = replace(settings, pieces_per_word=pieces_per_word(options.model(settings.encoder), texts))
        pooling = self._pooling
        if pooling is None and is_pooling_open(source, options):
            pooling = AUTO
        if pooling == AUTO:
            settings = with_chosen_pooling(settings, source, options, progress)
        if LEARNED in (pooling, settings.encoder.pooling):
            place = self._kind.encoder_place(self._index)
            settings = with_word_table(settings, source, options, place, progress)
            self.options = replace(options, name=None, pooling=None, max_length=None, precision=None)
        elif options.precision is None:
            settings = with_chosen_precision(settings, source, options, running.gpus, progress)
        return settings
