"""Rows of data frames as records: of pandas, polars, Arrow, and whatever else narwhals reads."""

import sys
from collections.abc import Iterator
from typing import Any, Protocol

from retriever.corpus.document import Keys, jsonable, listed
from retriever.errors import Misuse

ROWS_AT_ONCE = 1024
VECTOR = "vector"


class Frame(Protocol):
    """A data frame: it has columns."""

    @property
    def columns(self) -> object: ...


class Rows:
    """The rows of a frame, as records with values for JSON. The column `vector` stays an array of numbers."""

    def __init__(self, frame: Any, keys: Keys) -> None:
        """Take a frame. Raise `Misuse` if it has no column of texts."""
        import narwhals

        if isinstance(frame, narwhals.LazyFrame):
            frame = frame.collect()
        self._frame: Any = frame
        names = list(frame.columns)
        if keys.text not in names:
            raise Misuse(
                f"the frame has no column {keys.text!r}, so it is unknown which column has the texts; "
                f"{listed(dict.fromkeys(map(str, names)))}. Rename it first, e.g. frame.{_rename(frame, keys.text)}."
            )

    def __len__(self) -> int:
        return len(self._frame)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for row in self._frame.iter_rows(named=True, buffer_size=ROWS_AT_ONCE):
            yield {name: value if name == VECTOR else plain_value(value) for name, value in row.items()}


def rows_of(given: object, keys: Keys) -> Rows | None:
    """Return the rows of a frame, or None if the object is not a frame."""
    if not hasattr(type(given), "columns") and type(given).__name__ != "RecordBatchReader":
        return None
    import narwhals

    try:
        frame = narwhals.from_native(_table(given), pass_through=True)
    except narwhals.exceptions.DuplicateError as error:
        raise Misuse(f"the frame has several columns with the same name: {' '.join(str(error).split())}") from None
    return Rows(frame, keys) if isinstance(frame, narwhals.DataFrame | narwhals.LazyFrame) else None


def _table(given: Any) -> Any:
    """Return record batches of Arrow as a table, because narwhals reads only tables."""
    arrow = sys.modules.get("pyarrow")
    if arrow and isinstance(given, arrow.RecordBatch):
        return arrow.Table.from_batches([given])
    return given.read_all() if arrow and isinstance(given, arrow.RecordBatchReader) else given


def plain_value(value: Any) -> Any:
    """Convert the value of a cell to one that JSON can hold.

    A missing value becomes None, whatever the frame uses for it.
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if hasattr(value, "tolist"):  # a scalar or an array of numpy, or a series
        value = value.tolist()
    elif hasattr(value, "to_list"):
        value = value.to_list()
    return jsonable(value)


def _rename(frame: Any, text: str) -> str:
    """Return the code that renames a column with the frame's library, for a message."""
    column = next((name for name, kind in frame.schema.items() if str(kind) == "String"), "…")
    renaming = f"{{{column!r}: {text!r}}}"
    library = frame.implementation.name
    if library == "PANDAS":
        return f"rename(columns={renaming})"
    return f"rename_columns({renaming})" if library == "PYARROW" else f"rename({renaming})"
