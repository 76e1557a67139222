"""Measure how well a collection answers questions whose documents are known: `retriever evaluate`.

A file of questions has the columns `question` and `expected` (or `file`, or `id`). An expected document is named by its
id or by its file.
Several are separated by `|`, or given in several rows with the same question. Finding any of them counts.
"""

import csv
import difflib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, TextIO

import numpy as np

from retriever.corpus import Corpus, Document, Keys
from retriever.corpus.passages import ITEM, prose, sentences
from retriever.corpus.short_texts import SENTENCE, word_units
from retriever.errors import BadSource, Misuse
from retriever.evaluate.measures.intervals import mean_interval, sign_flip_p
from retriever.files import atomic_write
from retriever.hits import Hit, Options
from retriever.progress import Progress, silent
from retriever.retriever import Retriever

DEPTH = 10
BATCH = 64
SEED = 0
SEPARATOR = "|"
CHANCE = 0.05
ANSWER_KEYS = ("expected", "file")
"""The columns that may name the expected documents. Without one of them, the id of a row does."""
NOT_PROSE = ("|", "#", "```")
LETTERS = 0.75
"""The share of letters and spaces that a sentence has at least."""

WAYS: Mapping[str, Options] = {
    "both": {"mode": "hybrid"},
    "meaning": {"mode": "dense"},
    "words": {"mode": "lexical"},
    "meaning, raw vectors": {"mode": "dense", "space": "raw"},
}
"""The ways to search that are compared. Raw vectors are left out if the collection has no transform."""


@dataclass(frozen=True)
class Question:
    """A question, and the documents that answer it."""

    text: str
    expected: tuple[str, ...]
    """The ids or files of the expected documents, as the file gives them."""
    ids: frozenset[str]


@dataclass(frozen=True)
class Found:
    """What a search gave for one question: the rank of the first expected document, and the hits above it."""

    question: str
    expected: tuple[str, ...]
    rank: int | None
    instead: str | None
    """The title and id of the first hit, if it is not an expected document."""
    ndcg: float


@dataclass(frozen=True)
class Way:
    """The figures of one way to search, from 0 to 1, and what it found for each question."""

    name: str
    first: float
    """The share of the questions whose first hit is an expected document."""
    in_three: float
    in_ten: float
    mrr: float
    """Mean reciprocal rank: the mean of 1 / rank of the first expected document, or 0 if it is not among the ten."""
    ndcg: float
    """nDCG@10 with gain 1 for each expected document (Järvelin and Kekäläinen 2002)."""
    low: float
    high: float
    """The 95 % bootstrap interval of `in_three`."""
    found: tuple[Found, ...] = field(repr=False)


@dataclass(frozen=True)
class Evaluation:
    """How well a collection answers a file of questions."""

    collection: str
    questions: int
    ways: tuple[Way, ...]
    verdict: str

    @property
    def failed(self) -> list[Found]:
        """The questions for which hybrid search finds no expected document among its first ten hits."""
        return [one for one in self.ways[0].found if one.rank is None]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def evaluate(retriever: Retriever, path: Path, progress: Progress = silent) -> Evaluation:
    """Search for every question of a file in each way, and measure at which rank the expected documents are."""
    questions = read_questions(retriever, path)
    info: Any = retriever.info()
    transformed = info["transform"].get("family", "none") != "none"
    names = [name for name in WAYS if transformed or WAYS[name].get("space") != "raw"]
    ways, total = [], len(questions) * len(names)
    for place, name in enumerate(names):
        found: list[Found] = []
        for start in range(0, len(questions), BATCH):
            progress("questions searched", place * len(questions) + start, total)
            some = questions[start : start + BATCH]
            hits = retriever.search_many([question.text for question in some], DEPTH, **WAYS[name])
            found += [_found(question, own) for question, own in zip(some, hits, strict=True)]
        ways.append(_way(name, found))
    progress("questions searched", total, total)
    return Evaluation(str(retriever.collection.name), len(questions), tuple(ways), _verdict(ways))


def _found(question: Question, hits: Sequence[Hit]) -> Found:
    ranks = [hit.rank for hit in hits if hit.id in question.ids]
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(len(question.ids), DEPTH) + 1))
    instead = None
    if hits and hits[0].id not in question.ids:
        first = hits[0]
        instead = f"{first.title} ({first.id})" if first.title and first.title != first.id else first.id
    ndcg = sum(1 / math.log2(rank + 1) for rank in ranks) / ideal
    return Found(question.text, question.expected, min(ranks, default=None), instead, ndcg)


def _way(name: str, found: Sequence[Found]) -> Way:
    def share(most: int) -> list[float]:
        return [float(one.rank is not None and one.rank <= most) for one in found]

    low, high = mean_interval(np.array(share(3)))
    reciprocal = fmean(1 / one.rank if one.rank else 0.0 for one in found)
    shares = (fmean(share(1)), fmean(share(3)), fmean(share(DEPTH)))
    return Way(name, *shares, reciprocal, fmean(one.ndcg for one in found), low, high, tuple(found))


def _verdict(ways: Sequence[Way]) -> str:
    """Say in words how good the search is, and whether another way to search is better by more than chance."""
    both, *others = ways
    count = len(both.found)
    said = (
        f"A search finds the expected document of {round(both.in_three * count)} of {count} questions among its first "
        f"three hits, and of {round(both.in_ten * count)} among its first ten."
    )
    best = max(others, key=lambda way: way.mrr)
    if best.mrr == both.mrr:
        return f"{said} A search by {best.name} alone is as good."
    gains = np.array([_reciprocal(one) - _reciprocal(two) for one, two in zip(best.found, both.found, strict=True)])
    chance = "" if sign_flip_p(gains) < CHANCE else ", but the difference is within chance"
    which = "earlier" if best.mrr > both.mrr else "later"
    return f"{said} A search by {best.name} alone finds them {which}{chance}."


def _reciprocal(found: Found) -> float:
    return 1 / found.rank if found.rank else 0.0


# ---- files of questions ----------------------------------------------------------------------------------------


def read_questions(retriever: Retriever, path: Path) -> list[Question]:
    """Read the questions of a .csv, .tsv or .jsonl file, and find the expected documents in the collection."""
    expected: dict[str, dict[str, None]] = {}
    for item in Corpus([path], keys=Keys(text="question", fixed=True)):
        if not isinstance(item, Document):
            raise BadSource(f"{item.where}: {item.reason}. A file of questions has the columns question and expected.")
        own_id = None if item.id.startswith(f"{path.name}#") else item.id
        named = next((found for key in ANSWER_KEYS if (found := item.metadata.get(key)) is not None), own_id)
        several = named if isinstance(named, list) else str(named if named is not None else "").split(SEPARATOR)
        names = [str(one).strip() for one in several if str(one).strip()]
        if not names:
            raise BadSource(f"{item.source}: the question {item.text!r} has no document in the column `expected`.")
        expected.setdefault(item.text, {}).update(dict.fromkeys(names))
    if not expected:
        raise Misuse(f"{path} has no questions.")
    ids = _ids_of({name for names in expected.values() for name in names}, retriever, path)
    return [
        Question(text, tuple(names), frozenset(id_ for name in names for id_ in ids[name]))
        for text, names in expected.items()
    ]


def _ids_of(names: Iterable[str], retriever: Retriever, path: Path) -> dict[str, set[str]]:
    """Return the ids of the documents that have each name as their id or as their file."""
    store = retriever.local.store
    found = {name: {name} for name in names if store.document_number(name) is not None}
    found |= {name: ids for name in set(names) - set(found) if (ids := store.ids_of_file(name))}
    if missing := set(names) - set(found):
        files: dict[str, set[int]] = {}
        for number, metadata in store.each_metadata():
            files.setdefault(str(metadata.get("file")), set()).add(number)
        for name in missing & set(files):
            found[name] = {str(one["id"]) for one in store.documents(sorted(files[name])).values()}
        if unknown := sorted(missing - set(files)):
            near = difflib.get_close_matches(unknown[0], files, n=1)
            meant = f" Did you mean {near[0]!r}?" if near else ""
            raise Misuse(
                f"{path}: no document has the id or the file {unknown[0]!r}, which is expected for a question.{meant}"
            )
    return found


def suggest(retriever: Retriever, path: Path, count: int) -> int:
    """Write a file of questions to begin with: sentences of random documents. Return the number of questions."""
    if path.suffix not in WRITERS:
        raise Misuse(f"{path}: a file of questions is a .csv, .tsv or .jsonl file.")
    if path.exists():
        raise Misuse(f"{path} exists already. Name a new file.")
    store, rng = retriever.local.store, np.random.default_rng(SEED)
    written: dict[str, str] = {}
    passages = store.passage_sample(20 * count, SEED)
    rng.shuffle(passages)  # a sample is in the order of the documents
    for passage in passages:
        document = store.documents([passage.document])[passage.document]
        usable = _whole_sentences(document["text"][passage.start : passage.end], document["metadata"])
        if usable and document["id"] not in written.values():
            written[usable[rng.integers(len(usable))]] = document["id"]
        if len(written) == count:
            break
    if not written:
        raise Misuse("the documents are too short to cut questions out of them.")
    with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        WRITERS[path.suffix](file, written)
    return len(written)


def _whole_sentences(passage: str, metadata: Mapping[str, Any]) -> list[str]:
    """Return the sentences of a passage that could be questions: of prose, and neither very short nor very long."""
    texts = [passage[start:end] for start, end in prose(passage, metadata) or sentences(passage)]
    texts = [" ".join(ITEM.sub("", text, count=1).split()) for text in texts if not text.lstrip().startswith(NOT_PROSE)]
    least, most = SENTENCE
    return [text for text in texts if least <= len(word_units(text)[0]) <= most and _mostly_letters(text)]


def _mostly_letters(text: str) -> bool:
    return sum(letter.isalpha() or letter.isspace() for letter in text) >= LETTERS * len(text)


def _write_table(file: TextIO, written: Mapping[str, str], delimiter: str) -> None:
    rows = csv.writer(file, delimiter=delimiter)
    rows.writerow(["question", ANSWER_KEYS[0]])
    rows.writerows(written.items())


def _write_lines(file: TextIO, written: Mapping[str, str]) -> None:
    for question, expected in written.items():
        file.write(json.dumps({"question": question, ANSWER_KEYS[0]: expected}, ensure_ascii=False) + "\n")


WRITERS: Mapping[str, Callable[[TextIO, Mapping[str, str]], None]] = {
    ".csv": partial(_write_table, delimiter=","),
    ".tsv": partial(_write_table, delimiter="\t"),
    ".jsonl": _write_lines,
}
