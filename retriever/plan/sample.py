"""The sample of a corpus that a plan is based on. If it is too small, further documents are made up of its words."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from retriever.corpus import Document
from retriever.corpus.source import Documents, OnError, Source
from retriever.encoder.model_files import PROMPTS
from retriever.errors import Misuse
from retriever.retriever import Retriever

MOST_DOCUMENTS, MOST_CHARACTERS = 4000, 20_000_000
SEED = 0
# SCATTERING has no common divisor with ten, so that different numbers stay different after the multiplication.
LEAST_DIGITS, SCATTERING = 6, 2_654_435_761


@dataclass(frozen=True)
class Sample:
    """Documents, a description of their source, and the CPU seconds of reading one of them."""

    documents: Sequence[Document]
    description: str
    read_cpu: float = 0.0


def from_source(documents: Documents, on_error: OnError = "skip", description: str = "the source") -> Sample:
    """Read the first documents of a source. Raise an error if it has none."""
    source = Source(documents)
    began = time.process_time()
    source.refuse_if_empty(on_error)
    found = _limited(item for item in source if isinstance(item, Document))
    return Sample(found, f"{description}, {len(found):,} documents", (time.process_time() - began) / len(found))


def from_collection(folder: Path, encoder: str | None) -> tuple[Sample, dict[str, Any]]:
    """Read documents of an existing collection in random order, and the options that it was built with."""
    with Retriever.open(folder, encoder=encoder, device="cpu") as opened:
        store, identity = opened.local.store, opened.encoder().identity
        if not identity.is_model:
            raise Misuse(
                f"a plan needs a collection that was made with a BERT, but {folder} was made with {identity.name}."
            )
        ids = [row[0] for row in store.db.conn.execute("SELECT id FROM documents ORDER BY number")]
        if not ids:
            raise Misuse(f"{folder} has no documents to base a plan on; index some first, or give a SOURCE.")
        order = np.random.default_rng(SEED).permutation(len(ids))
        found = _limited(opened.document(ids[place]) for place in order)
        options = {name: getattr(identity, name) for name in ("pooling", "max_length", "precision", *PROMPTS)}
        options |= {"encoder": encoder or identity.name, "transform": str(store.setting("transform"))}
    return Sample(found, f"{folder}, {len(found):,} documents"), options


def made_up(documents: Sequence[Document], count: int) -> Iterator[Document]:
    """Make up documents that cost as much to index as the given ones.

    Each new document is as long as one of the given documents, and its words are drawn from all of them. Texts and ids
    are unique. The new ids are as long as the given ids, and they ascend if the given ids do. Length and order of the
    ids affect how full the pages of SQLite are.
    """
    rng = np.random.default_rng(SEED)
    words = [word for document in documents for word in document.text.split()]
    ids = [document.id for document in documents]
    ascending = ids == sorted(ids)
    for number in range(count):
        like = documents[int(rng.integers(len(documents)))]
        drawn = rng.integers(len(words), size=max(1, len(like.text.split()) - 1)).tolist()
        digits = max(len(like.id) - 1, LEAST_DIGITS)
        shown = number if ascending else number * SCATTERING % 10**digits
        text = " ".join([*(words[place] for place in drawn), f"{number}."])
        yield replace(like, id=f"~{shown:0{digits}d}", text=text)


def _limited(documents: Iterator[Document]) -> list[Document]:
    found, characters = [], 0
    for document in islice(documents, MOST_DOCUMENTS):
        found.append(document)
        characters += document.characters()
        if characters >= MOST_CHARACTERS:
            break
    return found
