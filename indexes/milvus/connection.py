"""Connects to Milvus and translates its errors into errors for users.

The clients of a process share their connections. Milvus Lite allows only one process to open a file. The file stays
open until the last client in the process closes it.
"""

import contextlib
import logging
import re
import threading
import time
from pathlib import Path
from typing import Any

from indexes.errors import Locked, NotACollection, RetrieverError, TableGone, first_line
from indexes.milvus.address import TOKEN, Address

OLDEST = (2, 5)
CONNECT_SECONDS = 10.0
# With the default backoff of gRPC, it could take minutes to reach a restarted server.
GRPC_OPTIONS = {
    "grpc.use_local_subchannel_pool": 1,
    "grpc.initial_reconnect_backoff_ms": 200,
    "grpc.max_reconnect_backoff_ms": 1000,
}
# Error codes of Milvus.
UNAVAILABLE = 2
COLLECTION_NOT_FOUND = 100
COLLECTION_NOT_LOADED = 101
UNAVAILABLE_WORDS = ("unavailable", "deadline", "timeout", "timed out", "connect")


class Unreachable(RetrieverError):
    """Milvus did not answer."""


class Refused(RetrieverError):
    """Milvus answered with an error."""


class Changed(RetrieverError):
    """A document was replaced or deleted between two reads. The operation must start again."""


_connections: dict[Address, tuple[Any, int]] = {}
"""The open clients of this process, each with the number of its users."""
_connecting = threading.Lock()


def connect(address: Address) -> Any:
    """Return this process's pymilvus client for an address. Call `disconnect` when it is no longer needed."""
    try:
        import pymilvus

        if address.is_file:
            import milvus_lite  # noqa: F401
    except ModuleNotFoundError as error:
        package = str(error.name).replace("_", "-")
        raise RetrieverError(
            f"{address} needs the package {package}; install it with: pip install 'flow-retriever[milvus]'"
        ) from error
    for library in ("pymilvus", "milvus_lite", "grpc"):  # our exceptions contain what these libraries would log
        logging.getLogger(library).setLevel(logging.CRITICAL)
    with _connecting:
        client, users = _connections.get(address, (None, 0))
        if client is None:
            client = _connect_with_retry(pymilvus, address)
        _connections[address] = (client, users + 1)
        return client


def disconnect(address: Address) -> None:
    with _connecting:
        client, users = _connections.pop(address, (None, 0))
        if users > 1:
            _connections[address] = (client, users - 1)
        elif client is not None:
            client.close()
            if address.is_file and not any(other.uri == address.uri for other in _connections):
                from milvus_lite.server_manager import server_manager_instance

                server_manager_instance.release_server(address.uri)


def _connect_with_retry(pymilvus: Any, address: Address) -> Any:
    """Connect to Milvus. Retry for CONNECT_SECONDS, because the server may be starting."""
    start, attempts = time.monotonic(), 0
    while True:
        attempts += 1
        try:
            client = pymilvus.MilvusClient(
                address.uri,
                token=address.token,
                db_name=address.database,
                timeout=CONNECT_SECONDS,
                grpc_options=GRPC_OPTIONS,
            )
            if not address.is_file:
                _refuse_old(client, address)
            return client
        except pymilvus.MilvusException as error:
            if address.is_file:
                raise _lite_error(address, error) from error
            elapsed = time.monotonic() - start
            login_failed = any(word in str(error).lower() for word in ("auth", "permission"))
            if elapsed < CONNECT_SECONDS and not login_failed:
                time.sleep(min(1.0, CONNECT_SECONDS - elapsed))
                continue
            advice = (
                f"The server rejected the login. Set {TOKEN} to user:password or an API key"
                if login_failed
                else "Check that the server is running and its port is open"
            )
            raise Unreachable(
                f"cannot connect to Milvus at {address.uri}, tried {attempts} times in {elapsed:.0f} seconds "
                f"({first_line(error)}). {advice}, and run the same command again."
            ) from error


def _refuse_old(client: Any, address: Address) -> None:
    """Refuse a server that lacks what a collection needs, such as search by words in sparse vectors."""
    told = str(client.get_server_version())
    found = re.match(r"v?(\d+)\.(\d+)", told)
    if found and (int(found[1]), int(found[2])) < OLDEST:
        client.close()
        raise RetrieverError(f"Milvus 2.5 or newer is needed, and the server at {address.uri} is {told}. Upgrade it.")


def _lite_error(address: Address, error: Exception) -> RetrieverError:
    """Return the reason why Milvus Lite could not open its folder, because its own error does not contain it."""
    import fcntl

    folder = Path(address.uri)
    with contextlib.suppress(OSError), (folder / "LOCK").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return Locked(
                f"{address} is open in another process, and Milvus Lite allows one at a time. Wait for it, or use a "
                f"server for both (milvus-lite server --data-dir {folder} --host 127.0.0.1, or Milvus itself)."
            )
    if folder.is_file():
        return NotACollection(f"{folder} is a file, but this version of Milvus Lite stores its data in a folder.")
    return Unreachable(f"Milvus Lite cannot open {address}: {first_line(error)}")


def to_error(
    address: Address, call: str, table: str, error: Exception, attempts: int, seconds: float
) -> RetrieverError:
    """Translate an error of pymilvus into an error for users."""
    code, text = getattr(error, "code", None), first_line(error)
    lower = text.lower()
    if code == COLLECTION_NOT_FOUND or "collection not found" in lower or "can't find collection" in lower:
        return TableGone(f"{address}: the table {table} does not exist any more; another process dropped it.")
    # Code 1 is not enough: pymilvus also uses it for invalid arguments, which no retry can fix.
    if code == UNAVAILABLE or any(word in lower for word in UNAVAILABLE_WORDS):
        return Unreachable(
            f"Milvus at {address.uri} stopped answering ({call} of {table}, tried {attempts} times in {seconds:.0f} "
            f"seconds: {text}). What was stored is kept. When the server answers again, run the same command again to "
            "continue."
        )
    return Refused(f"Milvus at {address.uri} refused {call} of {table}: {text}")
