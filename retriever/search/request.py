"""Check what the caller asks for, and say what is wrong in the caller's terms."""

import difflib
import math
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from indexes.checksums import is_unicode
from indexes.sqlite.conditions import Condition
from indexes.sqlite.filters import MOST_LEVELS
from retriever.corpus.document import as_numbers
from retriever.errors import BadFilter, Misuse, require_type, shown
from retriever.hits import Mode, Space, Where

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

LONGEST_QUERY = 1_000_000
_UNUSABLE = re.compile("[\0\ud800-\udfff]")


def check_k(k: object) -> int:
    """Return k as an integer."""
    if isinstance(k, bool) or not hasattr(k, "__index__"):
        raise Misuse(f"`k` must be a whole number of at least 1, not {shown(k)}.")
    number = operator.index(k)
    if number < 1:
        raise Misuse(f"`k` must be a whole number of at least 1, not {number}.")
    return number


def check_options(mode: object, min_score: object, space: object, highlight: object, explain: object) -> None:
    require_type("highlight", highlight, "True or False", bool, np.bool_)
    require_type("explain", explain, "True or False", bool, np.bool_)
    for name, given, known in (("mode", mode, get_args(Mode)), ("space", space, get_args(Space))):
        if given not in known:
            close = difflib.get_close_matches(str(given), known, 1)
            meant = f"; did you mean {close[0]!r}?" if close else "."
            raise Misuse(f"unknown {name} {shown(given)}; known: {', '.join(known)}{meant}")
    if min_score is not None:
        if isinstance(min_score, bool | str) or not hasattr(min_score, "__float__"):
            raise Misuse(f"`min_score` must be a number from 0 to 100, not {shown(min_score)}.")
        if not 0 <= float(min_score) <= 100:
            raise Misuse(f"`min_score` must be a number from 0 to 100, not {shown(min_score)}.")


def one_query(query: object) -> None:
    """Refuse anything but a text, e.g. a list of queries."""
    if isinstance(query, list | tuple | np.ndarray):
        hint = "search(vector=...)" if len(query) and not isinstance(query[0], str) else "search_many(queries)"
        raise Misuse(f"`query` must be one text, not a list; use {hint}.")
    if query is not None and not isinstance(query, str):
        raise Misuse(f"`query` must be a text, not {shown(query)}.")


def one_vector(vector: "ArrayLike") -> NDArray[np.float32]:
    """Return the vector of one query."""
    try:
        row: NDArray[np.float32] = as_numbers(vector, np.float32)
    except TypeError:
        raise Misuse(f"`vector` must be a list of numbers, not {shown(vector)}.") from None
    if row.ndim != 1:
        raise Misuse(
            f"`vector` must be one list of numbers; it has the shape {row.shape}. For several vectors, use "
            "search_many(vectors=...)."
        )
    return row


def checked_queries(queries: object) -> list[str]:
    """Return the queries as a list."""
    if isinstance(queries, str):
        raise Misuse(f"`queries` must be a list of texts; for one query, use search({shown(queries)}).")
    listed = _texts("queries", "query", queries)
    for number, query in enumerate(listed, 1):
        which = f"query {number} is" if len(listed) > 1 else "the query is"
        if not query.strip():
            raise Misuse(f"{which} empty; say in a few words what you are looking for.")
        if len(query) > LONGEST_QUERY:
            raise Misuse(f"{which} longer than {LONGEST_QUERY:,} characters; no encoder reads that many.")
    return listed


def checked_texts(texts: object) -> list[str]:
    """Return the texts to embed as a list."""
    if isinstance(texts, str):
        raise Misuse(f"`texts` must be a list of texts; for one text, use embed([{shown(texts)}]).")
    return _texts("texts", "text", texts)


def _texts(name: str, one: str, given: object) -> list[str]:
    try:
        listed: list[Any] = list(given)  # type: ignore[call-overload]
    except TypeError:
        raise Misuse(f"`{name}` must be a list of texts, not {shown(given)}.") from None
    for number, text in enumerate(listed, 1):
        which = f"{one} {number} is" if len(listed) > 1 else f"the {one} is"
        if not isinstance(text, str):
            raise Misuse(f"{which} {shown(text)}, not a text.")
        if not is_unicode(text):
            raise Misuse(f"{which} not valid UTF-8.")
    return listed


def checked_vectors(vectors: "ArrayLike", queries: Sequence[str] | None, dimension: int) -> NDArray[np.float32]:
    """Return the vectors of queries as a matrix."""
    try:
        rows: NDArray[np.float32] = as_numbers(vectors, np.float32)
    except TypeError:
        raise Misuse("`vectors` must be numbers: one row for each query.") from None
    if rows.ndim == 1 and not rows.size:
        rows = rows.reshape(0, dimension)
    if rows.ndim != 2 or rows.shape[1] != dimension:
        found = f"{rows.shape[-1]:,} numbers" if rows.ndim in (1, 2) else f"the shape {rows.shape}"
        raise Misuse(f"a query vector has {found}, but the vectors of this collection have {dimension:,} numbers.")
    if queries is not None and len(rows) != len(queries):
        raise Misuse(f"there are {len(rows):,} vectors for {len(queries):,} queries.")
    if not np.isfinite(rows).all():
        raise Misuse("a query vector holds NaN or infinity.")
    return rows


def filters_of(where: Where) -> Iterator[str | Condition]:
    """Yield the filters as texts, and those of a dict as conditions."""
    if isinstance(where, str):
        raise Misuse(f"`where` must be a list of filters; for one filter, use where=[{where!r}].")
    if isinstance(where, Mapping):
        for field, value in where.items():
            if not isinstance(field, str) or not field:
                raise BadFilter(f"the field {shown(field)} of `where` must be the name of a metadata field.")
            if isinstance(value, np.generic):
                value = value.item()
            if not isinstance(value, str | int | float | bool) or value in (math.inf, -math.inf) or value != value:
                raise BadFilter(
                    f"the value of {field!r} in `where` is {shown(value)}; a dict compares with a text, a number, "
                    f"True or False. For anything else give a text, e.g. where=['{field} in (1, 2)']."
                )
            if any(map(_UNUSABLE.search, (field, str(value)))):
                raise BadFilter(f"the filter on {shown(field)} holds a NUL character, or half a character.")
            if field.count(".") >= MOST_LEVELS:
                raise BadFilter(f"the field {shown(field)} is more than {MOST_LEVELS} levels deep.")
            yield Condition(field, "=", (value,))
        return
    try:
        listed: list[Any] = list(where)
    except TypeError:
        raise Misuse(f"`where` must be a list of filters or a dict, not {shown(where)}.") from None
    for one in listed:
        if not isinstance(one, str):
            raise Misuse(f"a filter of `where` is {shown(one)}; it must be a text such as 'year >= 2020'.")
        yield one
