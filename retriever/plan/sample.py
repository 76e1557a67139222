"""A sample of the corpus to come, and documents made up of its words, to store more than were given."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from indexes.folder.collection import Collection
from retriever.card.wording import plural
from retriever.corpus import Document
from retriever.corpus.python_docs import stdlib_documents
from retriever.corpus.source import Documents, OnError, Source

MOST_DOCUMENTS = 2000
MOST_CHARACTERS = 4_000_000
SEED = 0
# Enough for any rehearsal. The factor has no divisor in common with ten: no two numbers become one.
LEAST_DIGITS, SCATTERING = 6, 2_654_435_761
BUILT_IN = "Python's documentation, which is built in and stands for it"


@dataclass(frozen=True)
class Sample:
    """Documents, what they are in words, and the CPU seconds of reading them."""

    documents: Sequence[Document]
    what: str
    read_cpu_seconds: float


def from_source(documents: Documents, on_error: OnError = "skip") -> Sample:
    """The first documents of a source; refused where it has none."""
    source = Source(documents)
    began = time.process_time()
    source.refuse_if_empty(on_error)
    found = _bounded(item for item in source if isinstance(item, Document))
    cpu = time.process_time() - began
    return Sample(found, f"the first {plural(len(found), 'document')} of the source", cpu)


def built_in() -> Sample:
    """Where nothing is given: the demo's documents, in an order of chance."""
    everything = list(stdlib_documents())
    order = np.random.default_rng(SEED).permutation(len(everything))
    return Sample(_bounded(everything[place] for place in order), BUILT_IN, 0.0)


def from_collection(collection: Collection) -> Sample:
    """Some documents of a collection that exists, chosen by chance."""
    store = collection.store
    numbers = np.fromiter((row[0] for row in store.db.conn.execute("SELECT number FROM documents")), np.int64)
    chosen = np.random.default_rng(SEED).permutation(numbers)[:MOST_DOCUMENTS].tolist()

    def documents() -> Iterator[Document]:
        for number in chosen:
            row = store.documents([number])[number]
            (source,) = store.db.conn.execute("SELECT source FROM documents WHERE number = ?", [number]).fetchone()
            yield Document(row["id"], row["text"], row["title"], row["metadata"], source)

    began = time.process_time()
    found = _bounded(documents())
    return Sample(found, f"{plural(len(found), 'document')} of {collection.folder}", time.process_time() - began)


def _bounded(documents: Iterator[Document]) -> list[Document]:
    found: list[Document] = []
    characters = 0
    for document in islice(documents, MOST_DOCUMENTS):
        found.append(document)
        characters += document.characters()
        if characters >= MOST_CHARACTERS:
            break
    return found


def made_up(documents: Sequence[Document], count: int) -> Iterator[Document]:
    """As many documents more, each as long as one of these, of words drawn from all of them as often as they come.

    No two have the same text or id, and none has a word that is new but its number. Ids are as long as they were, and
    rise if they did: SQLite fills its pages otherwise where they come in any order.
    """
    rng = np.random.default_rng(SEED)
    words = [word for document in documents for word in document.text.split()]
    ids = [document.id for document in documents]
    rising = ids == sorted(ids)
    for number in range(count):
        like = documents[int(rng.integers(len(documents)))]
        drawn = rng.integers(len(words), size=max(1, len(like.text.split()) - 1)).tolist()
        text = " ".join([*(words[place] for place in drawn), f"{number}."])
        yield replace(like, id=_made_up_id(number, len(like.id), rising), text=text)


def _made_up_id(number: int, length: int, rising: bool) -> str:
    digits = max(length - 1, LEAST_DIGITS)
    if not rising:
        number = number * SCATTERING % 10**digits
    return f"~{number:0{digits}d}"
