"""Read Parquet files: read rows in small batches, and measure each batch before it becomes Python objects.

A file can repeat one long text a million times and use only one bit per repetition. Texts are therefore read as
references into a dictionary. Before a batch is converted, its size with all references expanded is computed. A large
batch is converted row by row, and rows above the size limit of a document are skipped.

Only a corpus with a Parquet file imports this module, because pyarrow is an optional dependency.
"""

import io
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

import pyarrow
import pyarrow.parquet
from pyarrow import compute, types

from indexes.errors import first_line
from retriever.corpus.document import Document, Keys, Skipped, document_of, jsonable
from retriever.corpus.readers.lines import LARGEST_DOCUMENT, MOST_PARTS, TOO_LONG, refuse_bomb
from retriever.corpus.readers.tables import checked_columns

ROWS = 16
"""The number of rows in memory at once. A row can be as large as a document, and larger batches are hardly faster."""
WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}
"""The bytes that a value needs in memory. For a text, these are the bytes of the reference."""
# A damaged file can cause these errors of Python as well as those of pyarrow.
DAMAGE = (OSError, ValueError, OverflowError, MemoryError, RecursionError, IndexError)


def read_parquet(
    stream: BinaryIO, name: str, keys: Keys, progress: Callable[[float], None]
) -> Iterator[Document | Skipped]:
    """Read one document per row. Rows are numbered from 1. `progress` is called with the fraction of rows read."""
    with _seekable(stream) as file:
        yield from _documents(file, name, keys, progress)


@contextmanager
def _seekable(stream: BinaryIO) -> Iterator[BinaryIO]:
    """Unpack a gzip stream into a temporary file, because reading Parquet starts at the end of the file."""
    if stream.seekable():
        yield stream
        return
    with tempfile.TemporaryFile() as unpacked:
        shutil.copyfileobj(stream, unpacked)
        yield cast(BinaryIO, unpacked)


def _documents(
    stream: BinaryIO, name: str, keys: Keys, progress: Callable[[float], None]
) -> Iterator[Document | Skipped]:
    try:
        size = stream.seek(0, io.SEEK_END)
        file = pyarrow.parquet.ParquetFile(stream)
        checked_columns(file.schema_arrow.names, keys)
        leaves = [file.schema.column(place) for place in range(len(file.schema))]
        refuse_bomb(_list_bytes(file.metadata, leaves), size)
        texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
        file = pyarrow.parquet.ParquetFile(stream, metadata=file.metadata, read_dictionary=texts)
        number = unpacked = 0
        for batch in file.iter_batches(batch_size=ROWS):
            measured = _size(batch.columns)
            unpacked += measured[0]
            refuse_bomb(unpacked, size)
            for record in _records(batch, measured):
                number += 1
                where = f"{name}:{number}"
                if isinstance(record, Exception):
                    yield Skipped(where, str(record))
                else:
                    yield document_of({key: jsonable(value) for key, value in record.items()}, keys, where, name)
            progress(number / max(1, file.metadata.num_rows))
    except (pyarrow.ArrowException, *DAMAGE) as error:
        yield Skipped(name, f"not a readable Parquet file: {first_line(error)}")


# ---- sizes -------------------------------------------------------------------------------------------------


def _list_bytes(metadata: Any, leaves: list[Any]) -> int:
    """Return the total bytes of all list items.

    A row can have any number of list items and is decoded as a whole, so the limit must be checked before that.
    """
    return sum(
        metadata.row_group(group).column(place).num_values * WIDTHS.get(leaf.physical_type, leaf.length)
        for group in range(metadata.num_row_groups)
        for place, leaf in enumerate(leaves)
        if leaf.max_repetition_level
    )


def _size(arrays: Iterable[Any]) -> tuple[int, int]:
    """Return the bytes of all values with every reference expanded, and the number of values."""
    size = count = 0
    waiting = list(arrays)
    while waiting:
        array = waiting.pop()
        if isinstance(array.type, pyarrow.BaseExtensionType):
            waiting.append(array.storage)
            continue
        count += len(array)
        if types.is_dictionary(array.type):
            size += _expanded_bytes(array)
        elif types.is_nested(array.type) and not types.is_union(array.type):
            waiting += _children(array)
        else:
            size += array.nbytes
    return size, count


def _children(array: Any) -> list[Any]:
    """Return the arrays inside a nested array, without unused parts.

    These are the fields of a struct, the keys and values of a map, or the items of a list.
    """
    if types.is_struct(array.type):
        return list(array.flatten())
    if types.is_map(array.type):
        first, end = (array.offsets[place].as_py() for place in (0, -1))
        return [part.slice(first, end - first) for part in (array.keys, array.items)]
    return [array.flatten()]


def _expanded_bytes(array: Any) -> int:
    """Return the bytes of the texts that an array refers to. A text counts once per reference."""
    texts, named = array.dictionary, array.indices.drop_null()
    if not len(named):
        return 0
    if types.is_primitive(texts.type) or types.is_nested(texts.type):
        return len(named) * int(max(_size([texts.slice(place, 1)])[0] for place in named.unique().to_pylist()))
    return int(compute.sum(compute.binary_length(texts).take(named)).as_py() or 0)


# ---- values ------------------------------------------------------------------------------------------------


def _records(batch: Any, measured: tuple[int, int]) -> Iterator[dict[str, Any] | Exception]:
    """Yield the rows of a batch. Yield an exception for a row that is too large or that Python cannot represent."""
    batch = _microseconds(batch)
    if not _too_large(measured):
        try:
            yield from batch.to_pylist()
            return
        except (ValueError, OverflowError):
            pass
    for row in (batch.slice(place, 1) for place in range(batch.num_rows)):
        if reason := _too_large(_size(row.columns)):
            yield ValueError(reason)
            continue
        try:
            yield row.to_pylist()[0]
        except (ValueError, OverflowError) as error:
            yield ValueError(f"cannot be read: {first_line(error)}")


def _too_large(measured: tuple[int, int]) -> str:
    if measured[0] > LARGEST_DOCUMENT:
        return TOO_LONG
    return f"holds more than {MOST_PARTS:,} values" if measured[1] > MOST_PARTS else ""


def _microseconds(batch: Any) -> Any:
    """Truncate timestamps to microseconds, because pyarrow cannot convert nanoseconds to Python without pandas."""
    for index, column in enumerate(batch.schema):
        if types.is_timestamp(column.type) and column.type.unit == "ns":
            coarse = batch.column(index).cast(pyarrow.timestamp("us", column.type.tz), safe=False)
            batch = batch.set_column(index, column.name, coarse)
    return batch
