"""Combine search by meaning and by words into one ranking, without labels.

Each side has a strength between 0 and 1 for a query and a document:

- Meaning: m = (cosine - mean) / (1 - mean), where the mean is that of the query's cosines with the whole collection.
  0 is a random passage, 1 is a passage with the vector of the query.
- Words: w³ = BM25 / ceiling, where the ceiling is the BM25 of endlessly many occurrences of every word of the query.
  0 means that no word was found. The cube root is taken because the ceiling is hardly ever reached.

The score is their weighted power mean, (weight m³ + (1 - weight) w³)^(1/3). The third power gives more influence to the
more confident side: meaning decides if one passage stands out, and words decide if none does.

The weight of meaning comes from the evidence that is stored with the collection: it is higher if the encoder was tuned
for similarity. A short query that names something, such as `json.dumps` or `PEP 484`, gives meaning less weight, and so
does a quoted phrase. Results: benchmarks/studies/FUSION_STUDY.md.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.protocol import AnyCollection, AnySpace
from indexes.rows import Match, Nearest
from indexes.stores import AnyWords
from retriever.encoder.model_files import LEARNED
from retriever.encoder.writing import plain
from retriever.hits import Explanation
from retriever.search.same_id import same_ids

DEPTH = 100
"""The number of documents that each side proposes, unless 2 k is more."""
POWER = 3
TUNED_WEIGHT = 0.7
"""The weight of meaning if the encoder was tuned for similarity."""
UNTUNED_WEIGHT = 0.5
HARDLY_READ = 1.7
"""From this number of word pieces per word on, the encoder hardly reads the language of the collection.

all-MiniLM-L6-v2 has 1.1 for Cranfield and WikiQA, 1.3 for SciFact, and 2.2 for XQuAD in German.
"""
NAMED_WEIGHT = 0.2
"""The highest weight of meaning for a query that names something."""
SHORT = 3
"""The maximum number of words of a query that can be a name as a whole."""
LONGEST_NAME = 100
"""The maximum length of a name. A longer word is not a name."""
_QUOTED = re.compile(r'["“„«](?:(?!\w)[^"“”„«»])*+\w[^"“”„«»]*+["”“»]')
_NAME = re.compile(r"\w+(?:[._:/@#&+-]+\w+)+|\w*_\w+|\w*\d\w*|[a-z0-9]+[A-Z]\w*|[A-Z]{3,}|[A-Z]+[a-z]+[A-Z]\w*")


def meaning_strength(cosine: float, mean: float) -> float:
    return min(max((cosine - mean) / max(1 - mean, 1e-9), 0.0), 1.0)


def words_strength(bm25: float, ceiling: float) -> float:
    return float(min(bm25 / ceiling, 1.0) ** (1 / POWER)) if ceiling > 0 else 0.0


def weight_of_meaning(collection: AnyCollection) -> float:
    """Return the weight of meaning for a collection.

    The evidence by which its transform was chosen holds the verdict whether the encoder was tuned for similarity.
    Without a verdict, a transform of any family other than "none" is a sign of an untuned encoder. An encoder whose
    tokenizer cuts the words of the collection into many pieces hardly knows their language, whatever it was tuned for.
    """
    if (collection.store.setting("pieces_per_word") or 0) >= HARDLY_READ:
        return UNTUNED_WEIGHT
    generation = collection.generation()
    family = generation.manifest["transform"]["family"] if generation else "none"
    verdict = (collection.store.setting("choice") or {}).get("verdict")
    tuned = verdict["tuned"] if verdict else family == "none"
    return TUNED_WEIGHT if tuned and collection.encoder["pooling"] != LEARNED else UNTUNED_WEIGHT


def names_something(query: str) -> bool:
    """Return whether a query has a quoted phrase, or is short and at least half of it are names such as `os.path`.

    If several words are all in capitals, the whole query is taken to be in capitals, and capitals are not a sign of a
    name.
    """
    query = plain(query)
    words = query.split()
    if _QUOTED.search(query):
        return True
    if len(words) > SHORT or max(map(len, words), default=0) > LONGEST_NAME:
        return False
    if query.isupper() and len(words) > 1:
        words = query.lower().split()
    return 2 * sum(bool(_NAME.fullmatch(word.strip(".,;:!?()[]{}'\"`"))) for word in words) >= len(words)


def fuse(
    space: AnySpace,
    words: AnyWords,
    queries: Sequence[str],
    vectors: NDArray[np.float32],
    k: int,
    *,
    weight: float,
    documents: Any = None,
) -> tuple[list[list[Match]], list[dict[int, Explanation]]]:
    """Return the k best documents of each query, and the explanations of their scores by the numbers of documents.

    Each side proposes its best documents, and both sides score all proposed documents. A document whose id is the query
    comes first. If no document has a word of the query, meaning alone counts. `documents` limits the search to the
    documents that `store.matching` returned; None means all documents.
    """
    depth = max(DEPTH, 2 * k)
    nearest = space.nearest_passages(vectors, depth, documents=documents)
    results: list[list[Nearest]] = []
    explanations = []
    for query, vector, near, mean in zip(queries, vectors, nearest, space.background(vectors).tolist(), strict=True):
        by_meaning = {passage.document: rank for rank, (passage, _) in enumerate(near, 1)}
        names = names_something(query)
        query = words.searched(query, documents)
        by_words = {number: rank for rank, (number, _) in enumerate(words.best(query, depth, documents), 1)}
        same_id = same_ids(space.store, query, by_words, documents)
        proposed = [*by_meaning, *by_words, *same_id]
        bm25 = words.scores(query, dict.fromkeys(proposed)) if by_words else {}
        if by_words and words.required(query):
            proposed = [number for number in proposed if number in bm25 or number in same_id]
        found = space.nearest_of(vector, list(dict.fromkeys(proposed)), near)
        ceiling = words.ceiling(query) if by_words else 0.0
        limit = NAMED_WEIGHT if names else 1.0
        own_weight = min(weight, limit) if by_words else 1.0
        explained: dict[int, Explanation] = {}
        results.append([])
        for number in _best(found, bm25, own_weight, mean, ceiling, same_id)[:k]:
            passage, cosine = found[number]
            meaning, shared = meaning_strength(cosine, mean), words_strength(bm25.get(number, 0.0), ceiling)
            score = (own_weight * meaning**POWER + (1 - own_weight) * shared**POWER) ** (1 / POWER)
            results[-1].append((passage, 1.0 if number in same_id else score))
            explained[number] = Explanation(
                meaning=100 * meaning,
                meaning_rank=by_meaning.get(number),
                cosine=cosine,
                words=100 * shared,
                words_rank=by_words.get(number),
                bm25=bm25.get(number, 0.0),
                weight=own_weight,
                same_id=number in same_id,
            )
        explanations.append(explained)
    return space.matches(results), explanations


def _best(
    found: Mapping[int, Nearest],
    bm25: Mapping[int, float],
    weight: float,
    mean: float,
    ceiling: float,
    same_id: Sequence[int],
) -> list[int]:
    """Return the numbers of the documents, best first. Those with equal scores are in ascending order."""
    numbers = np.array(list(found), np.int64)
    cosines = np.array([cosine for _, cosine in found.values()])
    meaning = np.clip((cosines - mean) / max(1 - mean, 1e-9), 0, 1)
    shared = np.array([bm25.get(number, 0.0) for number in found]) / (ceiling or 1.0)
    # The power of the score, without its root, has the same order.
    scores = weight * meaning * meaning * meaning + (1 - weight) * np.minimum(shared, 1)
    order = np.lexsort((numbers, -scores, ~np.isin(numbers, same_id)))
    return [int(number) for number in numbers[order]]
