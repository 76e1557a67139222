"""Search a collection for names that are taken from its own documents: ids, parts of ids, rare words, phrases and
titles.

    python -m benchmarks names COLLECTION

A user who types `json.dumps` or a quoted phrase wants the document that contains it. COLLECTION is a collection in a
folder, e.g. that of `retriever demo`. Each query has one right document. The figure is the mean reciprocal rank.
"""

import random
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple, get_args

from indexes.terms import field_terms
from retriever.evaluate.report.tables import show, text_table
from retriever.hits import Mode
from retriever.retriever import Retriever

DEPTH = 10
PHRASE = 5  # words
_NAME = re.compile(r"\b(?:[A-Z][A-Z_]{4,}|[a-z]+_[a-z_]+|[a-z]+[A-Z]\w+)\b")


class Asked(NamedTuple):
    """A query, and the id of its one right document."""

    kind: str
    query: str
    id: str


def names(retriever: Retriever, count: int, seed: int) -> list[Asked]:
    """Cut up to `count` queries of each kind from the documents."""
    rows = retriever.local.store.db.conn.execute("SELECT id, title, text FROM documents ORDER BY number").fetchall()
    language = retriever.local.words.language
    rng = random.Random(seed)
    endings = Counter(id_.split(".")[-1].lower() for id_, _, _ in rows)
    holding = Counter(term for _, _, text in rows for term in set(field_terms(text, language)))
    found: dict[str, list[Asked]] = {"id": [], "part of an id": [], "rare word": [], "phrase": [], "title": []}
    for id_, title, text in rows:
        found["id"].append(Asked("id", id_, id_))
        ending = id_.split(".")[-1]
        if "." in id_ and endings[ending.lower()] == 1:
            found["part of an id"].append(Asked("part of an id", ending, id_))
        for word in dict.fromkeys(_NAME.findall(text)):
            if holding[field_terms(word, language)[-1]] == 1 and word.lower() not in id_.lower():
                found["rare word"].append(Asked("rare word", word, id_))
        words = text.split()
        if len(words) > 6 * PHRASE:
            start = rng.randrange(len(words) - PHRASE)
            phrase = " ".join(words[start : start + PHRASE])
            if '"' not in phrase and sum(phrase in other for _, _, other in rows) == 1:
                found["phrase"].append(Asked("phrase", f'"{phrase}"', id_))
        if "(" in title:
            found["title"].append(Asked("title", title.split("(")[0], id_))
    return [asked for own in found.values() for asked in rng.sample(own, min(count, len(own)))]


def run(collection: Path, count: int, seed: int) -> None:
    with Retriever.open(collection) as retriever:
        asked = names(retriever, count, seed)
        table = text_table(f"{len(asked)} names in {collection.name}, mean reciprocal rank", ["kind", *get_args(Mode)])
        ranks: dict[tuple[str, str], list[float]] = {}
        for mode in get_args(Mode):
            for one, hits in zip(asked, retriever.search_many([a.query for a in asked], DEPTH, mode=mode), strict=True):
                rank = next((hit.rank for hit in hits if hit.id == one.id), None)
                for kind in (one.kind, "all"):
                    ranks.setdefault((kind, mode), []).append(1 / rank if rank else 0.0)
        for kind in dict.fromkeys(kind for kind, _ in ranks):
            means = (sum(ranks[kind, mode]) / len(ranks[kind, mode]) for mode in get_args(Mode))
            table.add_row(kind, *(f"{mean:.3f}" for mean in means))
    show(table)
