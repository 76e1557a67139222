"""Find the document whose id is the query. In every mode it is the first hit."""

from collections.abc import Iterable
from itertools import islice

from indexes.stores import Allowed, AnyStore
from indexes.terms import fold

LONGEST = 100
"""The maximum length of a query that is compared with ids without regard to case."""
COMPARED = 10
"""The number of documents whose ids are compared so."""


def same_ids(store: AnyStore, query: str, near: Iterable[int], documents: Allowed) -> list[int]:
    """Return the numbers of the documents whose id is the query, of those that may be found.

    If none has exactly this id, the first documents of `near` are taken whose ids differ only in case or diacritics.
    """
    wanted = query.strip()
    exact = store.document_number(wanted)
    if exact is not None:
        return list(store.ids_of([exact], documents))
    if len(wanted) > LONGEST:
        return []
    ids = store.ids_of(list(islice(near, COMPARED)), documents)
    return [number for number, id_ in ids.items() if fold(id_) == fold(wanted)]
