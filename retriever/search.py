"""The query path: text in, ranked documents with their best passage out."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from indexes.collection import Collection
from indexes.generation import Generation
from indexes.space import Match
from indexes.vectors import unit_rows
from retriever.encoder import Encoder
from retriever.errors import Misuse
from retriever.passages import sentences
from retriever.publishing import load_transform
from retriever.transforms import Transform

Space = Literal["index", "raw"]


@dataclass(frozen=True, slots=True)
class Hit:
    """A document found: where it ranks, how near it is, and the passage that is nearest."""

    rank: int
    score: float
    id: str
    title: str
    passage: str
    start: int
    """Where the passage starts in the document's text, in characters."""
    end: int
    metadata: dict[str, Any]
    highlight: tuple[int, int] | None = None
    """The passage's sentence nearest to the query, as offsets into the passage."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Searcher:
    """Answers queries over one collection with its encoder and the transform of its generation."""

    def __init__(self, collection: Collection, encoder: Callable[[], Encoder]) -> None:
        self.collection = collection
        self._encoder = encoder
        self._transform: tuple[int, Transform] | None = None

    def transform(self) -> Transform:
        """The transform of the published generation."""
        return self._transform_of(self.collection.load())

    def _transform_of(self, generation: Generation) -> Transform:
        if self._transform is None or self._transform[0] != generation.number:
            self._transform = (generation.number, load_transform(generation))
        return self._transform[1]

    def search(
        self,
        queries: Sequence[str],
        k: int,
        *,
        min_score: float | None = None,
        space: Space = "index",
        highlight: bool = False,
    ) -> list[list[Hit]]:
        """The k nearest documents of each query."""
        if k < 1:
            raise Misuse(f"-k must be at least 1, not {k}.")
        for number, query in enumerate(queries, 1):
            if not query.strip():
                which = f"query {number} is" if len(queries) > 1 else "the query is"
                raise Misuse(f"{which} empty; say in a few words what you look for.")
        if not queries:
            return []
        self.transform()  # a collection that cannot be searched says so before the encoder is loaded
        vectors = self._encoder().encode(queries)
        results = self._hits(self._matches(vectors, k, space), min_score)
        if highlight:
            return [self._highlighted(hits, vector, space) for hits, vector in zip(results, vectors, strict=True)]
        return results

    def similar(self, id_: str, k: int) -> list[Hit]:
        """The documents nearest to a stored one, by their nearest pair of passages."""
        if k < 1:
            raise Misuse(f"-k must be at least 1, not {k}.")
        store = self.collection.store
        number = store.document_number(id_)
        if number is None:
            raise Misuse(f"there is no document {id_!r} in {self.collection.folder}.")
        own = [passage.vector for passage in store.passages_of_document(number)]
        best: dict[int, Match] = {}
        for matches in self._matches(store.vectors(own, self.collection.dimension), k + 1, "index"):
            for match in matches:
                document = match.passage.document
                if document != number and (document not in best or match.score > best[document].score):
                    best[document] = match
        ranked = sorted(best.values(), key=lambda match: (-match.score, match.passage.document))
        return self._hits([ranked[:k]], None)[0]

    def _matches(self, vectors: NDArray[np.float32], k: int, space: Space) -> list[list[Match]]:
        if space == "raw":
            return self.collection.search_raw(vectors, k)
        return self.collection.search(vectors, k, lambda generation: self._transform_of(generation).apply)

    def _hits(self, results: list[list[Match]], min_score: float | None) -> list[list[Hit]]:
        if min_score is not None:
            results = [[match for match in matches if match.score >= min_score] for matches in results]
        numbers = list({match.passage.document: None for matches in results for match in matches})
        documents = self.collection.store.documents(numbers)
        return [
            [
                self._hit(rank, match, documents[match.passage.document])
                for rank, match in enumerate(matches, 1)
                if match.passage.document in documents
            ]
            for matches in results
        ]

    @staticmethod
    def _hit(rank: int, match: Match, document: dict[str, Any]) -> Hit:
        start, end = match.passage.start, match.passage.end
        return Hit(
            rank=rank,
            score=match.score,
            id=document["id"],
            title=document["title"],
            passage=document["text"][start:end],
            start=start,
            end=end,
            metadata=document["metadata"],
        )

    def _highlighted(self, hits: list[Hit], query: NDArray[np.float32], space: Space) -> list[Hit]:
        """The hits with the sentence nearest to the query marked, where a passage has more than one."""
        spans = [sentences(hit.passage) for hit in hits]
        texts = [hit.passage[a:b] for hit, own in zip(hits, spans, strict=True) if len(own) > 1 for a, b in own]
        if not texts:
            return hits
        raw = np.concatenate([query[None, :], self._encoder().encode(texts)])
        mapped = unit_rows(raw if space == "raw" else self.transform().apply(raw))
        scores = mapped[1:] @ mapped[0]
        marked, position = [], 0
        for hit, own in zip(hits, spans, strict=True):
            if len(own) > 1:
                best = int(np.argmax(scores[position : position + len(own)]))
                position += len(own)
                hit = replace(hit, highlight=own[best])
            marked.append(hit)
        return marked
