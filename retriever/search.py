"""The query path: text in, ranked documents with their best passage out."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from indexes.collection import Collection, Question
from indexes.generation import Generation
from indexes.space import Apply, Match
from indexes.vectors import unit_rows
from retriever.encoder import Encoder
from retriever.errors import Misuse
from retriever.novelty import Novelty
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


@dataclass(frozen=True, slots=True)
class Answer:
    """The hits of a query, and how unlike it is to the text that the transform was fitted on."""

    hits: list[Hit]
    novelty: float | None
    """Bits per dimension, higher is stranger; None where the collection does not know what is ordinary."""
    limit: float | None
    """What ordinary short texts stay below; None where that is not known, or the query is too short to be judged."""

    @property
    def strange(self) -> bool:
        """Whether the query is far outside: then the hits mean little."""
        return self.novelty is not None and self.limit is not None and self.novelty > self.limit


class Searcher:
    """Answers queries over one collection with its encoder and the transform of its generation."""

    def __init__(self, collection: Collection, encoder: Callable[[], Encoder]) -> None:
        self.collection = collection
        self._encoder = encoder
        self._loaded: tuple[int, Transform, Novelty | None] | None = None

    def transform(self) -> Transform:
        """The transform of the published generation."""
        return self.collection.load(self._transform_of)[1]

    def novelty(self) -> Novelty | None:
        """What tells ordinary text from strange in the published generation, if it is known."""
        return self.collection.load(self._parts_of)[1][1]

    def _apply_of(self, generation: Generation) -> Apply:
        return self._transform_of(generation).apply

    def _transform_of(self, generation: Generation) -> Transform:
        return self._parts_of(generation)[0]

    def _parts_of(self, generation: Generation) -> tuple[Transform, Novelty | None]:
        if self._loaded is None or self._loaded[0] != generation.number:
            self._loaded = (generation.number, load_transform(generation), Novelty.of(generation))
        return self._loaded[1:]

    def search(
        self,
        queries: Sequence[str],
        k: int,
        *,
        min_score: float | None = None,
        space: Space = "index",
        highlight: bool = False,
    ) -> list[Answer]:
        """The k nearest documents of each query."""
        _check_request(queries, k, min_score, space)
        if not queries:
            return []
        novelty = self.novelty()  # a collection that cannot be searched says so before the encoder is loaded
        vectors = self._encoder().encode(queries)
        results = [_hits(matches, min_score) for matches in self._matches(vectors, k, space)]
        if highlight:
            results = [self._highlighted(hits, vector, space) for hits, vector in zip(results, vectors, strict=True)]
        if novelty is None:
            return [Answer(hits, None, None) for hits in results]
        scored = zip(queries, results, novelty.scores(vectors).tolist(), strict=True)
        return [Answer(hits, score, novelty.query_limit(query)) for query, hits, score in scored]

    def similar(self, id_: str, k: int) -> list[Hit]:
        """The documents nearest to a stored one, by their nearest pair of passages."""
        _check_request([], k, None, "index")
        own_number = 0

        def ask() -> Question:
            nonlocal own_number
            store = self.collection.store
            found = store.document_number(id_)
            if found is None:
                raise Misuse(f"there is no document {id_!r} in {self.collection.folder}.")
            own_number = found
            own = [passage.vector for passage in store.passages_of_document(found)]
            stands_for = store.passages_of_vectors(own)
            only_own = [v for v in own if all(passage.document == found for passage in stands_for[v])]
            return Question(store.vectors(own, self.collection.dimension), only_own)

        results = self.collection.search(ask, k + 1, self._apply_of)
        best: dict[int, Match] = {}
        for match in (match for matches in results for match in matches):
            document = match.passage.document
            if document != own_number and (document not in best or match.score > best[document].score):
                best[document] = match
        ranked = sorted(best.values(), key=lambda match: (-match.score, match.passage.document))
        return _hits(ranked[:k], None)

    def _matches(self, vectors: NDArray[np.float32], k: int, space: Space) -> list[list[Match]]:
        if space == "raw":
            return self.collection.search_raw(vectors, k)
        return self.collection.search(lambda: Question(vectors), k, self._apply_of)

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


def _check_request(queries: Sequence[str], k: int, min_score: float | None, space: str) -> None:
    if k < 1:
        raise Misuse(f"-k must be at least 1, not {k}.")
    if space not in get_args(Space):
        raise Misuse(f"unknown space {space!r}; known: {', '.join(get_args(Space))}.")
    if min_score is not None and math.isnan(min_score):
        raise Misuse("--min-score is not a number.")
    for number, query in enumerate(queries, 1):
        which = f"query {number} is" if len(queries) > 1 else "the query is"
        if not query.strip():
            raise Misuse(f"{which} empty; say in a few words what you look for.")
        if not is_unicode(query):
            raise Misuse(f"{which} not valid UTF-8.")


def is_unicode(text: str) -> bool:
    """Whether a text can be stored and tokenised: bytes that are no UTF-8 come from a shell as lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _hits(matches: Sequence[Match], min_score: float | None) -> list[Hit]:
    kept = [match for match in matches if min_score is None or match.score >= min_score]
    return [
        Hit(
            rank=rank,
            score=match.score,
            id=match.document["id"],
            title=match.document["title"],
            passage=match.document["text"][match.passage.start : match.passage.end],
            start=match.passage.start,
            end=match.passage.end,
            metadata=match.document["metadata"],
        )
        for rank, match in enumerate(kept, 1)
    ]
