"""`verify` and its repair, in either kind of place: what is derived is made again, what is damaged is put aside.

A folder keeps what was put aside in its quarantine. Milvus has none: a damaged document is deleted there. Either comes
back when its source is indexed again.
"""

import contextlib
from typing import TYPE_CHECKING

from indexes.faiss.types import IndexRequest
from indexes.folder import repair, verify
from indexes.folder.collection import Collection
from indexes.folder.verify import Report
from indexes.protocol import AnyCollection
from retriever.errors import Damaged, Misuse, salvage_advice
from retriever.ingest import publishing
from retriever.ingest.publishing import DEFAULT_INDEX_TYPE, DEFAULT_TRANSFORM, Plan

if TYPE_CHECKING:
    from retriever.retriever import Retriever

# What the settings go back to when they are lost.
DEFAULTS = {"transform": DEFAULT_TRANSFORM, "index_type": DEFAULT_INDEX_TYPE, "recall": None, "memory": None}


def verified(retriever: "Retriever") -> Report:
    """What is not as it was stored."""
    collection = retriever.collection

    def progress(done: int, total: int) -> None:
        retriever.progress("verifying", done, total)

    if isinstance(collection, Collection):
        return verify.check(collection, DEFAULTS, progress)
    from indexes.milvus import verify as in_milvus
    from indexes.milvus.collection import MilvusCollection

    assert isinstance(collection, MilvusCollection)
    return in_milvus.check(collection, lambda found: publishing.load_transform(found).apply, progress)


def repaired(retriever: "Retriever") -> Report:
    """The same, with what was done about it, and what is left."""
    with retriever.collection.writing():
        report = verified(retriever)
        if report.database_broken:
            raise Damaged(
                f"{report.problems[0]}. The database itself is damaged and nothing was changed; "
                f"{salvage_advice(retriever.local.folder)}"
            )
        if not report.clean:
            _repair(retriever, report)
            report.left = verified(retriever).problems
    return report


def _repair(retriever: "Retriever", report: Report) -> None:
    collection = retriever.collection
    copies = _copies(collection)
    counts = None
    with contextlib.suppress(Damaged):
        generation = collection.generation()
        counts = publishing.fitted_on(generation) if generation else None
    if not _put_aside(collection, report):
        return
    try:
        plan = retriever.plan()
        plan.check(collection.dimension, "cpu", type(collection))
    except Misuse:  # a setting that damage has left as another text
        plan = Plan(DEFAULT_TRANSFORM, IndexRequest(DEFAULT_INDEX_TYPE))
    for files in copies:
        with contextlib.suppress(Damaged):
            publishing.republish(collection, plan, files, counts, progress=retriever.progress)
            report.repaired.append("made the index again from the stored vectors")
            return
    retriever.rebuild_as(plan, compact=False)
    report.repaired.append("no copy of the transform was sound: fitted it and made the index again")


def _copies(collection: AnyCollection) -> list[dict[str, bytes]]:
    """The transform's files, as often as they are kept."""
    copies = []
    with contextlib.suppress(Damaged):
        copies.append(collection.kept_files())
    if isinstance(collection, Collection):
        with contextlib.suppress(Damaged):
            copies.append(repair.folder_files(collection))
    return copies


def _put_aside(collection: AnyCollection, report: Report) -> bool:
    """Move what is damaged out of the way; whether the index is to be made again of the rest."""
    if isinstance(collection, Collection):
        repair.put_aside(collection, report)
        if not (report.generation_broken or report.bad_vectors):
            return False
        if not collection.store.count("passages"):
            collection.forget_generation()
            return False
        return True
    from indexes.milvus.collection import MilvusCollection

    assert isinstance(collection, MilvusCollection)
    store = collection.store
    collection.state.renew()
    store.client.delete_in(store.documents_table, "number", list(report.bad_documents))
    store.client.delete_in(store.vectors_table, "number", list(report.bad_vectors))
    if report.bad_documents:
        report.repaired.append(f"deleted {len(report.bad_documents):,} damaged documents; index their source again")
    return bool(store.count("documents"))
