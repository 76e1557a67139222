"""What a collection must be able to do: the base classes of all collections and of the spaces that are searched.

The rest of the code is written against these. `indexes/folder/` implements them with SQLite and FAISS.
`indexes/milvus/` implements them with Milvus. `indexes/places.py` chooses one of the two by the address.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from indexes.errors import Damaged, NotACollection, TableGone
from indexes.faiss.building import Stage, silent
from indexes.faiss.types import IndexRequest
from indexes.faiss.vectors import unit_rows
from indexes.generation import Generation, Publication, difference, is_encoder
from indexes.rows import Apply, Match, Matrix, Nearest, PassageRow
from indexes.stores import Allowed, AnyStore, AnyWords, Transfer

SAMPLED = 500
"""The number of vectors by which the mean cosine of a query is estimated. Its error is then below 0.01."""

Result = TypeVar("Result")


class AnyCollection(ABC):
    """Documents, the published generation of their index with its transform, and the write lock.

    The collection is open for reading, or for reading and writing. Threads may share it.
    """

    store: AnyStore
    name: str
    """The name of the collection in messages and commands."""
    advice: str
    """What a user can do if the settings or the generation are damaged."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        """The device that searches the index: cpu, cuda, or auto."""
        self.device_note = ""
        """A note whether a GPU searches the index. Empty until the index is loaded."""
        self.apply_of: Callable[[Generation], Apply] | None = None
        """A function that returns the transform of a generation.

        If it is set, added documents are transformed at once.
        """

    # ---- opening and creating ------------------------------------------------------------------------------

    @staticmethod
    def encoder_place(_place: Path | str) -> Path | None:
        """Return the folder for an encoder that belongs to this collection alone, or None if there is none."""
        return None

    @classmethod
    @abstractmethod
    def open(cls, place: Any, /, *, device: str = "cpu") -> Self:
        """Open the collection for reading. Use `writing()` to change it."""

    @classmethod
    @abstractmethod
    def create(cls, place: Any, /, settings: dict[str, Any]) -> Self: ...

    @classmethod
    @abstractmethod
    def is_begun(cls, place: Any, /) -> bool:
        """Return whether `place` holds a collection that is not empty. An empty one may be created again."""

    @staticmethod
    @abstractmethod
    def refuse_if_taken(place: Any, /) -> None:
        """Refuse a place that holds something other than a collection."""

    @staticmethod
    @abstractmethod
    def check_index(request: IndexRequest, dimension: int, device: str) -> None:
        """Refuse an index that this kind of collection cannot have."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[None]:
        """Hold the write lock. May be nested."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # ---- contents ------------------------------------------------------------------------------------------

    def is_empty(self) -> bool:
        """Return whether nothing was ever stored here."""
        return not (self.store.last_vector() or self.store.count("documents") or self.published())

    @property
    def encoder(self) -> dict[str, Any]:
        """The identity of the encoder that made the vectors."""
        encoder = self.store.setting("encoder")
        if not is_encoder(encoder):
            raise Damaged(f"{self.name}: the setting 'encoder' is damaged; {self.advice}")
        return dict(encoder)

    @property
    def dimension(self) -> int:
        return int(self.encoder["dimension"])

    def refuse_another_encoder(self, generation: Generation | None = None) -> None:
        """Refuse to continue if the encoder in the settings differs from the encoder that the index was built for."""
        if generation is None:
            with suppress(Damaged):  # then only the checksum protects the setting
                generation = self.generation()
        if generation is None:
            return
        own = None
        with suppress(Damaged):
            own = self.store.setting("encoder", checked=False)
        if own != (built := generation.manifest["encoder"]):
            raise Damaged(
                f"{self.name}: its index was built for a different encoder from the one in its settings "
                f"({difference(built, own)}); {self.advice}"
            )

    @abstractmethod
    def backlog(self) -> tuple[int, int]:
        """Return how many used vectors the index lacks, and how many unused vectors it holds."""

    @property
    @abstractmethod
    def transfer(self) -> Transfer:
        """The numbered rows of the collection, for copying it."""

    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """Return the size in bytes of every file."""

    # ---- the published index -------------------------------------------------------------------------------

    @abstractmethod
    def published(self) -> tuple[int, str, str] | None:
        """Return the number, name and manifest hash of the published generation, or None if there is none."""

    @abstractmethod
    def _read(self, row: tuple[int, str, str], fresh: bool) -> Generation:
        """Return the generation of a row that `published` has returned. If `fresh`, read it even if it is loaded."""

    def generation(self) -> Generation | None:
        """Return the published generation, or None if there is none."""
        return self.with_generation(lambda generation: generation)

    def with_generation(self, use: Callable[[Generation | None], Result], *, fresh: bool = False) -> Result:
        """Call `use` with the published generation.

        If a newer one is published meanwhile and the first one is removed, call it again with the newer one. If
        `fresh`, read the manifest again even if it is loaded.
        """
        while True:
            row = self.published()
            try:
                return use(self._read(row, fresh) if row else None)
            except (Damaged, TableGone):
                if self.published() == row:
                    raise

    def load(self, prepare: Callable[[Generation], Result]) -> tuple[Generation, Result]:
        """Load and check the published index.

        Return its generation and the result of `prepare`, which reads its files.
        """

        def loaded(generation: Generation | None) -> tuple[Generation, Result]:
            if generation is None:
                raise self._unfinished()
            self._load_index(generation)
            return generation, prepare(generation)

        return self.with_generation(loaded)

    @abstractmethod
    def _load_index(self, generation: Generation) -> None:
        """Load the index of a generation into memory, unless it is loaded."""

    def refuse_unfinished(self) -> None:
        """Refuse a collection whose first indexing was interrupted."""
        if self.published() is None:
            raise self._unfinished()

    def _unfinished(self) -> NotACollection:
        return NotACollection(
            f"{self.name} has {self.store.count('documents'):,} documents but no index yet: its first run was "
            "interrupted. Run the same command again to finish it."
        )

    @abstractmethod
    def publish(self, publication: Publication, progress: Stage = silent) -> Generation:
        """Build a generation from the stored raw vectors and switch to it.

        Readers see either the old or the new one. The caller must hold the write lock.
        """

    @abstractmethod
    def transform_files(self) -> dict[str, bytes]:
        """Return the transform's files as they were published. They serve to rebuild a damaged generation."""

    # ---- searching -----------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def words(self) -> AnyWords:
        """The index of words."""

    @abstractmethod
    def in_space(self, transform_of: Callable[[Generation], Apply], look: Callable[[Any], Result]) -> Result:
        """Call `look` with the space of the published generation. `transform_of` returns a generation's transform."""

    @abstractmethod
    def in_raw_space(self, look: Callable[[Any], Result]) -> Result:
        """Call `look` with the space of the raw vectors."""


class AnySpace(ABC):
    """The vectors of one space, and the documents that these vectors belong to. Queries are raw vectors."""

    store: AnyStore
    dimension: int
    """The dimension of the raw vectors."""
    apply: Apply
    """Transforms raw vectors to vectors of this space."""

    @property
    def exact(self) -> bool:
        """Whether `nearest_passages` is sure to find the best passage of a document."""
        return False

    @abstractmethod
    def nearest_passages(
        self, queries: Matrix, k: int, *, documents: Allowed = None, without: int | None = None
    ) -> list[list[Nearest]]:
        """Find the best passage of each of the k documents nearest to each query, best first.

        Documents with equal scores are in ascending order of their numbers. If `documents` is given, only these
        documents are found. The document `without` is never found. Fewer than k are returned only if fewer exist.
        """

    @abstractmethod
    def matches(self, found: Sequence[Sequence[Nearest]]) -> list[list[Match]]:
        """Add the fields of the documents. Raise `Damaged` if a passage or document is not intact."""

    @abstractmethod
    def _passages_of(self, documents: Sequence[int]) -> dict[int, list[PassageRow]]:
        """Return the passages of each document by number. Unknown numbers are left out."""

    @abstractmethod
    def _sample(self) -> NDArray[np.float64]:
        """Return the unit vectors of a fixed random sample of the collection's vectors, in this space."""

    def _raw(self, numbers: Sequence[int]) -> Matrix:
        """Return the raw vectors with the given numbers."""
        return self.store.vectors(numbers, self.dimension)

    def nearest_documents(self, queries: Matrix, k: int, *, documents: Allowed = None) -> list[list[Match]]:
        """Find the k documents nearest to each query, each with its best passage, best first."""
        return self.matches(self.nearest_passages(queries, k, documents=documents))

    def similar_documents(self, number: int, k: int, documents: Allowed = None) -> list[Match]:
        """Find the k documents nearest to a stored document, without that document.

        The score of a document is the cosine of its nearest pair of passages with the stored document.
        """
        own = [passage.vector for passage in self.store.passages_of_documents([number])[number]]
        queries = self.store.vectors(own, self.dimension)
        best: dict[int, Nearest] = {}
        for passage, score in chain(*self.nearest_passages(queries, k, documents=documents, without=number)):
            if passage.document not in best or score > best[passage.document][1]:
                best[passage.document] = (passage, score)
        return self.matches([sorted(best.values(), key=rank)[:k]])[0]

    def nearest_of(self, query: Matrix, documents: Sequence[int], found: Sequence[Nearest] = ()) -> dict[int, Nearest]:
        """Find the passage of each of the given documents that is nearest to the query.

        `found` is what `nearest_passages` has found for the query. These vectors are not scored again.
        """
        best = {passage.document: (passage, score) for passage, score in found} if self.exact else {}
        passages = self._passages_of([number for number in documents if number not in best])
        score_of = {passage.vector: score for passage, score in found}
        vectors = dict.fromkeys(passage.vector for own in passages.values() for passage in own)
        if numbers := [number for number in vectors if number not in score_of]:
            raw = np.concatenate([query[None, :], self._raw(numbers)])
            mapped = unit_rows(self.apply(raw)).astype(np.float64)
            score_of |= zip(numbers, products(mapped[1:], mapped[0]).tolist(), strict=True)
        for number, own in passages.items():
            if own:
                passage = own[0] if len(own) == 1 else max(own, key=lambda passage: score_of[passage.vector])
                best[number] = (passage, score_of[passage.vector])
        return {number: best[number] for number in documents if number in best}

    def background(self, queries: Matrix) -> NDArray[np.float64]:
        """Estimate the mean of each query's cosines with the collection, from a sample.

        The nearest vector is left out. In a small collection it would raise the mean, and so hide how near it is.
        """
        sample = self._sample()
        if len(sample) < 2:
            return np.zeros(len(queries))
        cosines = unit_rows(self.apply(queries)).astype(np.float64) @ sample.T
        return np.asarray((cosines.sum(axis=1) - cosines.max(axis=1)) / (len(sample) - 1))


def rank(found: Nearest) -> tuple[float, int]:
    """Return the sort key of a result: best score first, then the number of the document."""
    return -found[1], found[0].document


def unchanged(vectors: Matrix) -> Matrix:
    """Return the vectors unchanged. This is the transform of the space of raw vectors."""
    return vectors


def products(rows: NDArray[np.float64], query: NDArray[np.float64]) -> NDArray[np.float64]:
    # `rows @ query` is not used: BLAS adds the products of a row in an order that depends on the position of the row,
    # so equal vectors could get different scores.
    return np.asarray(np.einsum("ij,j->i", rows, query))
