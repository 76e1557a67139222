"""The public API: build or open a collection, add, delete, search, and look after it."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np
from numpy.typing import NDArray

from indexes.checksums import is_unicode
from indexes.faiss.types import IndexRequest
from indexes.folder.collection import Collection
from indexes.folder.verify import Report as VerifyReport
from indexes.fork import Lock, fork_safe
from indexes.places import collection_class
from indexes.protocol import AnyCollection
from retriever.corpus import Document
from retriever.corpus.source import Documents, Source
from retriever.encoder.encoder import Encoder, require_same_encoder
from retriever.encoder.model_files import DEFAULT_ENCODER, EncoderIdentity
from retriever.encoder.model_loader import resolve_device
from retriever.errors import Misuse, NoSuchDocument
from retriever.files import atomic_write
from retriever.ingest import engines, publishing
from retriever.ingest.engines import Engine, Local
from retriever.ingest.pipeline import Ingestion, IngestReport, OnError
from retriever.ingest.pooling_choice import AUTO, PoolingChoice, choose_pooling
from retriever.ingest.publishing import DEFAULT_INDEX_TYPE, DEFAULT_TRANSFORM, Plan
from retriever.progress import Progress, silent
from retriever.recovery.damage import detect_damage
from retriever.recovery.repair import repaired, verified
from retriever.search.fusion import trust
from retriever.search.searcher import Answer, Hits, Options, Searcher
from retriever.transfer.copy import refuse_unfinished_copy
from retriever.transfer.export import Format, export, refuse_taken
from retriever.transforms.drift import Drift, drift, unknown
from retriever.transforms.novelty import Novelty

if TYPE_CHECKING:
    from retriever.card.contents import Card
    from retriever.ingest.precision_choice import PrecisionChoice
    from retriever.maps.mapping import Map

# What `flow` could be given when it was the name of what is now `bert-flow`; a collection of then may still say so.
FORMER_FLOW_OPTIONS = ("levels", "depth", "width")


@dataclass(frozen=True)
class EncoderOptions:
    """How to find and run the encoder; None takes what the collection or the model says."""

    name: str | None = None
    pooling: str | None = None
    max_length: int | None = None
    batch_tokens: int | None = None
    device: str = "auto"
    precision: str | None = None


class Retriever:
    """A collection of documents that can be searched by meaning; threads may share it, and forked children too.

    A fork waits for the searches of other threads. It does not wait for one that writes (`build`, `add`, `delete`,
    `rebuild`, `verify`, `export`): in a child forked meanwhile, nothing of this may be used. Fork before or after, or
    start the child with `multiprocessing.get_context("spawn")` and open the collection there.

    >>> with Retriever.build([{"id": "1", "text": "Cats purr."}], "indexes/pets") as pets:
    ...     pets.search("feline noises")[0].id
    '1'
    """

    def __init__(self, collection: AnyCollection, options: EncoderOptions, progress: Progress = silent) -> None:
        self.collection = collection
        self.progress = progress
        self.report = IngestReport()
        """What the last `build` or `add` did."""
        self._options = options
        self._encoder: Encoder | None = None
        self._finding_encoder = Lock()
        self._engine: Engine = Local()
        self._engine_notes: list[str] = []
        self._encoded_for_fit: dict[tuple[str, ...], NDArray[np.float32]] = {}
        self._searcher = Searcher(collection, self.encoder)
        collection.apply_of = self._searcher.apply_of

    # ---- opening and building ----------------------------------------------------------------------------

    @classmethod
    @fork_safe
    def open(
        cls,
        index: str | Path,
        *,
        encoder: str | None = None,
        device: str = "auto",
        progress: Progress = silent,
    ) -> Self:
        """Open an existing collection: a folder, or milvus:URI.

        `encoder` says where its encoder lies now, if it has moved.

        `device="cuda"` has a GPU run the encoder and search the index, `auto` where there is one that can.
        """
        collection = collection_class(index).open(index, device=device)
        return cls(collection, EncoderOptions(encoder, device=device), progress)

    @classmethod
    def build(
        cls,
        documents: Documents,
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
        batch_tokens: int | None = None,
        device: str = "auto",
        on_error: OnError = "skip",
        prune: bool = False,
        engine: str = "local",
        address: str | None = None,
        progress: Progress = silent,
    ) -> Self:
        """Bring the collection in `index`, a folder or milvus:URI, up to date with the documents, making it if need be.

        Only new and changed documents are embedded; an interrupted build goes on where it was. Options left
        None keep what the collection has; a new one takes the embedded encoder with its own pooling and
        length, the precision that keeps the ranking of this text and the transform that suits it best (`auto`),
        and an exact index. `index_type="auto"` takes the quickest index with a `recall` of .95 or what is given
        that needs no more than `memory` bytes. `pooling="auto"` has the text choose the pooling of a new
        collection, too. `prune` deletes what `documents` no longer has. `engine="ray"` has the workers of a Ray
        cluster read, embed and transform: of the one at `address`, or of one on this machine for as long as it takes.
        """
        engines.check(engine, address)
        fixed_pooling, fixed_precision = (None if asked == AUTO else asked for asked in (pooling, precision))
        options = EncoderOptions(encoder, fixed_pooling, max_length, batch_tokens, device, fixed_precision)
        kind = collection_class(index)
        source = Source(documents)
        begun = kind.is_begun(index)
        settings: dict[str, Any] = {}
        if not begun:
            identity = _encoder_from(options, None, progress).identity
            wanted = DEFAULT_INDEX_TYPE if index_type is None else index_type
            plan = Plan(transform or DEFAULT_TRANSFORM, IndexRequest(wanted, recall, memory))
            plan.check(identity.dimension, device, kind)
            settings = {
                "encoder": identity.to_json(),
                "pooling_choice": None,
                "precision_choice": None,
                "transform": plan.transform,
                "index_type": plan.index.type,
                "recall": plan.index.recall,
                "memory": plan.index.memory,
                "made_by": publishing.made_by(),
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
            }
        source.refuse_if_empty(on_error)
        with engines.opened(engine, address) as running:
            if not begun and pooling == AUTO:
                kind.refuse_if_taken(index)
                choice = _chosen_pooling(source, options, settings["transform"], progress)
                settings["encoder"] = replace(identity, pooling=choice.chosen).to_json()
                settings["pooling_choice"] = choice.to_json()
            if not begun and fixed_precision is None:
                kind.refuse_if_taken(index)
                identity = EncoderIdentity.from_json(settings["encoder"])
                on_gpus = running.gpus > 0 and device != "cpu"
                chosen = _chosen_precision(source, options, identity, settings["transform"], on_gpus, progress)
                settings["encoder"] = replace(identity, precision=chosen.chosen).to_json()
                settings["precision_choice"] = chosen.to_json()
            collection = kind.open(index) if begun else kind.create(index, settings)
            collection.device = device
            retriever = cls(collection, options, progress)
            retriever._engine = running
            try:
                with retriever._writing():
                    plan = retriever.plan(transform, index_type, recall, memory)
                    plan.check(retriever.collection.dimension, device, kind)
                    retriever._update(source, plan, on_error, prune, whole=True)
            except BaseException:
                retriever.close()
                raise
            retriever._engine, retriever._engine_notes = Local(), running.notes()
            return retriever

    @property
    def local(self) -> Collection:
        """The collection in its folder, for what needs its files; refused where it lies in Milvus."""
        if not isinstance(self.collection, Collection):
            raise Misuse(
                f"this needs a collection in a folder, and {self.collection.name} lies in Milvus; copy it first: "
                f"retriever copy {self.collection.name} DIR"
            )
        return self.collection

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Hold the write lock of a collection whose settings name the encoder that its vectors are of."""
        with self.collection.writing():
            self.collection.refuse_another_encoder()
            refuse_unfinished_copy(self.collection)
            yield

    @detect_damage
    def add(self, documents: Documents, *, on_error: OnError = "skip") -> IngestReport:
        """Add documents, or replace those with the same id; a search finds them at once."""
        source = Source(documents)
        source.refuse_if_empty(on_error)
        with self._writing():
            self._update(source, self.plan(), on_error, prune=False, whole=False)
        return self.report

    @detect_damage
    def delete(self, ids: Sequence[str]) -> list[str]:
        """Delete documents by id; returns the ids that were there."""
        if isinstance(ids, str):
            raise Misuse(f"delete takes a list of ids; for one: delete([{ids!r}]).")
        ids = [id_ for id_ in ids if is_unicode(id_)]
        with self._writing():
            plan = self.plan()
            deleted = self.collection.store.delete_documents(ids)
            if self.collection.store.count("passages") and publishing.due(self.collection, plan):
                self._publish(plan, compact=True)
        return deleted

    @detect_damage
    def rebuild(
        self,
        *,
        transform: str | None = None,
        index_type: str | None = None,
        recall: float | None = None,
        memory: int | None = None,
    ) -> None:
        """Fit the transform and build the index again from the stored raw vectors; no document is embedded.

        What is None stays as it is; see `build`.
        """
        with self._writing():
            if not self.collection.store.count("passages"):
                raise Misuse(f"{self.collection.name} has no documents to rebuild an index from.")
            plan = self.plan(transform, index_type, recall, memory)
            plan.check(self.collection.dimension, self._options.device, type(self.collection))
            self.rebuild_as(plan)

    def rebuild_as(self, plan: Plan, *, compact: bool = True) -> None:
        """Fit and build as planned, whatever the collection was asked for before."""
        self._publish(plan, refit=True, compact=compact)

    def _publish(self, plan: Plan, *, refit: bool = False, compact: bool = False) -> None:
        publishing.publish(
            self.collection,
            plan,
            refit=refit,
            compact=compact,
            encode=self._encode_for_fit,
            device=resolve_device(self._options.device),
            engine=self._engine,
            progress=self.progress,
        )

    def _encode_for_fit(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of texts that fits are made with; the next fit, of another transform, mostly asks for the same."""
        key = tuple(texts)
        if key not in self._encoded_for_fit:
            vectors = self._engine.encode(texts, self.encoder())
            self._encoded_for_fit = dict([*self._encoded_for_fit.items(), (key, vectors)][-2:])
        return self._encoded_for_fit[key]

    def plan(
        self,
        transform: str | None = None,
        index_type: str | None = None,
        recall: float | None = None,
        memory: int | None = None,
    ) -> Plan:
        """What is asked for, and for the rest what the collection was asked for before."""
        store = self.collection.store
        stored = str(store.setting("transform"))
        if any(f"{option}=" in stored for option in FORMER_FLOW_OPTIONS):
            stored = stored.replace("flow:", "bert-flow:") if stored.startswith("flow:") else stored
        index_type = store.setting("index_type") if index_type is None else index_type
        if index_type == store.setting("index_type"):
            recall = store.setting("recall") if recall is None else recall
            memory = store.setting("memory") if memory is None else memory
        return Plan(transform or stored, IndexRequest(index_type, recall, memory))

    @detect_damage
    def _update(self, documents: Source, plan: Plan, on_error: OnError, prune: bool, whole: bool) -> None:
        """Ingest, then publish if that is due; a whole run over a source always leaves nothing unpublished."""
        encoder = self.encoder()
        engine, store = self._engine, self.collection.store
        ingestion = Ingestion(store, encoder, on_error=on_error, progress=self.progress, engine=engine)
        self.report = ingestion.report
        last_before = self.collection.store.last_vector()
        ingestion.run(engine.documents(documents, encoder), prune=prune)
        newer, unused = self.collection.backlog()
        if publishing.due(self.collection, plan) or (whole and newer):
            compact = unused > publishing.BACKLOG_SHARE * self.collection.store.count("vectors")
            self._publish(plan, compact=compact)
        self.report.drift = self._drift(last_before)

    def _drift(self, after: int = 0) -> Drift | None:
        """How unlike what was added since the fit, and after this vector, is; None where that is not known."""
        novelty = self.collection.with_generation(lambda generation: generation and Novelty.of(generation))
        return drift(self.collection, novelty, after) if novelty else None

    # ---- searching ---------------------------------------------------------------------------------------

    def search(self, query: str, k: int = 10, **options: Unpack[Options]) -> Hits:
        """The k documents that answer the query best, best first.

        `mode="lexical"` goes by words (BM25) instead of meaning, `mode="hybrid"` by both. `where` are filters over
        metadata such as "year >= 2020", all of which a document must meet. `highlight` marks in each
        hit the sentence nearest to the query. `rerank` is a `Reranker`, which judges the best hits again.
        `space="raw"` compares in the encoder's own space instead of the index's.
        """
        return self.search_many([query], k, **options)[0]

    def search_many(self, queries: Sequence[str], k: int = 10, **options: Unpack[Options]) -> list[Hits]:
        """The same for many queries, encoded together."""
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
        """The hits of many queries, each with how unlike the query is to the collection's text.

        `vectors` are what `encoder().encode(queries)` gives, where the caller has them already.
        """
        return self._searcher.search(queries, k, vectors=vectors, **options)

    @fork_safe
    @detect_damage
    def similar(self, id_: str, k: int = 10, *, where: Sequence[str] = ()) -> Hits:
        """The k documents nearest to a stored one, itself left out."""
        return self._searcher.similar(id_, k, where=where)

    @fork_safe
    @detect_damage
    def check_filters(self, where: Sequence[str]) -> None:
        """Refuse filters that a search would refuse."""
        self._searcher.conditions(where)

    @fork_safe
    @detect_damage
    def document(self, id_: str) -> Document:
        """A stored document, whole."""
        store = self.collection.store
        number = store.document_number(id_)
        if number is None:
            raise NoSuchDocument(id_, self.collection.name)
        fields = store.documents([number])[number]
        return Document(fields["id"], fields["text"], fields["title"], fields["metadata"])

    @fork_safe
    @detect_damage
    def __len__(self) -> int:
        return self.collection.store.count("documents")

    def _repr_html_(self) -> str:
        from retriever.integrations.notebook import collection_html

        return collection_html(self)

    # ---- looking after it --------------------------------------------------------------------------------

    @fork_safe
    @detect_damage
    def info(self) -> dict[str, Any]:
        """What the collection holds and what made it."""
        collection, store = self.collection, self.collection.store
        generation = collection.generation()
        transform = generation.manifest["transform"] if generation else {"spec": store.setting("transform")}
        newer, unused = collection.backlog()
        return {
            "folder": collection.name,
            "documents": store.count("documents"),
            "passages": store.count("passages"),
            "vectors": store.count("vectors"),
            "dimension": collection.dimension,
            "encoder": collection.encoder,
            "transform": transform,
            "fitted_on": publishing.fitted_on(generation) if generation else {},
            "choice": store.setting("choice"),
            "pooling_choice": store.setting("pooling_choice"),
            "precision_choice": store.setting("precision_choice"),
            "hybrid_trust": trust(store.setting("choice"), transform.get("family", "none")),
            "drift": found.to_json() if (found := self._drift()) else unknown(generation),
            "index": {
                "type": store.setting("index_type"),
                "factory": generation.manifest["factory"] if generation else None,
                "recall": store.setting("recall"),
                "memory": store.setting("memory"),
                "note": generation.manifest["index_note"] if generation else "",
                "measured": generation.measured if generation else None,
                "generation": generation.number if generation else None,
                "vectors": generation.count if generation else 0,
                "not_yet_in_it": newer,
                "no_longer_used": unused,
                "created": generation.manifest["created"] if generation else None,
                "made_by": generation.manifest["made_by"] if generation else None,
            },
            "quarantined": store.count("quarantine"),
            "bytes": collection.sizes(),
            "created": store.setting("created"),
            "made_by": store.setting("made_by"),
        }

    @detect_damage
    def card(self) -> "Card":
        """What the collection is, on one page: `retriever.card.rendering` makes HTML or Markdown of it."""
        from retriever.card.contents import gather

        collection = self.local
        transform = collection.with_generation(
            lambda generation: publishing.load_transform(generation) if generation else None
        )
        return gather(collection, self.info(), transform)

    @detect_damage
    def map(self, progress: Progress | None = None) -> "Map":
        """Every document as a point on a plane, like beside like; made once for a generation and then cached."""
        from retriever.maps.mapping import map_of

        return map_of(self.local, progress or self.progress)

    @detect_damage
    def export(self, target: str | Path, format: Format = "parquet") -> list[Path]:
        """Write every passage with its document, raw vector and transformed vector to files.

        `format="sentence-transformers"` writes what makes the vectors instead: encoder and transform as a folder that
        `SentenceTransformer(target)` loads. Its vectors have length one, so that their cosine is the score of a search.
        """
        transform = self._searcher.transform()
        if format == "sentence-transformers":
            from retriever.integrations.sentence_transformers import write_sentence_folder

            encoder = self.encoder()
            refuse_taken(Path(target), folder=True)
            with atomic_write(Path(target).resolve()) as aside:
                aside.mkdir()
                names = write_sentence_folder(aside, encoder, transform, publishing.made_by())
            return [Path(target) / name for name in names]
        return export(self.local, Path(target), format, transform.apply, transform.dimension_out, self.progress)

    @detect_damage
    def verify(self, *, repair: bool = False) -> VerifyReport:
        """Check every hash and every row; `repair` makes what is derived again and puts damage aside."""
        return repaired(self) if repair else verified(self)

    def notes(self) -> list[str]:
        """What runs otherwise than it would best, and why; known once something has run."""
        own = (self._encoder.note if self._encoder else "", self.collection.device_note)
        return [note for note in (*own, *self._engine_notes) if note]

    def encoder(self) -> Encoder:
        """The collection's encoder, refused if it is not the one that made the vectors."""
        with self._finding_encoder:
            if self._encoder is None:
                stored = EncoderIdentity.from_json(self.collection.encoder)
                encoder = _encoder_from(self._options, stored, self.progress)
                require_same_encoder(stored, encoder.identity, self.collection.name)
                encoder.refuse_too_long(self.collection.name)
                self._encoder = encoder
            return self._encoder

    @fork_safe
    def close(self) -> None:
        self.collection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _encoder_from(options: EncoderOptions, stored: EncoderIdentity | None, progress: Progress) -> Encoder:
    return Encoder(
        options.name if options.name is not None else (stored.name if stored else DEFAULT_ENCODER),
        pooling=options.pooling,
        max_length=options.max_length,
        precision=options.precision,
        batch_tokens=options.batch_tokens,
        device=options.device,
        stored=stored,
        progress=progress,
    )


def _chosen_pooling(source: Source, options: EncoderOptions, transform: str, progress: Progress) -> PoolingChoice:
    return choose_pooling(source.look_ahead(), _encoder_from(options, None, progress), transform, progress=progress)


def _chosen_precision(
    source: Source,
    options: EncoderOptions,
    identity: EncoderIdentity,
    transform: str,
    on_gpus: bool,
    progress: Progress,
) -> "PrecisionChoice":
    from retriever.ingest.precision_choice import PrecisionChoice, choose_precision

    single = _encoder_from(replace(options, precision="fp32"), identity, progress)
    if on_gpus or single.device != "cpu":
        return PrecisionChoice("fp32", "8-bit integers are for processors, and this runs on a GPU")
    integers = _encoder_from(replace(options, precision="int8"), identity, progress)
    return choose_precision(source.look_ahead(), single, integers, transform, progress=progress)
