"""The reader of Parquet: rows in small batches, measured before they become Python's objects.

A file may name one long text a million times at the cost of a bit each. Texts are therefore read as references into a
dictionary, what a batch will take with every reference copied is counted first, and only then it is unpacked: row by
row where it is large, without the rows that are larger than a document may be.
"""

import datetime
import io
import math
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from indexes.errors import first_line
from retriever.corpus import limits
from retriever.corpus.document import Document, Keys, Skipped, document_of
from retriever.corpus.tables import checked_columns

ROWS = 16
"""Rows held in memory at once: each may be as large as a document may be, and more at once are hardly quicker."""
WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}
"""Bytes of a value in memory; of a text, its reference."""
UNREADABLE = (ValueError, OverflowError, MemoryError, RecursionError, IndexError)
"""What a damaged file provokes beside pyarrow's own errors."""


def read_parquet(
    stream: BinaryIO, name: str, keys: Keys, progress: Callable[[float], None]
) -> Iterator[Document | Skipped]:
    """The rows; `progress` is told the fraction of rows read. A row is named by its number, from 1."""
    import pyarrow
    import pyarrow.parquet

    try:
        size = stream.seek(0, io.SEEK_END)
        file = pyarrow.parquet.ParquetFile(stream)
        checked_columns(file.schema_arrow.names, keys)
        leaves = [file.schema.column(place) for place in range(len(file.schema))]
        limits.refuse_bomb(_in_lists(file.metadata, leaves), size)
        texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
        file = pyarrow.parquet.ParquetFile(stream, metadata=file.metadata, read_dictionary=texts)
        number = unpacked = 0
        for batch in file.iter_batches(batch_size=ROWS):
            measured = _measured(batch)
            unpacked += measured[0]
            limits.refuse_bomb(unpacked, size)
            for record in _records(batch, measured):
                number += 1
                where = f"{name}:{number}"
                if isinstance(record, Exception):
                    yield Skipped(where, str(record))
                else:
                    yield document_of({key: _jsonable(value) for key, value in record.items()}, keys, where)
            progress(number / max(1, file.metadata.num_rows))
    except (
        pyarrow.ArrowException,
        OSError,
        ValueError,
        OverflowError,
        MemoryError,
        RecursionError,
        IndexError,
    ) as error:
        yield Skipped(name, f"not a readable Parquet file: {first_line(error)}")


# ---- how large it is ---------------------------------------------------------------------------------------


def _in_lists(metadata: Any, leaves: list[Any]) -> int:
    """The bytes of all that stands in lists: a row may hold any number of them, and is decoded whole."""
    total = 0
    for group in (metadata.row_group(place) for place in range(metadata.num_row_groups)):
        for place, leaf in enumerate(leaves):
            if leaf.max_repetition_level:
                total += group.column(place).num_values * WIDTHS.get(leaf.physical_type, leaf.length)
    return total


def _measured(batch: Any) -> tuple[int, int]:
    """The bytes that the values of a batch take with every reference copied, and how many values there are."""
    sizes = [_size(column) for column in batch.columns]
    return sum(size for size, _ in sizes), sum(count for _, count in sizes)


def _size(array: Any) -> tuple[int, int]:
    import pyarrow

    is_, kind = pyarrow.types, array.type
    if is_.is_dictionary(kind):
        return _copied(array), len(array)
    if isinstance(kind, pyarrow.BaseExtensionType):
        return _size(array.storage)
    if is_.is_nested(kind) and not is_.is_union(kind):
        sizes = [_size(child) for child in _inside(array)]
        return sum(size for size, _ in sizes), len(array) + sum(count for _, count in sizes)
    return array.nbytes, len(array)


def _inside(array: Any) -> list[Any]:
    """Of a struct its fields, of a map its keys and values, of a list what is in it: each only as far as it is used."""
    import pyarrow

    if pyarrow.types.is_struct(array.type):
        return list(array.flatten())
    if pyarrow.types.is_map(array.type):
        first, end = (array.offsets[place].as_py() for place in (0, -1))
        return [part.slice(first, end - first) for part in (array.keys, array.items)]
    return [array.flatten()]


def _copied(array: Any) -> int:
    """The bytes of the texts that references into a dictionary name, each as often as it is named."""
    import numpy as np
    import pyarrow

    is_, texts = pyarrow.types, array.dictionary
    named = array.indices.drop_null().to_numpy(zero_copy_only=False)
    if not len(named):
        return 0
    if is_.is_string(texts.type) or is_.is_binary(texts.type):
        offsets_are: Any = np.int32
    elif is_.is_large_string(texts.type) or is_.is_large_binary(texts.type):
        offsets_are = np.int64
    else:
        return len(named) * int(max(_size(texts.slice(place, 1))[0] for place in np.unique(named).tolist()))
    offsets = np.frombuffer(texts.buffers()[1], offsets_are)[texts.offset :]
    return int((offsets[named + 1].astype(np.int64) - offsets[named]).sum())


# ---- what it holds -----------------------------------------------------------------------------------------


def _records(batch: Any, measured: tuple[int, int]) -> Iterator[dict[str, Any] | Exception]:
    """The rows of a batch; if one is too large, or has a value Python cannot hold, only that one is lost."""
    batch = _microseconds(batch)
    if not _too_large(measured):
        try:
            yield from batch.to_pylist()
            return
        except (ValueError, OverflowError):
            pass
    for row in (batch.slice(place, 1) for place in range(batch.num_rows)):
        reason = _too_large(_measured(row))
        if reason:
            yield ValueError(reason)
            continue
        try:
            yield row.to_pylist()[0]
        except (ValueError, OverflowError) as error:
            yield ValueError(f"cannot be read: {first_line(error)}")


def _too_large(measured: tuple[int, int]) -> str:
    if measured[0] > limits.LARGEST_DOCUMENT:
        return limits.TOO_LONG
    return f"holds more than {limits.MOST_PARTS:,} values" if measured[1] > limits.MOST_PARTS else ""


def _microseconds(batch: Any) -> Any:
    """Without pandas, pyarrow gives no nanoseconds to Python: the last three digits are dropped."""
    import pyarrow

    for index, column in enumerate(batch.schema):
        if pyarrow.types.is_timestamp(column.type) and column.type.unit == "ns":
            coarse = batch.column(index).cast(pyarrow.timestamp("us", column.type.tz), safe=False)
            batch = batch.set_column(index, column.name, coarse)
    return batch


def _jsonable(value: Any) -> Any:
    """A value as JSON can hold it: times in ISO 8601, bytes in hex, NaN (pandas for missing) as null."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return value.hex()
    return str(value)
