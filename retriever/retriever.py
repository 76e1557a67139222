"""The public API: build or open a collection, add and delete documents, search, and maintain it.

Modules that a search does not need are imported where they are used, so that a first search starts quickly.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np
from numpy.typing import NDArray

from indexes.checksums import is_unicode
from indexes.folder.collection import Collection
from indexes.places import collection_class
from indexes.protocol import AnyCollection
from indexes.sqlite.connections import Lock, fork_safe
from retriever.encoder.encoder import Encoder
from retriever.encoder.model_files import LEARNED
from retriever.errors import Mismatch, Misuse
from retriever.hits import Answer, Hits, Options
from retriever.progress import Progress, silent
from retriever.recovery.damage import detect_damage
from retriever.search.searcher import Searcher
from retriever.settings import CollectionSettings, EncoderOptions, IndexSettings
from retriever.transforms import load_transform
from retriever.transforms.spec import AUTO

if TYPE_CHECKING:
    from indexes.folder.verify import Report as VerifyReport
    from retriever.card.contents import Card
    from retriever.corpus.document import Document
    from retriever.corpus.source import Documents, OnError, Source
    from retriever.ingest.pipeline import IngestReport
    from retriever.ingest.writer import Writer
    from retriever.maps.map import Map
    from retriever.transfer.export import Format


class Retriever:
    """A collection of documents that can be searched by meaning, by words, or by both.

    >>> with Retriever.build([{"id": "1", "text": "Cats purr."}], "collections/pets") as pets:
    ...     pets.search("feline noises")[0].id
    '1'

    Threads and forked children may share a Retriever. A fork waits for running searches. It does not wait for a
    running `build`, `add`, `delete`, `rebuild`, `verify` or `export`: a child forked during one of these must not use
    the Retriever. Fork before or after it, or start the child with `multiprocessing.get_context("spawn")` and open the
    collection there.
    """

    def __init__(self, collection: AnyCollection, options: EncoderOptions, progress: Progress = silent) -> None:
        """Wrap an open collection. Usually, call `Retriever.open` or `Retriever.build` instead."""
        self.collection = collection
        self.progress = progress
        self._options = options
        self._encoder: Encoder | None = None
        self._encoder_lock = Lock()
        self._engine_notes: list[str] = []
        collection.apply_of = lambda generation: self._searcher.apply_of(generation)

    @classmethod
    @fork_safe
    def open(
        cls, index: str | Path, *, encoder: str | None = None, device: str = "auto", progress: Progress = silent
    ) -> Self:
        """Open an existing collection: a folder, or `milvus:URI`.

        `encoder` is the name or folder of the encoder; give it only if the encoder has moved since the collection was
        built. `device` is "cpu", "cuda" or "auto"; "auto" uses a GPU for the encoder and the index if there is one.
        `progress` is called during long operations.
        """
        collection = collection_class(index).open(index, device=device)
        return cls(collection, EncoderOptions(encoder, device=device), progress)

    @classmethod
    def build(
        cls,
        documents: "Documents",
        index: str | Path,
        *,
        encoder: str | None = None,
        pooling: str | None = None,
        max_length: int | None = None,
        transform: str | None = None,
        index_type: str | None = None,
        recall: float | None = None,
        memory: int | None = None,
        precision: str | None = None,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        batch_tokens: int | None = None,
        device: str = "auto",
        on_error: "OnError" = "skip",
        prune: bool = False,
        engine: str = "local",
        address: str | None = None,
        progress: Progress = silent,
    ) -> Self:
        """Make a collection from documents, or update an existing collection with them.

        Only new and changed documents are embedded. If a build was interrupted, the next build continues where it
        stopped. An option that is None keeps its value in an existing collection, and has its default in a new one.

        Args:
            documents: Texts, dicts, `Document` objects, or a `Corpus` of files.
            index: The collection: a folder, or `milvus:URI`.
            encoder: The name or folder of a BERT. Default: the embedded all-MiniLM-L6-v2.
            pooling: How token vectors become one vector. "auto" chooses a pooling from the text. "learned" replaces
                the BERT by a table of the corpus's words, which is learned from the text and the BERT's input
                embeddings. Default: the pooling of the model, or "auto" if the model does not come with one.
            max_length: Maximum number of tokens in an input of the encoder. Default: the maximum of the model.
            transform: The spec of a transform. Default: "auto", which chooses one from the text.
            index_type: The FAISS index. Default: "flat", which is exact. "auto" chooses the fastest index that
                reaches `recall` within `memory`.
            recall: The recall that `index_type="auto"` must reach. Default: 0.95.
            memory: Maximum size in bytes of the index that `index_type="auto"` chooses. Default: unlimited.
            precision: "fp32" or "int8". Default: "auto", which chooses int8 if the search results on a sample of the
                documents stay nearly the same as with fp32.
            query_prompt: The text that is put before every query, e.g. "query: ". An empty text means no prompt.
                Default: the prompt that a sentence-transformers model comes with, or none.
            document_prompt: The same for every passage, e.g. "passage: ".
            batch_tokens: Maximum number of tokens that the encoder processes at once.
            device: "cpu", "cuda" or "auto", which uses a GPU if there is one.
            on_error: What to do with an unreadable document. "skip" leaves it out and reports it, "stop" raises
                `BadSource`.
            prune: Delete the documents that `documents` no longer contains.
            engine: "local", or "ray" to let the workers of a Ray cluster read, embed and transform.
            address: The address of the Ray cluster. Default: start one on this machine for this build.
            progress: Called during long operations.
        """
        from retriever.corpus.source import Source
        from retriever.ingest import engines
        from retriever.ingest.encoder_choice import with_chosen_precision
        from retriever.ingest.pooling_choice import with_chosen_pooling
        from retriever.ingest.word_table import with_word_table

        engines.check(engine, address)
        if pooling == LEARNED and precision == "int8":
            raise Misuse("a word table has no 8-bit integers; leave `precision` out.")
        if pooling == LEARNED and (query_prompt or document_prompt):
            raise Misuse("a learned word table has no prompts; leave `query_prompt` and `document_prompt` out.")
        fixed = [None if value in (AUTO, LEARNED) else value for value in (pooling, precision)]
        options = EncoderOptions(
            encoder, fixed[0], max_length, batch_tokens, device, fixed[1], query_prompt, document_prompt
        )
        kind, source = collection_class(index), Source(documents)
        changes = (transform, index_type, recall, memory)
        new = None if kind.is_begun(index) else IndexSettings().changed(*changes)
        settings = CollectionSettings.new(kind, options, new, progress) if new else None
        source.refuse_if_empty(on_error)
        with engines.opened(engine, address) as running:
            if settings is None:
                collection = kind.open(index)
                if pooling == LEARNED != collection.encoder["pooling"]:
                    collection.close()
                    raise Mismatch(f"{index} was made without a word table. To learn one, index into another folder.")
            else:
                kind.refuse_if_taken(index)
                if pooling is None and not options.encoder().files.declares_pooling:
                    pooling = AUTO
                if pooling == AUTO:
                    settings = with_chosen_pooling(settings, source, options, progress)
                if LEARNED in (pooling, settings.encoder.pooling):
                    settings = with_word_table(settings, source, options, kind.encoder_place(index), progress)
                    options = replace(options, name=None, pooling=None, max_length=None, precision=None)
                elif options.precision is None:
                    settings = with_chosen_precision(settings, source, options, running.gpus, progress)
                collection = kind.create(index, settings.to_json())
            collection.device = device
            retriever = cls(collection, options, progress)
            retriever._writer.engine = running
            try:
                retriever._ingest(source, on_error, changes, prune)
            except BaseException:
                retriever.close()
                raise
            retriever._writer.engine, retriever._engine_notes = engines.Local(), running.notes()
            return retriever

    @cached_property
    def _searcher(self) -> Searcher:
        return Searcher(self.collection, self.encoder)

    @cached_property
    def _writer(self) -> "Writer":
        from retriever.ingest.writer import Writer

        return Writer(self.collection, self.encoder, self._options.device, self.progress)

    @property
    def report(self) -> "IngestReport":
        """The report of the last `build` or `add`."""
        return self._writer.report

    def add(self, documents: "Documents", *, on_error: "OnError" = "skip") -> "IngestReport":
        """Add documents. A document replaces a stored one with the same id. A search finds them immediately."""
        from retriever.corpus.source import Source

        source = Source(documents)
        source.refuse_if_empty(on_error)
        self._ingest(source, on_error)
        return self.report

    @detect_damage
    def _ingest(self, source: "Source", on_error: "OnError", changes: Sequence[Any] = (), prune: bool = False) -> None:
        self._writer.ingest(source, on_error, changes, prune)

    @detect_damage
    def delete(self, ids: Sequence[str]) -> list[str]:
        """Delete documents by id and return the ids that existed."""
        if isinstance(ids, str):
            raise Misuse(f"`ids` is a list; to delete one document: delete([{ids!r}]).")
        return self._writer.delete([id_ for id_ in ids if is_unicode(id_)])

    @detect_damage
    def rebuild(
        self,
        *,
        transform: str | None = None,
        index_type: str | None = None,
        recall: float | None = None,
        memory: int | None = None,
    ) -> None:
        """Fit the transform and build the index again from the stored raw vectors. No document is embedded.

        An option that is None keeps its value. `build` explains the options.
        """
        self._writer.rebuild((transform, index_type, recall, memory))

    def search(self, query: str, k: int = 10, **options: Unpack[Options]) -> Hits:
        """Return the k documents that answer the query best, best first.

        Args:
            query: What to look for, in natural language.
            k: How many documents to return.
            mode: "dense" searches by meaning (default), "lexical" by words (BM25), "hybrid" by both.
            where: Filters over metadata, e.g. `["year >= 2020"]`. A document must meet all of them.
            min_score: Leave out hits with a lower score.
            space: "index" (default) compares transformed vectors, "raw" compares the vectors of the encoder.
            highlight: Mark the sentence of each hit that fits the query best.
            rerank: A `Reranker` (cross-encoder) that orders the best hits again.
        """
        return self.search_many([query], k, **options)[0]

    def search_many(self, queries: Sequence[str], k: int = 10, **options: Unpack[Options]) -> list[Hits]:
        """Search for many queries. The queries are encoded together. The options are those of `search`."""
        return [answer.hits for answer in self.answer_many(queries, k, **options)]

    @fork_safe
    @detect_damage
    def answer_many(
        self,
        queries: Sequence[str],
        k: int = 10,
        *,
        vectors: NDArray[np.float32] | None = None,
        **options: Unpack[Options],
    ) -> list[Answer]:
        """Search for many queries, and measure how much each query differs from the text of the collection.

        `vectors` is the result of `query_vectors`, if the caller already has it. The other options are those of
        `search`.
        """
        return self._searcher.search(queries, k, vectors=vectors, **options)

    @fork_safe
    @detect_damage
    def query_vectors(self, queries: Sequence[str], *, here: bool = False) -> NDArray[np.float32]:
        """Return the raw vectors of queries, one row for each.

        If `here` is True, the caller's thread encodes them. Otherwise several threads do.
        """
        return self._searcher.query_vectors(queries, here=here)

    @fork_safe
    @detect_damage
    def similar(self, id_: str, k: int = 10, *, where: Sequence[str] = ()) -> Hits:
        """Return the k documents that are most similar to the stored document `id_`, without that document itself."""
        return self._searcher.similar(id_, k, where=where)

    @fork_safe
    @detect_damage
    def check_filters(self, where: Sequence[str]) -> None:
        """Raise `BadFilter` if `search` would refuse one of these filters."""
        self._searcher.conditions(where)

    @fork_safe
    @detect_damage
    def document(self, id_: str) -> "Document":
        """Return a stored document."""
        return self._searcher.document(id_)

    @fork_safe
    @detect_damage
    def __len__(self) -> int:
        return self.collection.store.count("documents")

    @property
    def local(self) -> Collection:
        """The collection, if it is in a folder. Raises `Misuse` for a collection in Milvus."""
        if not isinstance(self.collection, Collection):
            raise Misuse(
                f"this needs a collection in a folder, and {self.collection.name} is in Milvus; copy it first: "
                f"retriever copy {self.collection.name} DIR"
            )
        return self.collection

    @fork_safe
    @detect_damage
    def info(self) -> dict[str, Any]:
        """Return the contents and the settings of the collection as values for JSON."""
        from retriever.info import describe

        return describe(self.collection, self._writer.drift())

    @detect_damage
    def card(self) -> "Card":
        """Return a one-page description of the collection. `retriever.card.rendering` makes HTML or Markdown of it."""
        from retriever.card.contents import collect_card

        transform = self.local.with_generation(lambda found: load_transform(found) if found else None)
        return collect_card(self.local, self.info(), transform)

    @detect_damage
    def map(self, progress: Progress | None = None) -> "Map":
        """Place every document on a plane, with similar documents close together. The map of an index is cached."""
        from retriever.maps.mapping import map_of

        return map_of(self.local, progress or self.progress)

    @detect_damage
    def export(self, target: str | Path, format: "Format" = "parquet") -> list[Path]:
        """Export the collection and return the files that were written.

        "parquet" and "npy" write every passage with its document, raw vector and transformed vector: "parquet" as one
        file, "npy" as a folder of arrays and JSON Lines. "sentence-transformers" writes the encoder and the transform
        as a folder that `SentenceTransformer(target)` loads. The vectors of that model have length one, so their
        cosine is the score of a search.
        """
        from retriever.transfer.export import export, export_model

        transform = self._searcher.transform()
        if format == "sentence-transformers":
            return export_model(Path(target), self.encoder(), transform)
        return export(self.local, Path(target), format, transform, self.progress)

    @detect_damage
    def verify(self, *, repair: bool = False) -> "VerifyReport":
        """Check every file and row against its checksum.

        With `repair`, a damaged index is rebuilt, and damaged documents are moved to the quarantine.
        """
        from retriever.recovery.repair import repaired, verified

        if repair:
            return repaired(self.collection, self._writer.restore, self.progress)
        return verified(self.collection, self.progress)

    def notes(self) -> list[str]:
        """Return warnings about degraded operation, e.g. torch is used because the ONNX export failed.

        The warnings are known only after a search or a build.
        """
        notes = (self._encoder.note if self._encoder else "", self.collection.device_note, *self._engine_notes)
        return [note for note in notes if note]

    def encoder(self) -> Encoder:
        """Return the encoder of the collection. Raise `Mismatch` if another encoder made the stored vectors."""
        with self._encoder_lock:
            if self._encoder is None:
                self._encoder = self._options.encoder_of(self.collection, self.progress)
            return self._encoder

    @fork_safe
    def close(self) -> None:
        """Close the files of the collection. A `with` statement does this at its end."""
        self.collection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        from retriever.notebook import collection_html

        return collection_html(self.collection)
