"""Matches with a score for people and an explanation, and the hits that are made from them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from indexes.rows import Match
from indexes.stores import AnyWords
from indexes.terms import field_terms, id_terms, is_unspaced, placed_terms, query_words
from retriever.corpus.passages import encoded_text, prose
from retriever.corpus.structure import place_of
from retriever.errors import RetrieverError
from retriever.hits import Explanation, Hit, Hits, Reranks
from retriever.search.fusion import meaning_strength, words_strength

READ = 100_000
"""The number of characters of a text in which the words of a query are looked for to explain a hit."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A match, its score for people, and what each side of the search found."""

    match: Match
    relevance: float
    explanation: Explanation

    @property
    def shown(self) -> float:
        """The relevance as hits show it.

        A minimum score is compared with this, so a score that was shown can be given as the minimum.
        """
        return round(self.relevance, 1)


def reranked(reranker: Reranks, query: str, found: Sequence[Scored]) -> list[Scored]:
    """Order the matches by the scores of a cross-encoder. It reads title and passage in the format of the encoder."""
    texts = [encoded_text(one.match.document["title"], passage_text(one.match)) for one in found]
    if not texts:
        return []
    given = np.asarray(reranker.scores(query, texts), np.float64)
    if given.shape != (len(texts),) or not np.isfinite(given).all():
        raise RetrieverError(
            f"the reranker {type(reranker).__name__} returned NaN, or scores of the shape {given.shape} for "
            f"{len(texts)} texts; it must return one number for each text."
        )
    scores = given.tolist()
    scored = [
        replace(one, match=replace(one.match, score=score), relevance=100 / (1 + math.exp(-max(score, -500.0))))
        for one, score in zip(found, scores, strict=True)
    ]
    return sorted(scored, key=lambda one: -one.match.score)


def by_meaning(matches: Sequence[Match], mean: float) -> list[Scored]:
    strengths = [100 * meaning_strength(match.score, mean) for match in matches]
    return [
        Scored(match, strength, Explanation(meaning=strength, meaning_rank=rank, cosine=match.score, weight=1.0))
        for rank, (match, strength) in enumerate(zip(matches, strengths, strict=True), 1)
    ]


def by_words(matches: Sequence[Match], ceiling: float) -> list[Scored]:
    strengths = [100 * words_strength(match.score, ceiling) for match in matches]
    return [
        Scored(match, strength, Explanation(words=strength, words_rank=rank, bm25=match.score, weight=0.0))
        for rank, (match, strength) in enumerate(zip(matches, strengths, strict=True), 1)
    ]


def with_first(found: Sequence[Scored], first: Sequence[Scored], score: float) -> list[Scored]:
    """Put the documents whose id is the query before all others, with the highest possible score."""
    numbers = {one.match.passage.document for one in first}
    known = {one.match.passage.document: one for one in (*first, *found)}
    return [
        replace(
            known[number],
            match=replace(known[number].match, score=score),
            relevance=100.0,
            explanation=replace(known[number].explanation, same_id=True),
        )
        for number in sorted(numbers)
    ] + [one for one in found if one.match.passage.document not in numbers]


def passage_text(match: Match) -> str:
    return str(match.document["text"][match.passage.start : match.passage.end])


def hits_of(found: Sequence[Scored]) -> Hits:
    return Hits(
        Hit(
            rank=rank,
            score=one.match.score,
            relevance=one.shown,
            id=one.match.document["id"],
            title=one.match.document["title"],
            passage=passage_text(one.match),
            start=one.match.passage.start,
            end=one.match.passage.end,
            metadata=one.match.document["metadata"],
            place=place_of(one.match.document, one.match.passage.start),
            explanation=one.explanation,
        )
        for rank, one in enumerate(found, 1)
    )


def explained(words: AnyWords, query: str, found: Sequence[Scored]) -> list[Scored]:
    """Add the words of the query that each document contains in its text, its title or its id."""
    language = words.language
    asked = [(word, set(field_terms(word, language))) for word in query_words(query)]

    def matched(document: Mapping[str, Any]) -> tuple[str, ...]:
        held = set(id_terms(document["id"], language))
        held.update(*(field_terms(document[name][:READ], language) for name in ("title", "text")))
        beginnings = {term[0] for term in held if is_unspaced(term)}  # one character stands for all its pairs
        return tuple(word for word, terms in asked if terms & held or terms & beginnings)

    return [replace(one, explanation=replace(one.explanation, matched=matched(one.match.document))) for one in found]


def highlight_words(words: AnyWords, query: str, hits: Sequence[Hit]) -> Hits:
    """Mark the sentence that has the most words of the query, in each passage that has several."""
    terms = set(words.terms(query))

    def marked(hit: Hit) -> Hit:
        own = prose(hit.passage, hit.metadata)
        places = [term.start for term in placed_terms(hit.passage, words.language) if term.text in terms]
        if not own or not places:
            return hit
        return replace(hit, highlight=max(own, key=lambda span: sum(span[0] <= p < span[1] for p in places)))

    return Hits(marked(hit) for hit in hits)
