"""The calls to Milvus that a collection needs: tables and rows.

Milvus Lite and a server take the same calls from the same client library (pymilvus). Every read sees all earlier
writes (consistency level Strong).
"""

import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.errors import NotACollection
from indexes.milvus import connection
from indexes.milvus.address import Address
from indexes.milvus.connection import COLLECTION_NOT_LOADED, Refused, TableGone, Unreachable, to_error

CALL_SECONDS = 120.0
# The most rows that Milvus returns from one call.
MAX_ROWS = 16_384
# A server accepts requests of up to 64 MB.
WRITE_ROWS = 1000
WRITE_BYTES = 16_000_000
LIST_VALUES = 1000
READ_ROWS = 2000

Row = dict[str, Any]


class Client:
    """A connection to one address. Clients of the same process share one."""

    def __init__(self, address: Address, *, create: bool = False) -> None:
        folder = Path(address.uri)
        if address.is_file and not create and not folder.exists():
            raise NotACollection(f"{address} does not exist; make it with: retriever index SOURCE --store {address}")
        if address.is_file and folder.is_dir() and any(folder.iterdir()) and not (folder / "LOCK").exists():
            # Milvus Lite would write its files between the others.
            raise NotACollection(f"{folder} holds other files and no data of Milvus Lite; choose another name.")
        self.address = address
        self.pymilvus = connection.connect(address)
        self._closed = False

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            connection.disconnect(self.address)

    def _call(self, name: str, table: str, **arguments: Any) -> Any:
        """Call a method of pymilvus. A table that is not in memory is loaded. An unreachable server is tried again,
        which is safe because every call can be repeated."""
        from pymilvus.exceptions import MilvusException

        start, attempts = time.monotonic(), 0
        while True:
            attempts += 1
            try:
                return getattr(self.pymilvus, name)(collection_name=table, timeout=CALL_SECONDS, **arguments)
            except MilvusException as error:
                if error.code == COLLECTION_NOT_LOADED and name != "load_collection":
                    self._call("load_collection", table)
                    continue
                elapsed = time.monotonic() - start
                translated = to_error(self.address, name, table, error, attempts, elapsed)
                if not isinstance(translated, Unreachable) or elapsed >= connection.CONNECT_SECONDS:
                    raise translated from error
                time.sleep(min(1.0, connection.CONNECT_SECONDS - elapsed))

    # ---- tables --------------------------------------------------------------------------------------------

    def has(self, table: str) -> bool:
        return bool(self._call("has_collection", table))

    def create(self, table: str, schema: Any, indexes: Any) -> None:
        """Create a table with its indexes, or complete one whose creator died, and load it into memory."""
        if not self.has(table):
            self._call("create_collection", table, schema=schema, consistency_level="Strong")
        missing = self.pymilvus.prepare_index_params()
        missing += [index for index in indexes if not self._call("list_indexes", table, field_name=index.field_name)]
        if missing:
            self._call("create_index", table, index_params=missing, sync=False)
        self._call("load_collection", table)

    def drop(self, table: str) -> None:
        with contextlib.suppress(TableGone):
            self._call("drop_collection", table)

    def wait_for_index(self, table: str, field: str) -> None:
        """Wait until the index of a field covers all rows. A server builds it in the background, and scans the other
        rows until then."""
        while int((self._call("describe_index", table, index_name=field) or {}).get("pending_index_rows") or 0):
            time.sleep(1.0)

    def flush(self, table: str) -> None:
        """Move written rows into segments, which can be indexed."""
        self._call("flush", table)

    def fields(self, table: str) -> dict[str, Row]:
        """The fields of a table by name."""
        return {field["name"]: field for field in self._call("describe_collection", table)["fields"]}

    # ---- rows ----------------------------------------------------------------------------------------------

    def put(self, table: str, rows: Sequence[Row]) -> None:
        """Write rows, replacing those with the same keys."""
        batch: list[Row] = []
        batch_bytes = 0
        for row in rows:
            row_bytes = sum(_size(value) for value in row.values())
            if batch and (len(batch) == WRITE_ROWS or batch_bytes + row_bytes > WRITE_BYTES):
                self._call("upsert", table, data=batch)
                batch, batch_bytes = [], 0
            batch.append(row)
            batch_bytes += row_bytes
        if batch:
            self._call("upsert", table, data=batch)

    def delete(self, table: str, expression: str) -> None:
        self._call("delete", table, filter=expression)

    def delete_in(self, table: str, field: str, values: Sequence[int | str]) -> None:
        for expression in _in_lists(field, values):
            self.delete(table, expression)

    def select(self, table: str, expression: str, fields: Sequence[str]) -> list[Row]:
        """The rows that match an expression."""
        found = self._call("query", table, filter=expression, output_fields=list(fields), limit=MAX_ROWS)
        if len(found) < MAX_ROWS:
            return [dict(row) for row in found]
        return [row for block in self.blocks(table, fields, expression) for row in block]

    def select_in(
        self, table: str, field: str, values: Sequence[int | str], fields: Sequence[str], also: str = ""
    ) -> list[Row]:
        """The rows whose field has one of these values and that match the expression `also`."""
        lists = _in_lists(field, list(dict.fromkeys(values)))
        return [row for expression in lists for row in self.select(table, join_conditions(expression, also), fields)]

    def blocks(
        self, table: str, fields: Sequence[str], expression: str = "", rows: int = READ_ROWS
    ) -> Iterator[list[Row]]:
        """All rows that match an expression, in blocks of `rows`, in any order."""
        from pymilvus.exceptions import MilvusException

        found = self._call("query_iterator", table, filter=expression, output_fields=list(fields), batch_size=rows)
        try:
            with contextlib.closing(found):
                while block := found.next():
                    yield [dict(row) for row in block]
        except MilvusException as error:
            raise to_error(self.address, "query_iterator", table, error, 1, 0) from error

    def numbered_blocks(
        self, table: str, fields: Sequence[str], expression: str = "", rows: int = READ_ROWS
    ) -> Iterator[list[Row]]:
        """The same in ascending order of the primary key `number`."""
        last = None
        for block in self.blocks(table, list(dict.fromkeys(["number", *fields])), expression, rows):
            block.sort(key=lambda row: row["number"])
            if last is not None and block[0]["number"] <= last:
                raise Refused(f"{self.address}: Milvus returned the rows of {table} out of order.")
            last = block[-1]["number"]
            yield block

    def count(self, table: str, expression: str = "") -> int:
        return int(self._call("query", table, filter=expression, output_fields=["count(*)"])[0]["count(*)"])

    def search(
        self,
        table: str,
        field: str,
        queries: Sequence[Any] | NDArray[np.float32],
        limit: int,
        fields: Sequence[str],
        *,
        expression: str = "",
        metric: str = "IP",
        settings: dict[str, Any] | None = None,
    ) -> list[list[Row]]:
        """The rows nearest to each query, best first, each with its `distance`."""
        found = self._call(
            "search",
            table,
            data=list(queries),
            anns_field=field,
            limit=min(limit, MAX_ROWS),
            filter=expression,
            output_fields=list(fields),
            search_params={"metric_type": metric, "params": settings or {}},
        )
        return [[{**hit["entity"], "distance": hit["distance"]} for hit in hits] for hits in found]


# ---- expressions: they contain numbers and hexadecimal digits, never text of a user ------------------------------


def in_list(field: str, values: Sequence[int | str]) -> str:
    """An expression: the field has one of these values."""
    for value in values:
        if isinstance(value, str) and not (value.isascii() and value.replace(".", "").isalnum()):
            raise ValueError(f"{value!r} would need escaping in an expression")
    return f"{field} in {json.dumps(list(values))}"


def _in_lists(field: str, values: Sequence[int | str]) -> list[str]:
    starts = range(0, len(values), LIST_VALUES)
    return [in_list(field, values[start : start + LIST_VALUES]) for start in starts]


def join_conditions(one: str, other: str) -> str:
    """An expression: both hold. An empty one holds always."""
    return f"({one}) and ({other})" if one and other else one or other


def _size(value: Any) -> int:
    """Estimate the bytes of a field in a request."""
    if isinstance(value, str):
        return 3 * len(value)
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, list | dict):
        return 100 * len(value)
    return 8
