"""Read parts of test collections, cut crops out of their documents, and measure a search with any vectors."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes.faiss.vectors import unit_rows
from retriever.corpus import Corpus, Document
from retriever.corpus.short_texts import short_texts, word_units
from retriever.evaluate.data.beir import BeirSet
from retriever.evaluate.rankings import DEPTH, MAIN, Topics, scores
from retriever.transforms import fit
from retriever.transforms.agreement import Questions, sample_questions
from retriever.transforms.choice import CANDIDATES, STRENGTHS
from retriever.transforms.spec import parse

CROP = (4, 25)  # shortest and longest crop, in words
SHORT_TEXTS = 2000

Rows = NDArray[np.float32]
Map = Callable[[Rows], Rows]
Encode = Callable[[Sequence[str]], Rows]


def ndcg(topics: Topics, ids: Sequence[str], found: NDArray[np.floating[Any]]) -> float:
    """Return nDCG@10 × 100 of the ranking by scores. They have a row for each query and a column for each document."""
    order = np.argsort(-found, axis=1, kind="stable")[:, :DEPTH]
    hits = {
        query: [(ids[place], float(-rank)) for rank, place in enumerate(places)]
        for query, places in zip(topics.queries, order.tolist(), strict=True)
    }
    values = scores(topics.judgements, hits)[MAIN].values()
    return 100 * sum(values) / len(values)


class Figures(NamedTuple):
    agreement: float
    ndcg: float


@dataclass(frozen=True)
class Part:
    """The texts of a part of a test collection."""

    topics: Topics
    ids: list[str]
    documents: list[str]
    short: list[str]
    crops: list[str]
    rests: list[str]
    questions: Questions

    def measure(self, documents: Rows, questions: Rows, queries: Rows) -> Figures:
        """Return the agreement with BM25 and nDCG@10 of a search with these vectors, both × 100."""
        agreement = self.questions.agreement(fit("none", documents), questions, documents)
        found = ndcg(self.topics, self.ids, unit_rows(queries) @ unit_rows(documents).T)
        return Figures(100 * float(agreement.mean()), found)

    def measure_encoder(self, encode: Encode) -> Figures:
        texts = self.documents, self.questions.texts, list(self.topics.queries.values())
        return self.measure(*(encode(own) for own in texts))


def read_part(found: BeirSet, documents: int, pairs: int, seed: int = 0) -> Part:
    """Read all relevant documents, fill up to `documents` with random others, and cut crops out of them."""
    items = [item for item in Corpus([found.folder]) if isinstance(item, Document)]
    texts = {item.id: f"{item.title}\n{item.text}".strip() for item in items}
    rng = np.random.default_rng(seed)
    relevant = {id_ for own in found.topics.judgements.values() for id_, grade in own.items() if grade and id_ in texts}
    others = [id_ for id_ in texts if id_ not in relevant]
    rng.shuffle(others)
    kept = relevant | set(others[: max(documents - len(relevant), 0)])
    ids = [id_ for id_ in texts if id_ in kept]
    chosen = [texts[id_] for id_ in ids]
    cut = list(_pairs(chosen, pairs, rng))
    crops, rests = ([pair[side] for pair in cut] for side in (0, 1))
    short = short_texts(chosen, min(SHORT_TEXTS, len(chosen)), seed + 1)
    questions = sample_questions(chosen, np.arange(len(chosen)), seed)
    return Part(found.topics, ids, chosen, short, crops, rests, questions)


def _pairs(texts: Sequence[str], count: int, rng: np.random.Generator) -> Iterator[tuple[str, str]]:
    """Yield up to `count` crops with the rest of their documents, at most two crops of a document."""
    shortest, longest = CROP
    for number in [*rng.permutation(len(texts)), *rng.permutation(len(texts))]:
        units, separator = word_units(texts[number])
        if len(units) < 2 * shortest:
            continue
        if not count:
            return
        count -= 1
        size = int(rng.integers(shortest, min(longest, len(units) // 2) + 1))
        start = int(rng.integers(0, len(units) - size + 1))
        rest = units[:start] + units[start + size :]
        yield separator.join(units[start : start + size]), separator.join(rest)


def whitenings(dimension: int) -> list[str]:
    """Return the candidates of `auto` that are not flows and keep no more dimensions than there are."""
    found = [spec for spec in CANDIDATES if spec not in STRENGTHS]
    return [spec for spec in found if int(parse(spec).options.get("dimension", 0)) < dimension]


@dataclass(frozen=True)
class Vectors:
    """The raw vectors of a part."""

    part: Part
    documents: Rows
    short: Rows
    crops: Rows
    rests: Rows
    questions: Rows
    queries: Rows

    def measure(self, mapped: Map) -> Figures:
        return self.part.measure(mapped(self.documents), mapped(self.questions), mapped(self.queries))


def encode_part(part: Part, encode: Encode) -> Vectors:
    queries = list(part.topics.queries.values())
    texts = (part.documents, part.short, part.crops, part.rests, part.questions.texts, queries)
    return Vectors(part, *(encode(own) for own in texts))
