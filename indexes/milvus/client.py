"""What is asked of Milvus: rows in, rows out, with every failure told for people.

Of Milvus Lite and of a server the same things are asked, by the same client (pymilvus). Every read sees what was
written before it (consistency level Strong). A file of Milvus Lite can be open in one process only, and is open there
as long as somebody has it.
"""

import contextlib
import json
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.errors import Locked, NotACollection, RetrieverError, first_line
from indexes.milvus.address import TOKEN, Address

CONNECT_SECONDS = 10.0
CALL_SECONDS = 120.0
# What Milvus gives at once at most.
MOST_ROWS = 16_384
# A request stays well below the 64 MB that a server takes.
WRITTEN_TOGETHER = 1000
WRITTEN_BYTES = 16_000_000
ASKED_TOGETHER = 1000
READ_TOGETHER = 2000
# A server that was gone is found again at once, and not minutes later.
RECONNECTING = {
    "grpc.use_local_subchannel_pool": 1,
    "grpc.initial_reconnect_backoff_ms": 200,
    "grpc.max_reconnect_backoff_ms": 1000,
}
NOT_FOUND = 100
NOT_LOADED = 101
"""Milvus's codes for a collection that is not there, and for one that is not in memory."""

Row = dict[str, Any]


class Unreachable(RetrieverError):
    """Milvus did not answer."""


class Refused(RetrieverError):
    """Milvus answered that it cannot."""


class Changed(RetrieverError):
    """A document was replaced or deleted between two looks at it: who looks begins again."""


class TableGone(RetrieverError):
    """A table that was there is not: an index that another process has replaced."""


_opened: dict[Address, tuple[Any, int]] = {}
_opening = threading.Lock()


class Client:
    """A connection to one address; those of a process share one."""

    def __init__(self, address: Address, *, create: bool = False) -> None:
        if address.is_file and not create and not Path(address.uri).exists():
            raise NotACollection(f"{address} does not exist; make it with: retriever index SOURCE --store {address}")
        if address.is_file:
            _refuse_other_folder(address)
        self.address = address
        self._client = _connect(address)
        self._closed = False

    @property
    def maker(self) -> Any:
        """What makes schemas and parameters."""
        return self._client

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            _disconnect(self.address)

    def _call(self, what: str, table: str, **given: Any) -> Any:
        """What the client's own method of this name gives; a table that nobody has loaded yet is loaded, and a server
        that was gone for a moment is asked again: nothing is asked that could not be asked twice."""
        from pymilvus.exceptions import MilvusException

        method = getattr(self._client, what)
        began, tries = time.monotonic(), 0
        while True:
            tries += 1
            try:
                return method(collection_name=table, timeout=CALL_SECONDS, **given)
            except MilvusException as error:
                if error.code == NOT_LOADED and what != "load_collection":
                    self._call("load_collection", table)
                    continue
                told = _told(self.address, what, table, error)
                passed = time.monotonic() - began
                if not isinstance(told, Unreachable):
                    raise told from error
                if passed >= CONNECT_SECONDS:
                    raise _gone(self.address, f"{what} of {table}", tries, passed, error) from error
                time.sleep(min(1.0, CONNECT_SECONDS - passed))

    # ---- tables --------------------------------------------------------------------------------------------

    def has(self, table: str) -> bool:
        return bool(self._call("has_collection", table))

    def create(self, table: str, schema: Any, indexes: Any) -> None:
        """Make a table with its indexes, or what one lacks whose maker died; an index of nothing is not waited for."""
        if not self.has(table):
            self._call("create_collection", table, schema=schema, consistency_level="Strong")
        missing = self._client.prepare_index_params()
        missing += [index for index in indexes if not self._call("list_indexes", table, field_name=index.field_name)]
        if missing:
            self._call("create_index", table, index_params=missing, sync=False)

    def drop(self, table: str) -> None:
        with contextlib.suppress(TableGone):
            self._call("drop_collection", table)

    def load(self, table: str) -> None:
        self._call("load_collection", table)

    def wait_for_index(self, table: str, field: str) -> None:
        """Return when all that was written is in the index of a field; a server builds it beside everything else, and
        meanwhile compares with every row."""
        while True:
            told = self._call("describe_index", table, index_name=field) or {}
            if not int(told.get("pending_index_rows") or 0):
                return
            time.sleep(1.0)

    def flush(self, table: str) -> None:
        """Have what was written sealed into files that are searched by their index."""
        self._call("flush", table)

    def fields(self, table: str) -> dict[str, Row]:
        """The fields of a table by their names."""
        return {field["name"]: field for field in self._call("describe_collection", table)["fields"]}

    def tables(self) -> list[str]:
        from pymilvus.exceptions import MilvusException

        try:
            return list(self._client.list_collections(timeout=CALL_SECONDS))
        except MilvusException as error:
            raise _told(self.address, "list_collections", "", error) from error

    # ---- rows ----------------------------------------------------------------------------------------------

    def put(self, table: str, rows: Sequence[Row]) -> None:
        """Write rows, in place of those with the same keys: what is written again is there once."""
        together: list[Row] = []
        size = 0
        for row in rows:
            own = sum(_size(value) for value in row.values())
            if together and (len(together) == WRITTEN_TOGETHER or size + own > WRITTEN_BYTES):
                self._call("upsert", table, data=together)
                together, size = [], 0
            together.append(row)
            size += own
        if together:
            self._call("upsert", table, data=together)

    def delete(self, table: str, expression: str) -> None:
        self._call("delete", table, filter=expression)

    def delete_among(self, table: str, field: str, values: Sequence[int | str]) -> None:
        for some in _some(values):
            self.delete(table, among(field, some))

    def select(self, table: str, expression: str, fields: Sequence[str]) -> list[Row]:
        """The rows that an expression is true of."""
        found = self._call("query", table, filter=expression, output_fields=list(fields), limit=MOST_ROWS)
        if len(found) < MOST_ROWS:
            return [dict(row) for row in found]
        return [row for block in self.blocks(table, fields, expression) for row in block]

    def select_among(
        self, table: str, field: str, values: Sequence[int | str], fields: Sequence[str], also: str = ""
    ) -> list[Row]:
        """The rows whose field, one that names a row, has one of these values."""
        found: list[Row] = []
        for some in _some(list(dict.fromkeys(values))):
            found += self.select(table, both(among(field, some), also), fields)
        return found

    def each(
        self, table: str, key: str, fields: Sequence[str], expression: str = "", *, together: int = READ_TOGETHER
    ) -> Iterator[list[Row]]:
        """All rows that an expression is true of, some at a time, by rising key (a whole number)."""
        last: Any = None
        for block in self.blocks(table, list({key: None, **dict.fromkeys(fields)}), expression, together):
            found = sorted(block, key=lambda row: row[key])
            if last is not None and found[0][key] <= last:
                raise Refused(f"{self.address}: Milvus gave the rows of {table} out of order.")
            last = found[-1][key]
            yield found

    def blocks(
        self, table: str, fields: Sequence[str], expression: str = "", together: int = READ_TOGETHER
    ) -> Iterator[list[Row]]:
        """The same in whatever order."""
        from pymilvus.exceptions import MilvusException

        rows = self._call("query_iterator", table, filter=expression, output_fields=list(fields), batch_size=together)
        try:
            with contextlib.closing(rows):
                while block := rows.next():
                    yield [dict(row) for row in block]
        except MilvusException as error:
            raise _told(self.address, "query_iterator", table, error) from error

    def count(self, table: str, expression: str = "") -> int:
        found = self._call("query", table, filter=expression, output_fields=["count(*)"])
        return int(found[0]["count(*)"])

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
            limit=min(limit, MOST_ROWS),
            filter=expression,
            output_fields=list(fields),
            search_params={"metric_type": metric, "params": settings or {}},
        )
        return [[{**hit["entity"], "distance": hit["distance"]} for hit in hits] for hits in found]


# ---- expressions: whole numbers, and texts of hexadecimal digits and the like, never words of a user ------------


def among(field: str, values: Sequence[int | str]) -> str:
    """Whether a field has one of these values: numbers, or texts that need no escaping."""
    for value in values:
        if isinstance(value, str) and not (value.isascii() and value.replace(".", "").isalnum()):
            raise ValueError(f"{value!r} cannot stand in an expression as it is")
    return f"{field} in {json.dumps(list(values))}"


def both(one: str, other: str) -> str:
    return f"({one}) and ({other})" if one and other else one or other


def _size(value: Any) -> int:
    """About the bytes that a field takes in a request."""
    if isinstance(value, str):
        return 3 * len(value)
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, list | dict):
        return 100 * len(value)
    return 8


def _some(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(values), ASKED_TOGETHER):
        yield values[start : start + ASKED_TOGETHER]


# ---- connections -------------------------------------------------------------------------------------------------


def _connect(address: Address) -> Any:
    try:
        import pymilvus
    except ModuleNotFoundError as error:
        raise _missing(address, "pymilvus") from error
    if address.is_file:
        try:
            import milvus_lite  # noqa: F401
        except ModuleNotFoundError as error:
            raise _missing(address, "milvus-lite") from error
    for library in ("pymilvus", "milvus_lite", "grpc"):  # what goes wrong is told by what is raised
        logging.getLogger(library).setLevel(logging.CRITICAL)
    with _opening:
        client, users = _opened.get(address, (None, 0))
        if client is None:
            client = _tried(pymilvus, address)
        _opened[address] = (client, users + 1)
        return client


def _tried(pymilvus: Any, address: Address) -> Any:
    """A client, once the server answers; one that is just starting is waited for."""
    began, tries = time.monotonic(), 0
    while True:
        tries += 1
        try:
            return pymilvus.MilvusClient(
                address.uri,
                token=address.token,
                db_name=address.database,
                timeout=CONNECT_SECONDS,
                grpc_options=RECONNECTING,
            )
        except pymilvus.MilvusException as error:
            if address.is_file:
                raise _not_opened(address, error) from error
            passed = time.monotonic() - began
            if passed < CONNECT_SECONDS and not _is_login(error):
                time.sleep(min(1.0, CONNECT_SECONDS - passed))
                continue
            advice = (
                f"it refuses the login; set {TOKEN} to user:password or an API key"
                if _is_login(error)
                else "see that it runs and that its port is open"
            )
            raise Unreachable(
                f"Milvus at {address.uri} did not let us in, tried {tries} times in {passed:.0f} seconds "
                f"({first_line(error)}): {advice}, and run the same command again."
            ) from error


def _is_login(error: Exception) -> bool:
    text = str(error).lower()
    return "auth" in text or "permission" in text


def _not_opened(address: Address, error: Exception) -> RetrieverError:
    """Milvus Lite says no more than that it failed; whether somebody else has the file can be seen."""
    import fcntl

    lock = Path(address.uri) / "LOCK"
    with contextlib.suppress(OSError), lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return Locked(
                f"{address} is open in another process, and Milvus Lite allows one at a time; wait for it, or let "
                f"both ask a server (milvus-lite server --data-dir {address.uri} --host 127.0.0.1, or Milvus itself)."
            )
    if Path(address.uri).is_file():
        return NotACollection(f"{address.uri} is a file; Milvus Lite of this version keeps its data in a folder.")
    return Unreachable(f"{address} cannot be opened by Milvus Lite: {first_line(error)}")


def _disconnect(address: Address) -> None:
    with _opening:
        client, users = _opened.pop(address, (None, 0))
        if users > 1:
            _opened[address] = (client, users - 1)
        elif client is not None:
            client.close()
            if address.is_file and not any(other.uri == address.uri for other in _opened):
                from milvus_lite.server_manager import server_manager_instance

                server_manager_instance.release_server(address.uri)


def _refuse_other_folder(address: Address) -> None:
    """Refuse a folder of something else: Milvus Lite would write its files into it."""
    folder = Path(address.uri)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "LOCK").exists():
        raise NotACollection(f"{folder} holds other files, and nothing of Milvus Lite; take another name for it.")


def _missing(address: Address, package: str) -> RetrieverError:
    return RetrieverError(
        f"{address} needs the package {package}; install it with: pip install 'flow-retriever[milvus]'"
    )


def _gone(address: Address, what: str, tries: int, seconds: float, error: Exception) -> Unreachable:
    """Milvus has answered before, and does not any more."""
    return Unreachable(
        f"Milvus at {address.uri} stopped answering ({what}, tried {tries} times in {seconds:.0f} seconds: "
        f"{first_line(error)}). What was stored stays; when it answers again, run the same command, it goes on from "
        "there."
    )


def _told(address: Address, what: str, table: str, error: Exception) -> RetrieverError:
    code = getattr(error, "code", None)
    text = first_line(error)
    if code == NOT_FOUND or "collection not found" in text.lower() or "can't find collection" in text.lower():
        return TableGone(f"{address}: the table {table} is not there; it was dropped meanwhile.")
    # 1 is also what the client gives of its own mistakes, which no waiting mends.
    if code == 2 or any(
        word in text.lower() for word in ("unavailable", "deadline", "timeout", "timed out", "connect")
    ):
        return _gone(address, f"{what} of {table}", 1, 0, error)
    return Refused(f"Milvus at {address.uri} refuses {what} of {table}: {text}")
