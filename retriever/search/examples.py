"""Example queries from the documents of a collection: questions if there are any, else titles, else parts of
sentences."""

import re
from collections.abc import Iterator

from indexes.stores import AnyStore
from retriever.corpus.passages import sentences, words

SHOWN = 3
SAMPLE = 150
SEED = 0
FEWEST_WORDS, BEST_WORDS, MOST_WORDS = 3, 6, 12
LONGEST = 80
# Markup, code, tables and addresses are no example of what to ask.
NO_PROSE = re.compile(r"[<>{}\[\]|`*#_=\\/@$~^]|\d{3,}|\.\w")
QUESTION = re.compile(r"[?\uff1f\u061f]$")
CLAUSE_END = re.compile(r"[,;:.!](?=\s|$)|[()\u2013\u2014\u3001\u3002\uff0c]")


def examples(store: AnyStore) -> list[str]:
    """Return at most three queries. They depend only on the documents, and share as few words as possible."""
    sample = store.passage_sample(SAMPLE, SEED)
    documents = store.documents([passage.document for passage in sample])
    by_kind: dict[int, dict[str, None]] = {}
    for passage in sample:
        document = documents.get(passage.document)
        if document:
            for kind, text in _candidates(document["title"], document["text"][passage.start : passage.end]):
                by_kind.setdefault(kind, {})[text] = None
    chosen: list[str] = []
    for kind in sorted(by_kind):
        while len(chosen) < SHOWN and by_kind[kind]:
            used = {word for text in chosen for word in words(text)}
            best = min(by_kind[kind], key=lambda text: (sum(word in used for word in words(text)), _distance(text)))
            del by_kind[kind][best]
            if not used.issuperset(words(best)):
                chosen.append(best)
    return chosen


def _candidates(title: str, passage: str) -> Iterator[tuple[int, str]]:
    """Yield texts that a person could search for, each with its kind: 0 question, 1 title, 2 clause."""
    if _is_usable(title):
        yield (0 if QUESTION.search(title) else 1), title
    first = True
    for start, end in sentences(passage):
        sentence = " ".join(passage[start:end].split())
        if QUESTION.search(sentence):
            if _is_usable(sentence):
                yield 0, sentence
        elif first:
            clause = CLAUSE_END.split(sentence, maxsplit=1)[0].strip()
            if clause and sentence[0].isalpha() and _is_usable(clause):
                yield 2, clause
        first = False


def _distance(text: str) -> int:
    """How far a text is from the length of a good example."""
    return abs(len(words(text)) - BEST_WORDS)


def _is_usable(text: str) -> bool:
    counted = len(words(text))
    unspaced = counted == len("".join(text.split()))  # a script without spaces, whose words are characters
    most = LONGEST // 2 if unspaced else MOST_WORDS
    return FEWEST_WORDS <= counted <= most and len(text) <= LONGEST and not NO_PROSE.search(text)
