"""`verify` and its repair for a collection in Milvus: what is derived is made again, what is damaged is deleted.

Milvus has no quarantine: a damaged document is deleted, and comes back when its source is indexed again.
"""

import contextlib
from typing import TYPE_CHECKING

from indexes.errors import Damaged
from indexes.milvus.collection import MilvusCollection
from indexes.milvus.verify import check
from indexes.verify import Report
from retriever import publishing

if TYPE_CHECKING:
    from retriever.retriever import Retriever


def verify_in_milvus(retriever: "Retriever", *, repair: bool) -> Report:
    """Check every row; `repair` deletes what is damaged and makes the index again."""
    collection = retriever.collection
    assert isinstance(collection, MilvusCollection)

    def checked() -> Report:
        return check(
            collection,
            lambda generation: publishing.load_transform(generation).apply,
            lambda done, total: retriever.progress("verifying", done, total),
        )

    if not repair:
        return checked()
    with collection.writing():
        report = checked()
        if not report.clean:
            _repair(retriever, collection, report)
            report.left = checked().problems
    return report


def _repair(retriever: "Retriever", collection: MilvusCollection, report: Report) -> None:
    store = collection.store
    files: dict[str, bytes] = {}
    counts = None
    with contextlib.suppress(Damaged):
        files, generation = collection.kept_files(), collection.generation()
        counts = publishing.fitted_on(generation) if generation else None
    collection.state.renew()
    if report.bad_documents:
        store.client.delete_among(store.documents_table, "number", list(report.bad_documents))
        report.repaired.append(f"deleted {len(report.bad_documents):,} damaged documents; index their source again")
    if report.bad_vectors:
        store.client.delete_among(store.vectors_table, "number", list(report.bad_vectors))
    if not store.count("documents"):
        return
    if files and counts:
        publishing.republish(collection, retriever.plan(), files, counts, progress=retriever.progress)
        report.repaired.append("made the index again from the stored vectors")
    else:
        retriever.rebuild_as(retriever.plan())
        report.repaired.append("no copy of the transform was sound: fitted it and made the index again")
