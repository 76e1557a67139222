"""Verifies and repairs a collection (`verify` and `verify --repair`).

A repair moves damaged rows and files away and rebuilds the index. In a folder, they are moved to the quarantine. Milvus
has no quarantine, so damaged documents are deleted there. To restore such a document, index its source again.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping

from indexes.folder import repair, verify
from indexes.folder.collection import Collection
from indexes.folder.verify import Report
from indexes.protocol import AnyCollection
from retriever.encoder.model_files import LEARNED, EncoderIdentity
from retriever.errors import Damaged, EncoderUnavailable, Mismatch, salvage_advice
from retriever.progress import Progress
from retriever.settings import EncoderOptions, IndexSettings
from retriever.transforms import load_transform

Restore = Callable[[Iterable[Mapping[str, bytes]], Mapping[str, int] | None], bool]
"""A function that publishes the index again with the first intact copy of the transform.

If no copy is intact, it fits a new transform. It returns whether a copy was intact. Its first argument is the copies of
the transform's files. Its second argument is the counts of what the transform was fitted on.
"""


def verified(collection: AnyCollection, progress: Progress) -> Report:
    """Check every file and row of a collection, and its word table if it has one, against its checksum."""
    report = _checked(collection, progress)
    # If settings are damaged, which the report then says, it is unknown which table belongs here.
    if not report.database_broken and not report.bad_settings:
        try:
            if EncoderIdentity.from_json(collection.encoder).pooling == LEARNED:
                EncoderOptions().encoder_of(collection)
        except (EncoderUnavailable, Mismatch) as error:
            report.problems.append(f"the word table is damaged or missing: {error}")
        except Damaged:
            if not report.problems:
                raise
    return report


def _checked(collection: AnyCollection, progress: Progress) -> Report:
    def tell(done: int, total: int) -> None:
        progress("verifying", done, total)

    if isinstance(collection, Collection):
        return verify.check(collection, IndexSettings().to_json(), tell)
    from indexes.milvus import verify as in_milvus
    from indexes.milvus.collection import MilvusCollection

    assert isinstance(collection, MilvusCollection)
    return in_milvus.check(collection, lambda found: load_transform(found).apply, tell)


def repaired(collection: AnyCollection, restore: Restore, progress: Progress) -> Report:
    """Check a collection and repair it. The report lists what was repaired and which problems are left."""
    with collection.writing():
        report = verified(collection, progress)
        if report.database_broken:
            raise Damaged(
                f"{report.problems[0]}. The database itself is damaged and nothing was changed; "
                f"{salvage_advice(collection.name)}"
            )
        if not report.clean:
            _repair(collection, report, restore)
            report.left = verified(collection, progress).problems
    return report


def _repair(collection: AnyCollection, report: Report, restore: Restore) -> None:
    copies = _copies(collection)
    fitted_on = None
    with contextlib.suppress(Damaged):
        generation = collection.generation()
        fitted_on = generation.manifest.get("fitted_on") if generation else None
    if not _put_aside(collection, report):
        return
    if restore(copies, fitted_on):
        report.repaired.append("rebuilt the index from the stored vectors")
    else:
        report.repaired.append("no copy of the transform was intact: fitted a new transform and rebuilt the index")


def _copies(collection: AnyCollection) -> list[dict[str, bytes]]:
    """Read every copy of the transform's files."""
    copies = []
    with contextlib.suppress(Damaged):
        copies.append(collection.transform_files())
    if isinstance(collection, Collection):
        with contextlib.suppress(Damaged):
            copies.append(repair.folder_files(collection))
    return copies


def _put_aside(collection: AnyCollection, report: Report) -> bool:
    """Move damaged rows and files away. Return True if the index must be rebuilt."""
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
