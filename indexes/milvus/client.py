"""The calls to Milvus that a collection needs: tables and rows.

The same calls of the client library (pymilvus) work with Milvus Lite and with a server. Every read sees all earlier
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

from indexes.errors import NotACollection, TableGone
from indexes.milvus import connection
from indexes.milvus.address import Address
from indexes.milvus.connection import COLLECTION_NOT_LOADED, Refused, Unreachable, to_error

CALL_SECONDS = 120.0
# Maximum number of rows that Milvus returns from one call.
MAX_ROWS = 16_384
# A server accepts requests of up to 64 MB.
WRITE_ROWS = 1000
WRITE_BYTES = 16_000_000
LIST_VALUES = 1000
READ_ROWS = 2000

Row = dict[str, Any]


class Client:
    """A client for one address. Clients of one process with the same address share a connection."""

    def __init__(self, address: Address, *, create: bool = False) -> None:
        folder = Path(address.uri)
        if address.is_file and not create and not folder.exists():
            raise NotACollection(f"{address} does not exist; make it with: retriever index SOURCE --index {address}")
        if address.is_file and folder.is_dir() and any(folder.iterdir()) and not (folder / "LOCK").exists():
            # Milvus Lite would write its files into this folder.
            raise NotACollection(f"{folder} holds other files and no data of Milvus Lite; choose another name.")
        self.address = address
        self.pymilvus = connection.connect(address)
        self._closed = False

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            connection.disconnect(self.address)

    def _call(self, name: str, table: str, **arguments: Any) -> Any:
        """Call a method of pymilvus.

        If the table is not in memory, load it and call again. If the server does not answer, retry. Retrying is safe
        because every call can be repeated.
        """
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
        """Create a table with its indexes and load it into memory.

        Complete a table that another process left unfinished.
        """
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
        """Wait until the index of a field covers all rows.

        A server builds the index in the background. Until it is done, searches scan the remaining rows.
        """
        while int((self._call("describe_index", table, index_name=field) or {}).get("pending_index_rows") or 0):
            time.sleep(1.0)

    def flush(self, table: str) -> None:
        """Move written rows into segments, because Milvus indexes only segments."""
        self._call("flush", table)

    def fields(self, table: str) -> dict[str, Row]:
        """Return the fields of a table by name."""
        return {field["name"]: field for field in self._call("describe_collection", table)["fields"]}

    # ---- rows ----------------------------------------------------------------------------------------------

    def put(self, table: str, rows: Sequence[Row]) -> None:
        """Write rows. A row replaces the stored row with the same key."""
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
        """Return the rows that match an expression."""
        found = self._call("query", table, filter=expression, output_fields=list(fields), limit=MAX_ROWS)
        if len(found) < MAX_ROWS:
            return [dict(row) for row in found]
        return [row for block in self.blocks(table, fields, expression) for row in block]

    def select_in(
        self, table: str, field: str, values: Sequence[int | str], fields: Sequence[str], also: str = ""
    ) -> list[Row]:
        """Return the rows whose field has one of the given values and that match the expression `also`."""
        lists = _in_lists(field, list(dict.fromkeys(values)))
        return [row for expression in lists for row in self.select(table, join_conditions(expression, also), fields)]

    def blocks(
        self, table: str, fields: Sequence[str], expression: str = "", rows: int = READ_ROWS
    ) -> Iterator[list[Row]]:
        """Yield all rows that match an expression, in blocks of `rows`, in any order."""
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
        """Yield all rows that match an expression, in blocks, in ascending order of the primary key `number`."""
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
        """Return the rows nearest to each query, best first. Each row has its `distance`."""
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


# ---- expressions: they contain only numbers and hexadecimal digits, never text of a user -------------------------


def in_list(field: str, values: Sequence[int | str]) -> str:
    """Return a Milvus expression that is true if the field has one of the given values."""
    for value in values:
        if isinstance(value, str) and not (value.isascii() and value.replace(".", "").isalnum()):
            raise ValueError(f"{value!r} would need escaping in an expression")
    return f"{field} in {json.dumps(list(values))}"


def _in_lists(field: str, values: Sequence[int | str]) -> list[str]:
    starts = range(0, len(values), LIST_VALUES)
    return [in_list(field, values[start : start + LIST_VALUES]) for start in starts]


def join_conditions(one: str, other: str) -> str:
    """Return a Milvus expression that is true if both given expressions are true.

    An empty expression is always true.
    """
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
