"""Connect to the Ray cluster of a run: an existing cluster, or a temporary one on this machine.

Ray is configured to print nothing, to send no usage statistics and to leave signal handlers alone. If the head
node of the cluster disappeared, Ray would end this process after a minute. `Cluster` therefore watches the head node
and raises an error instead.
"""

import atexit
import contextlib
import os
import secrets
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from retriever.encoder.runtimes.onnx_runtime import cores
from retriever.errors import Misuse, RetrieverError, first_line
from retriever.ingest.engines.ray.probe import CLIENT, Probe, host_and_port, refusal, refuse_unreachable

# A head node may be restarted. If it does not answer for this time, the cluster is considered lost.
HEAD_GONE_SECONDS = 30
CHECK_SECONDS = 5
SHUTDOWN_SECONDS = 20
TOKEN_FILE = Path("~/.ray/auth_token")
# Memory for the objects that processes exchange: blocks of vectors and chunks of documents. Ray writes further
# objects to disk.
OBJECT_STORE_BYTES = 512 << 20
# A socket path may have at most 107 characters, and Ray appends most of them to this folder.
MAX_FOLDER_LENGTH = 40
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Otherwise Ray replaces Python's print in this process.
    "RAY_TQDM_PATCH_PRINT": "0",
    # Otherwise Ray ends this process when the head node has been gone for a minute.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "1800",
}
STORED = "What was stored is kept. Run the same command again to continue."


class ClusterLost(RetrieverError):
    """The cluster disappeared during a run."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the Ray cluster is gone: {reason}. {STORED}")


class Cluster:
    """A connection to Ray, as a context manager. On exit, it stops the cluster if it started the cluster."""

    def __init__(self, address: str | None) -> None:
        self.address = address
        self.ray: Any = None
        self.client = bool(address and address.startswith(CLIENT))
        """True if this process is outside the cluster. The cluster then cannot read the files of this process."""
        self._connected = False
        self._folder: str | None = None
        self._head: tuple[str, int] | None = None
        self._checked = self._missing_since = 0.0

    def __enter__(self) -> Self:
        with _environment(self._variables()):
            ray = self.ray = import_module("ray")
            if ray.is_initialized():  # the caller has connected to Ray and will shut it down
                if self.address is not None:
                    raise Misuse(
                        f"this process is connected to a Ray cluster already and cannot also connect to "
                        f"{self.address}: call ray.shutdown() first, or omit the address to use the current cluster."
                    )
                self.client = bool(ray.util.client.ray.is_connected())
                self._head = None if self.client else self._find_head()
                return self
            with _same_signal_handlers():
                self._connected = True
                try:
                    self._connect()
                    self._head = self._find_head()
                except BaseException:
                    self.close()
                    raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _variables(self) -> Mapping[str, str]:
        if "RAY_AUTH_MODE" in os.environ:
            return ENVIRONMENT
        if self.address is None:
            # Ray listens on every interface; a secret token keeps other users out.
            return ENVIRONMENT | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": process_token()}
        # Ray finds a token without this variable, but its client does not.
        has_token = any(map(os.environ.get, ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")))
        if self.client and (has_token or TOKEN_FILE.expanduser().is_file()):
            return ENVIRONMENT | {"RAY_AUTH_MODE": "token"}
        return ENVIRONMENT

    def _connect(self) -> None:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if self.address is None:
            if len(tempfile.gettempdir()) <= MAX_FOLDER_LENGTH:
                options["_temp_dir"] = self._folder = tempfile.mkdtemp(prefix="retriever-ray-")
            options |= {"num_cpus": cores(), "include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
            self.ray.init(address="local", **options)
            return
        refuse_unreachable(self.address)
        try:
            self.ray.init(address=self.address, **options)
        except Exception as error:  # Ray raises many classes
            raise refusal(self.address, Probe(type(error).__name__, str(error))) from error

    def close(self) -> None:
        """Disconnect from the cluster, and stop it if this object started it."""
        if self._connected:
            self._connected = False
            with _same_signal_handlers():
                # If the cluster is gone, Ray's shutdown waits for the cluster to come back, so the wait is limited.
                thread = threading.Thread(target=self._shutdown, daemon=True)
                thread.start()
                thread.join(SHUTDOWN_SECONDS)
                atexit.unregister(self.ray.shutdown)
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _shutdown(self) -> None:
        with contextlib.suppress(Exception):
            self.ray.shutdown()

    def resources(self) -> dict[str, float]:
        """Return the total CPUs, GPUs and other resources of all nodes."""
        return dict(self.ray.cluster_resources())

    # ---- the head ----------------------------------------------------------------------------------------

    def _find_head(self) -> tuple[str, int] | None:
        if self.client:
            return host_and_port(str(self.address))
        with contextlib.suppress(Exception):
            return host_and_port(str(self.ray.get_runtime_context().gcs_address))
        return None

    def check(self) -> None:
        """Raise `ClusterLost` if the head node has not answered for HEAD_GONE_SECONDS. Call this often."""
        if time.monotonic() >= self._checked + CHECK_SECONDS:
            self.head_answers()

    def head_answers(self) -> bool:
        """Return whether the head node answers. If it does not, do not call Ray, because Ray would wait forever.

        Raise `ClusterLost` if the head node has not answered for HEAD_GONE_SECONDS.
        """
        if self._head is None:
            return True
        now = self._checked = time.monotonic()
        try:
            with socket.create_connection(self._head, timeout=CHECK_SECONDS):
                self._missing_since = 0.0
                return True
        except OSError as error:
            self._missing_since = self._missing_since or now
            if time.monotonic() - self._missing_since >= HEAD_GONE_SECONDS:
                host, port = self._head
                reason = error.strerror or first_line(error)
                raise ClusterLost(
                    f"its head at {host}:{port} has not answered for {HEAD_GONE_SECONDS} s ({reason})"
                ) from error
            return False

    def wait_for_head(self) -> None:
        """Wait until the head node answers. Raise `ClusterLost` after HEAD_GONE_SECONDS."""
        while not self.head_answers():
            time.sleep(0.5)

    def kill(self, actor: Any) -> None:
        """Kill an actor, if the actor and the cluster still exist."""
        with contextlib.suppress(Exception):
            if self.head_answers():
                self.ray.kill(actor)


@cache
def process_token() -> str:
    """Return one token for all clusters that this process starts, because Ray caches the first token."""
    return secrets.token_hex(32)


@contextlib.contextmanager
def _same_signal_handlers() -> Iterator[None]:
    """Restore the signal handlers at the end of the block.

    Ray installs a handler for SIGTERM that would end the process without cleanup.
    """
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        numbers = (getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP"))
        handlers = {number: signal.getsignal(number) for number in numbers if number is not None}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set the variables that are not set yet, for Ray and its processes. Remove them at the end of the block."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
