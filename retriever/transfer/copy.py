"""Copy a collection to a folder or to Milvus.

The copy has the same documents, vectors and transform as the source, and gives the same search results. Rows keep their
numbers and their order. An interrupted copy continues after the last row that was copied. At the end, the checksums of
all documents and a sample of the vectors are compared between source and copy. Only then is the index built, so that an
unfinished copy cannot be searched.
"""

import hashlib
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from indexes.folder.collection import Collection
from indexes.milvus.address import Address
from indexes.places import collection_class, in_milvus
from indexes.protocol import AnyCollection
from indexes.stores import Transfer
from retriever.encoder.static.folder import copy_folder
from retriever.errors import Damaged, Misuse
from retriever.ingest.writer import COPY_OF, republish
from retriever.progress import Progress, silent
from retriever.settings import CollectionSettings

SAMPLED = 1000
SEED = 0


@dataclass(frozen=True)
class CopyReport:
    """The counts of a copy: the contents of the target, and what this run sent and compared."""

    documents: int
    passages: int
    vectors: int
    documents_sent: int
    """The number of documents that this run sent. An earlier, interrupted run may have sent others."""
    vectors_sent: int
    vectors_compared: int
    index: str
    seconds: float


def copy(
    source: str | Path, target: str | Path, *, index_type: str | None = None, progress: Progress = silent
) -> CopyReport:
    """Copy the collection `source` to `target`. By default, the copy has the index type of the source."""
    began = time.monotonic()
    with ExitStack() as stack:
        one: AnyCollection = collection_class(source).open(source)
        stack.callback(one.close)
        one.refuse_unfinished()
        generation = one.generation()
        assert generation is not None
        settings = CollectionSettings.from_json(one.store.setting)
        wanted = settings.index.changed(index_type=index_type)
        wanted.check(one.dimension, "cpu", collection_class(target))
        # A collection in a folder is read in a snapshot. Milvus has no snapshots, so a collection there must be locked.
        stack.enter_context(one.store.snapshot() if isinstance(one, Collection) else one.writing())
        other = _open_target(one, settings, target, generation.manifest_sha256)
        stack.callback(other.close)
        stack.enter_context(other.writing())
        copy_folder(settings.encoder, one.encoder_place(source), other.encoder_place(target), source)
        sent = _send(one, other, progress)
        compared = _compare(one, other, progress)
        counts = generation.manifest["fitted_on"]
        finished = {COPY_OF: None}  # stored together with the index, so that a copy with an index is complete
        republish(other, wanted, one.transform_files(), counts, settings=finished, progress=progress)
        made = other.generation()
        assert made is not None
        return CopyReport(
            other.store.count("documents"),
            other.store.count("passages"),
            other.store.count("vectors"),
            *sent,
            compared,
            str(made.manifest["factory"]),
            time.monotonic() - began,
        )


def _open_target(
    source: AnyCollection, settings: CollectionSettings, target: str | Path, generation: str
) -> AnyCollection:
    """Create the target, or open it if it is an unfinished copy of the same source."""
    kind = collection_class(target)
    origin = {"place": _absolute_name(source), "generation": generation, "created": settings.created}
    if kind.is_begun(target):
        found: AnyCollection = kind.open(target)
        if found.store.setting(COPY_OF) == origin:
            return found
        found.close()
        if _absolute_name(found) == origin["place"]:
            raise Misuse(f"{target} cannot be copied to itself; name a new target.")
        raise Misuse(
            f"{target} already holds a collection, and it is not an unfinished copy of the source; name a new target."
        )
    kind.refuse_if_taken(target)
    stored = {**settings.to_json(), COPY_OF: origin}
    made: AnyCollection = kind.create(target, stored)
    if made.store.setting(COPY_OF) != origin:  # an earlier run was killed before it stored anything
        made.store.set_settings(stored)
    return made


def _absolute_name(collection: AnyCollection) -> str:
    return collection.name if in_milvus(collection.name) else str(Path(collection.name).resolve())


def _send(source: AnyCollection, target: AnyCollection, progress: Progress) -> tuple[int, int]:
    """Send the rows that the target does not have yet. Return the number of documents and of vectors sent."""
    from_, to = source.transfer, target.transfer
    last_vector, last_document = to.last()
    vectors = documents = 0
    total = source.store.count("vectors")
    for rows in from_.vectors(last_vector):
        to.put_vectors(rows)
        vectors += len(rows)
        progress("copying vectors", vectors, total)
    total = source.store.count("documents")
    for sealed in from_.documents(last_document):
        for _, row in sealed:
            if reason := target.store.metadata_problem(row.metadata):
                raise Misuse(f"document {row.id!r} of {source.name} cannot be stored in {target.name}: {reason}.")
        to.put_documents(sealed)
        documents += len(sealed)
        progress("copying documents", documents, total)
    return documents, vectors


def _compare(source: AnyCollection, target: AnyCollection, progress: Progress) -> int:
    """Raise `Damaged` if the copy differs from the source. Return the number of vectors that were compared."""
    progress("comparing", 0, None)
    for table in ("documents", "vectors"):
        counts = source.store.count(table), target.store.count(table)
        if counts[0] != counts[1]:
            raise _differs(source, target, f"{counts[0]:,} {table} against {counts[1]:,}")
    if _digest(source.transfer) != _digest(target.transfer):
        raise _differs(source, target, "different documents")
    numbers = sorted({passage.vector for passage in source.store.passage_sample(SAMPLED, SEED)})
    there, here = (side.store.vectors(numbers, source.dimension, checked=True) for side in (source, target))
    if not np.array_equal(there, here):
        raise _differs(source, target, "different vectors")
    return len(numbers)


def _digest(rows: Transfer) -> str:
    digest = hashlib.sha256()
    for number, seal in rows.seals():
        digest.update(f"{number} {seal}\n".encode())
    return digest.hexdigest()


def _differs(source: AnyCollection, target: AnyCollection, how: str) -> Damaged:
    return Damaged(
        f"{target.name} differs from {source.name} ({how}), probably because the source has changed between two runs "
        f"of the copy; {_removal(target)} and start again."
    )


def _removal(collection: AnyCollection) -> str:
    """Return the part of a message that says how to remove a copy."""
    if not in_milvus(collection.name):
        return f"remove the folder {collection.name}"
    name = Address.parse(collection.name).name
    return f"drop the Milvus collections {name}_settings, {name}_documents, {name}_vectors and {name}_0…"
