"""The public API: build or open a collection, add and delete documents, search, and maintain it.

Modules that a search does not need are imported where they are used, so that a first search starts quickly.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np

from indexes.checksums import is_unicode
from indexes.folder.collection import Collection
from indexes.places import collection_class
from indexes.protocol import AnyCollection
from indexes.sqlite.connections import Lock, fork_safe
from retriever.encoder.base import AnyEncoder
from retriever.encoder.model_files import LEARNED, public_name
from retriever.errors import Misuse, NoSuchDocument, RetrieverError, require_type, shown
from retriever.hits import Answer, Hits, Mode, Reranks, Space, Where
from retriever.progress import Progress, silent
from retriever.recovery.damage import detect_damage
from retriever.search.request import one_query, one_vector
from retriever.search.searcher import Embedded, Matrix, Searcher
from retriever.settings import EncoderOptions, described
from retriever.transforms import load_transform
from retriever.transforms.spec import AUTO

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from indexes.folder.verify import Report as VerifyReport
    from retriever.card.contents import Card
    from retriever.corpus.document import Document, Json
    from retriever.corpus.source import Documents, OnError, Source
    from retriever.encoder.functions import EncoderSource
    from retriever.ingest.pipeline import IngestReport
    from retriever.ingest.writer import Writer
    from retriever.maps.map import Map
    from retriever.transfer.export import Format


class Retriever:
    """A collection of documents that can be searched by meaning, by words, or by both.

    `Retriever.build` makes a collection or brings it up to date. `Retriever.open` opens one. The examples below use
    this collection:

    >>> pets = Retriever.build(
    ...     [
    ...         {"id": "cat", "text": "Cats purr and hunt mice.", "legs": 4},
    ...         {"id": "dog", "text": "Dogs bark at strangers.", "legs": 4},
    ...         {"id": "bird", "text": "Parrots learn to speak.", "legs": 2},
    ...     ],
    ...     "collections/pets",
    ... )
    >>> pets
    <Retriever 'collections/pets': 3 documents, encoder all-MiniLM-L6-v2>

    A retriever has a length, and is a collection of ids:

    >>> len(pets), "cat" in pets, sorted(pets)
    (3, True, ['bird', 'cat', 'dog'])

    It holds files open. `close` closes them, and so does a `with` statement at its end.

    Threads and forked children may share a Retriever. A fork waits for running searches. It does not wait for a
    running `build`, `add`, `delete`, `rebuild`, `verify` or `export`: a child forked during one of these must not use
    the Retriever. Fork before or after it, or start the child with `multiprocessing.get_context("spawn")` and open the
    collection there.

    For asyncio, `AsyncRetriever` has the same methods.
    """

    def __init__(self, collection: AnyCollection, options: EncoderOptions, progress: Progress = silent) -> None:
        """Wrap an open collection. Usually, call `Retriever.open` or `Retriever.build` instead."""
        self.collection = collection
        self.progress = progress
        self._options = options
        self._encoder: AnyEncoder | None = None
        self._encoder_lock = Lock()
        self._engine_notes: list[str] = []
        collection.apply_of = lambda generation: self._searcher.apply_of(generation)

    # ---- opening and building ------------------------------------------------------------------------------

    @classmethod
    @fork_safe
    def open(
        cls,
        index: str | Path,
        *,
        encoder: "EncoderSource | None" = None,
        device: str = "auto",
        progress: Progress = silent,
    ) -> Self:
        """Open an existing collection.

        >>> with Retriever.open("collections/pets") as opened:
        ...     opened.search("an animal that catches mice", k=1)[0].id
        'cat'

        Args:
            index: The collection: a folder, or `milvus:URI`.
            encoder: The encoder of the collection. Give it if it has moved since the collection was built, or if it is
                a function or an object, which is not stored with the collection. `build` explains what it can be.
            device: "cpu", "cuda" or "auto", which uses a GPU for the encoder and the index if there is one.
            progress: Called during long operations, see `build`.
        """
        _check_place(index, progress)
        options = EncoderOptions(encoder, device=device)
        collection = collection_class(index).open(index, device=device)
        return cls(collection, options, progress)

    @classmethod
    def build(
        cls,
        documents: "Documents",
        index: str | Path,
        *,
        encoder: "EncoderSource | None" = None,
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

        >>> with Retriever.build(["Cats purr.", "Dogs bark."], "collections/texts") as texts:
        ...     texts.search("barking")[0].passage
        'Dogs bark.'

        An encoder can be any function from texts to an array. Give it again to open the collection:

        >>> def letters(texts):
        ...     return [[text.lower().count(letter) for letter in "abcdefgh"] for text in texts]
        >>> with Retriever.build(["Cats purr.", "Dogs bark."], "collections/letters", encoder=letters) as by_letters:
        ...     by_letters.search("a bad dab", mode="dense")[0].passage
        'Dogs bark.'

        Documents can bring their vectors. A query then needs a vector too:

        >>> points = [{"id": "a", "text": "north", "vector": [0, 1]}, {"id": "b", "text": "east", "vector": [1, 0]}]
        >>> with Retriever.build(points, "collections/points") as compass:
        ...     compass.search(vector=[0.2, 0.9])[0].passage
        'north'

        Args:
            documents: Texts, dicts, `Document` objects, a `Corpus` of files, or a frame of pandas, polars or Arrow.
                A dict, or a row of a frame, has its text under `text`. It can have `title`, `id` and `vector`. All
                else is metadata.
            index: The collection: a folder, or `milvus:URI`.
            encoder: The encoder, which turns texts into vectors. Default: the embedded all-MiniLM-L6-v2, or no encoder
                if the first document brings its vector.
                - The name or folder of a BERT.
                - `openai:URL#MODEL`, an OpenAI-compatible endpoint. Its key is read from the environment variable
                  OPENAI_API_KEY.
                - A function from a list of texts to an array with a row for each. It is called in one thread at a time.
                - An object with the method `encode`, such as a SentenceTransformer.
            pooling: How token vectors become one vector. "auto" chooses a pooling from the text. "learned" replaces
                the BERT by a table of the corpus's words, which is learned from the text and the BERT's input
                embeddings. Default: the pooling of the model, or "auto" if the model does not come with one or cannot
                read the text.
            max_length: Maximum number of tokens in an input of the encoder. Longer documents become several passages.
                Default: the maximum of the model. For a function or an endpoint: 256, and three bytes count as a token.
            transform: The spec of a transform. Default: "auto", which chooses one from the text.
            index_type: The FAISS index. Default: "auto", which is exact ("flat") while that takes less than 10 ms a
                query. For more vectors, it chooses the fastest index that reaches `recall` within `memory`.
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
            progress: A function that is called often during long operations, as
                `progress(stage, done, total, detail="")`. `stage` is a text such as "embedding". `total` is None if it
                is unknown.
        """
        from retriever.corpus.source import Source
        from retriever.ingest import engines
        from retriever.ingest.creation import Creation, refuse_contradictions

        _check_place(index, progress)
        require_type("prune", prune, "True or False", bool, np.bool_)
        engines.check(engine, address)
        fixed = [None if value in (AUTO, LEARNED) else value for value in (pooling, precision)]
        options = EncoderOptions(
            encoder, fixed[0], max_length, batch_tokens, device, fixed[1], query_prompt, document_prompt
        )
        refuse_contradictions(options, pooling, precision, engine)
        source, changes = Source(documents), (transform, index_type, recall, memory)
        creation = Creation(index, source, options, changes, pooling, progress)
        source.refuse_if_empty(on_error)
        with engines.opened(engine, address) as running:
            retriever = cls(creation.open(running, device), creation.options, progress)
            retriever._writer.engine = running
            try:
                retriever._ingest(source, on_error, changes, prune)
            except BaseException:
                retriever.close()
                raise
            retriever._writer.engine, retriever._engine_notes = engines.Engine(), running.notes()
            return retriever

    @fork_safe
    def close(self) -> None:
        """Close the files of the collection. A `with` statement does this at its end.

        >>> opened = Retriever.open("collections/pets")
        >>> opened.close()
        >>> opened
        <Retriever 'collections/pets': closed>
        """
        self.collection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @cached_property
    def _searcher(self) -> Searcher:
        return Searcher(self.collection, self.encoder)

    @cached_property
    def _writer(self) -> "Writer":
        from retriever.ingest.writer import Writer

        return Writer(self.collection, self.encoder, self._options.device, self.progress)

    # ---- searching -----------------------------------------------------------------------------------------

    def search(
        self,
        query: str | None = None,
        k: int = 10,
        *,
        vector: "ArrayLike | None" = None,
        mode: Mode = "hybrid",
        where: Where = (),
        min_score: float | None = None,
        space: Space = "index",
        highlight: bool = False,
        explain: bool = False,
        rerank: str | Reranks | None = None,
    ) -> Hits:
        """Return the k documents that answer the query best, best first.

        >>> pets.search("an animal that catches mice", k=1)[0].id
        'cat'
        >>> pets.search("parrots", mode="lexical")[0].id
        'bird'
        >>> {hit.id for hit in pets.search("an animal", where={"legs": 4})} == {"cat", "dog"}
        True
        >>> pets.search("an animal", where=["legs < 4"])[0].id
        'bird'

        Args:
            query: What to look for, in natural language. For several queries, use `search_many`.
            k: How many documents to return.
            vector: The vector of the query, as the encoder of the collection makes it. If `query` is given too, the
                query is not encoded. If it is not, the search is by meaning alone.
            mode: "hybrid" searches by meaning and by words, "dense" by meaning, "lexical" by words (BM25).
            where: Filters over metadata: a list of texts such as `["year >= 2020", "lang in (en, de)"]`, or a dict
                for equality such as `{"lang": "en"}`. A document must meet all of them.
            min_score: Leave out hits with a lower `relevance`, which is 0 to 100 in every mode.
            space: "index" compares transformed vectors, "raw" compares the vectors of the encoder.
            highlight: Mark the sentence of each hit that fits the query best.
            explain: Say for each hit what meaning and words found, and how they were combined.
            rerank: What orders the best hits again: the name or folder of a cross-encoder, or an object with a method
                `scores(query, texts)`, such as a `retriever.encoder.reranker.Reranker`.
        """
        one_query(query)
        if query is None and vector is None:
            raise Misuse("give a `query`, or a `vector` to search with.")
        (answer,) = self.answer_many(
            None if query is None else [query],
            k,
            vectors=None if vector is None else [one_vector(vector)],
            mode=mode,
            where=where,
            min_score=min_score,
            space=space,
            highlight=highlight,
            explain=explain,
            rerank=rerank,
        )
        return answer.hits

    def search_many(
        self,
        queries: Sequence[str] | None = None,
        k: int = 10,
        *,
        vectors: "ArrayLike | None" = None,
        mode: Mode = "hybrid",
        where: Where = (),
        min_score: float | None = None,
        space: Space = "index",
        highlight: bool = False,
        explain: bool = False,
        rerank: str | Reranks | None = None,
    ) -> list[Hits]:
        """Search for many queries, which are encoded together. `search` explains the options.

        >>> [hits[0].id for hits in pets.search_many(["an animal that catches mice", "it can speak"])]
        ['cat', 'bird']
        """
        answers = self.answer_many(
            queries,
            k,
            vectors=vectors,
            mode=mode,
            where=where,
            min_score=min_score,
            space=space,
            highlight=highlight,
            explain=explain,
            rerank=rerank,
        )
        return [answer.hits for answer in answers]

    @fork_safe
    @detect_damage
    def answer_many(
        self,
        queries: Sequence[str] | None = None,
        k: int = 10,
        *,
        vectors: "ArrayLike | None" = None,
        mode: Mode = "hybrid",
        where: Where = (),
        min_score: float | None = None,
        space: Space = "index",
        highlight: bool = False,
        explain: bool = False,
        rerank: str | Reranks | None = None,
    ) -> list[Answer]:
        """Search for many queries, and measure how much each query differs from the text of the collection.

        >>> pets.answer_many(["zebras"])[0].note
        'No document has a word of the query, so these hits are by meaning alone.'

        `vectors` are the vectors of the queries, one row for each, e.g. the result of `query_vectors`. `search`
        explains the other options.
        """
        return self._searcher.search(
            queries,
            k,
            vectors=vectors,
            mode=mode,
            where=where,
            min_score=min_score,
            space=space,
            highlight=highlight,
            explain=explain,
            rerank=rerank,
        )

    @fork_safe
    @detect_damage
    def query_vectors(self, queries: Sequence[str], *, here: bool = False) -> Matrix:
        """Return the raw vectors of queries, one row for each.

        >>> pets.query_vectors(["cats", "dogs"]).shape
        (2, 384)

        If `here` is True, the caller's thread encodes them. Otherwise several threads do.
        """
        return self._searcher.query_vectors(queries, here=here)

    @fork_safe
    @detect_damage
    def similar(self, id_: str, k: int = 10, *, where: Where = ()) -> Hits:
        """Return the k documents that are most similar to the stored document `id_`, without that document itself.

        >>> [hit.id for hit in pets.similar("cat", where={"legs": 4})]
        ['dog']
        """
        return self._searcher.similar(id_, k, where=where)

    @fork_safe
    @detect_damage
    def check_filters(self, where: Where) -> None:
        """Raise `BadFilter` if `search` would refuse one of these filters.

        >>> pets.check_filters(["leg = 4"])
        Traceback (most recent call last):
            ...
        indexes.errors.BadFilter: no document has a metadata field 'leg'; did you mean 'legs'? The fields are: 'legs'.
        """
        self._searcher.conditions(where)

    # ---- documents -----------------------------------------------------------------------------------------

    @fork_safe
    @detect_damage
    def document(self, id_: str) -> "Document":
        """Return a stored document. Raise `NoSuchDocument` if there is none with this id.

        >>> pets.document("cat").text
        'Cats purr and hunt mice.'
        """
        return self._searcher.document(id_)

    def get(self, id_: str) -> "Document | None":
        """Return a stored document, or None if there is none with this id.

        >>> pets.get("unicorn") is None
        True
        """
        try:
            return self.document(id_)
        except NoSuchDocument:
            return None

    @fork_safe
    @detect_damage
    def __len__(self) -> int:
        """Return the number of documents."""
        return self.collection.store.count("documents")

    @fork_safe
    @detect_damage
    def __contains__(self, id_: object) -> bool:
        """Return whether there is a document with this id."""
        return isinstance(id_, str) and self.collection.store.document_number(id_) is not None

    def __iter__(self) -> Iterator[str]:
        """Yield the ids of all documents, in the order in which they were added."""
        after = 0
        while found := self._ids(after):
            yield from (id_ for _, id_ in found)
            after = found[-1][0]

    @fork_safe
    @detect_damage
    def _ids(self, after: int) -> list[tuple[int, str]]:
        return self.collection.store.ids(after)

    def add(self, documents: "Documents", *, on_error: "OnError" = "skip") -> "IngestReport":
        """Add documents, and return a report. A search finds them immediately. `build` explains the arguments.

        >>> report = pets.add([{"id": "horse", "text": "Horses gallop.", "legs": 4}])
        >>> report.new, report.changed, pets.search("gallop")[0].id
        (1, 0, 'horse')

        A document replaces a stored one with the same id.
        """
        from retriever.corpus.source import Source

        source = Source(documents)
        source.refuse_if_empty(on_error)
        self._ingest(source, on_error)
        return self.report

    @detect_damage
    def _ingest(self, source: "Source", on_error: "OnError", changes: Sequence[Any] = (), prune: bool = False) -> None:
        self._writer.ingest(source, on_error, changes, prune)

    @property
    def report(self) -> "IngestReport":
        """The report of the last `build` or `add`.

        >>> pets.add([{"id": "cat", "text": "Cats purr and hunt mice.", "legs": 4}]).unchanged
        1
        >>> pets.report.unchanged
        1
        """
        return self._writer.report

    @detect_damage
    def delete(self, ids: Sequence[str]) -> list[str]:
        """Delete documents by id and return the ids that existed.

        >>> pets.delete(["bird", "unicorn"])
        ['bird']
        """
        if isinstance(ids, str):
            raise Misuse(f"`ids` must be a list, not a text. To delete one document: delete([{ids!r}]).")
        try:
            listed = list(ids)
        except TypeError:
            raise Misuse(f"`ids` must be a list of texts, not {shown(ids)}.") from None
        if wrong := [id_ for id_ in listed if not isinstance(id_, str)]:
            raise Misuse(f"`ids` must be texts, not {wrong[0]!r}.")
        return self._writer.delete([id_ for id_ in listed if is_unicode(id_)])

    @detect_damage
    def describe(self, *, title: str | None = None, description: str | None = None) -> None:
        """Set the title and the description of the collection, which the search page, the card and `info` show.

        An option that is None keeps its value. An empty text removes it.

        >>> pets.describe(title="Pets", description="What pets do.")
        >>> pets.info()["title"]
        'Pets'
        """
        changes = described(title, description)
        with self.collection.writing():
            self.collection.store.set_settings(changes)

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

        In a folder, a word table is learned again if the documents have changed since. This replaces all vectors.

        >>> pets.rebuild(transform="none", index_type="flat")

        An option that is None keeps its value. `build` explains the options.
        """
        self._writer.rebuild((transform, index_type, recall, memory))

    @fork_safe
    @detect_damage
    def embed(self, texts: Sequence[str], *, queries: bool = False) -> Embedded:
        """Return the vectors of texts as a search compares them: transformed, and scaled to length one.

        >>> pets.embed(["cats", "dogs"]).vectors.shape
        (2, 384)

        The texts are passages, or `queries`. A text that is too long for the encoder raises `TextTooLong`.
        """
        return self._searcher.embed(texts, queries=queries)

    # ---- the collection ------------------------------------------------------------------------------------

    @property
    def local(self) -> Collection:
        """The collection, if it is in a folder. Raises `Misuse` for a collection in Milvus.

        >>> pets.local.folder.name
        'pets'
        """
        if not isinstance(self.collection, Collection):
            raise Misuse(
                f"this needs a collection in a folder, and {self.collection.name} is in Milvus; copy it first: "
                f"retriever copy {self.collection.name} DIR"
            )
        return self.collection

    @fork_safe
    @detect_damage
    def info(self) -> "dict[str, Json]":
        """Return the contents and the settings of the collection as values for JSON.

        >>> info = pets.info()
        >>> info["documents"], info["dimension"]
        (3, 384)
        """
        from retriever.info import describe

        return describe(self.collection, self._writer.drift())

    @detect_damage
    def card(self) -> "Card":
        """Return a one-page description of the collection. `retriever.card.rendering` makes HTML or Markdown of it.

        >>> pets.card().name
        'pets'
        """
        from retriever.card.contents import collect_card

        transform = self.local.with_generation(lambda found: load_transform(found) if found else None)
        return collect_card(self.local, self.info(), transform)

    @detect_damage
    def map(self, progress: Progress | None = None) -> "Map":
        """Place every document on a plane, with similar documents close together. The map of an index is cached.

        >>> places = pets.map()
        >>> len(places.x), len(places.y)
        (3, 3)
        """
        from retriever.maps.mapping import map_of

        return map_of(self.local, progress or self.progress)

    @detect_damage
    def export(self, target: str | Path, format: "Format" = "parquet") -> list[Path]:
        """Export the collection and return the files that were written.

        >>> [path.name for path in pets.export("pets.parquet")]
        ['pets.parquet']

        "parquet" and "npy" write every passage with its document, raw vector and transformed vector: "parquet" as one
        file, "npy" as a folder of arrays and JSON Lines. "sentence-transformers" writes the encoder and the transform
        as a folder that `SentenceTransformer(target)` loads. The vectors of that model have length one, so their
        cosine is the score of a search.
        """
        from retriever.transfer.export import check_format, export, export_model

        require_type("target", target, "a file or a folder", str, PathLike)
        check_format(format)
        transform = self._searcher.transform()
        if format == "sentence-transformers":
            return export_model(Path(target), self.encoder(), transform)
        return export(self.local, Path(target), format, transform, self.progress)

    @detect_damage
    def verify(self, *, repair: bool = False) -> "VerifyReport":
        """Check every file and row against its checksum.

        >>> pets.verify().problems
        []

        With `repair`, a damaged index is rebuilt, and damaged documents are moved to the quarantine.
        """
        from retriever.recovery.repair import repaired, verified

        require_type("repair", repair, "True or False", bool, np.bool_)
        if repair:
            return repaired(self.collection, self._writer.restore, self.progress)
        return verified(self.collection, self.progress)

    def notes(self) -> list[str]:
        """Return warnings about degraded operation, e.g. torch is used because the ONNX export failed.

        The warnings are known only after a search or a build.

        >>> pets.notes()
        []
        """
        notes = (self._encoder.note if self._encoder else "", self.collection.device_note, *self._engine_notes)
        return [note for note in notes if note]

    def encoder(self) -> AnyEncoder:
        """Return the encoder of the collection. Raise `Mismatch` if another encoder made the stored vectors.

        >>> pets.encoder().identity.dimension
        384
        """
        with self._encoder_lock:
            encoder = self._encoder
            # The word table of the collection may have been learned again, and its folder is moved after that.
            if encoder is None or (
                encoder.identity.pooling == LEARNED
                and (encoder.identity.weights != self.collection.encoder["weights"] or not encoder.is_in_place)
            ):
                encoder = self._encoder = self._options.encoder_of(self.collection, self.progress)
            return encoder

    def __reduce__(self) -> NoReturn:
        name = self.collection.name
        raise Misuse(f"a Retriever cannot be pickled; open it where it is needed: Retriever.open({name!r}).")

    def __repr__(self) -> str:
        try:
            count, name = len(self), public_name(str(self.collection.encoder["name"]))
            facts = f"{count:,} document{'s' * (count != 1)}, encoder {name}"
        except (RetrieverError, sqlite3.Error) as error:
            facts = "closed" if "closed" in str(error) else "cannot be read"
        return f"<{type(self).__name__} {self.collection.name!r}: {facts}>"

    def _repr_html_(self) -> str:
        from retriever.notebook import collection_html

        return collection_html(self.collection)


def _check_place(index: object, progress: object) -> None:
    require_type("index", index, "the folder of a collection, or milvus:URI", str, PathLike)
    if not callable(progress):
        raise Misuse(f"`progress` must be a function, not {shown(progress)}.")
