"""The Ray cluster a run works on: one that somebody started, or one on this machine that lives as long as the run.

Ray is asked to keep quiet, to send no usage statistics and to leave signals alone. Whether an address answers is tried
in a process of its own first: Ray waits minutes for what does not answer, deaf to Ctrl-C. Later this process watches
whether the cluster's head is still there, because Ray by itself would end the process a minute after it is gone.
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
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from retriever.encoder.runtimes.onnx_runtime import cores
from retriever.errors import Misuse, RetrieverError, first_line
from retriever.ingest.engines.ray_probe import CONNECT_SECONDS, Probed, probed

CLIENT = "ray://"
AUTO = "auto"
TCP_SECONDS = 10
# The head of a cluster may be started again; when it has been away so long, it is taken for gone.
HEAD_GONE_SECONDS = 30
WATCHED_EVERY = 5
LEAVE_SECONDS = 20
TOKEN_FILE = Path("~/.ray/auth_token")
# What is on its way between processes: blocks of vectors and chunks of documents. More than that waits on disk.
OBJECT_STORE_BYTES = 512 << 20
# A socket's path may have 107 characters, and Ray's own part of it takes most of them.
LONGEST_FOLDER = 40
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Else it puts its own print in the place of Python's, in this process.
    "RAY_TQDM_PATCH_PRINT": "0",
    # Else Ray ends this process when it misses the head for a minute; `Cluster.check` does better.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "1800",
}
STAYS = "What was stored stays; the same command goes on from there."


class ClusterLost(RetrieverError):
    """The cluster went away in the middle of a run."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the Ray cluster is gone: {reason}. {STAYS}")


def check(address: str | None) -> None:
    """Refuse an address that can be none, and a Python without Ray."""
    if find_spec("ray") is None:
        raise RetrieverError("--engine ray needs Ray, which is not installed: pip install 'flow-retriever[ray]'")
    if address is None or address == AUTO:
        return
    if address.startswith(CLIENT) and find_spec("grpc") is None:
        raise RetrieverError(f"--address {address} needs Ray's client: pip install 'flow-retriever[ray]'")
    _host_and_port(address)


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix(CLIENT).rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536 or "/" in host:
        raise Misuse(f"--address must be auto, HOST:PORT or ray://HOST:PORT, not {address!r}.")
    return host.strip("[]"), int(port)


class Cluster:
    """A connection to Ray, as a context; what it started it stops."""

    def __init__(self, address: str | None) -> None:
        self.address = address
        self.ray: Any = None
        self.client = bool(address and address.startswith(CLIENT))
        """Whether this process is outside of the cluster, so that nothing there sees its files."""
        self._ours = False
        self._folder: str | None = None
        self._head: tuple[str, int] | None = None
        self._watched = self._missed_since = 0.0

    def __enter__(self) -> Self:
        with _environment(self._settings()):
            ray = self.ray = import_module("ray")
            if ray.is_initialized():  # the caller's own, who looks after it
                if self.address is not None:
                    raise Misuse(
                        f"this process is connected to a Ray cluster already, and cannot be to {self.address} too: "
                        "call ray.shutdown() first, or give no address to use the one there is."
                    )
                self.client = bool(ray.util.client.ray.is_connected())
                self._head = None if self.client else self._head_of()
                return self
            handlers = _handlers()
            self._ours = True
            try:
                self._connect()
                self._head = self._head_of()
            except BaseException:
                self.close()
                raise
            finally:
                for number, handler in handlers.items():
                    signal.signal(number, handler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _settings(self) -> Mapping[str, str]:
        if "RAY_AUTH_MODE" in os.environ:
            return QUIET
        if self.client and _has_token():  # elsewhere Ray finds it by itself
            return QUIET | {"RAY_AUTH_MODE": "token"}
        if self.address is not None:
            return QUIET
        # Ray listens on every interface; a token of this process alone keeps all others out.
        return QUIET | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": own_token()}

    def _connect(self) -> None:
        quietly: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if self.address is None:
            folder = tempfile.gettempdir()
            if len(folder) <= LONGEST_FOLDER:
                self._folder = tempfile.mkdtemp(prefix="retriever-ray-")
                quietly["_temp_dir"] = self._folder
            self.ray.init(
                address="local",
                num_cpus=cores(),
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                **quietly,
            )
            return
        refuse_unanswered(self.address)
        try:
            self.ray.init(address=self.address, **quietly)
        except Exception as error:  # Ray raises many classes
            raise _refusal(self.address, Probed(type(error).__name__, str(error))) from error

    def close(self) -> None:
        """Leave the cluster, or end the one that was started here."""
        if self._ours:
            self._ours = False
            handlers = _handlers()
            # Of a cluster that is gone Ray would take leave for as long as it hopes for it to come back.
            leaving = threading.Thread(target=self._leave, daemon=True)
            leaving.start()
            leaving.join(LEAVE_SECONDS)
            atexit.unregister(self.ray.shutdown)
            for number, handler in handlers.items():
                signal.signal(number, handler)
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _leave(self) -> None:
        with contextlib.suppress(Exception):
            self.ray.shutdown()

    # ---- what it has -------------------------------------------------------------------------------------

    def resources(self) -> dict[str, float]:
        """CPUs, GPUs and the rest, of all nodes together."""
        return dict(self.ray.cluster_resources())

    def _head_of(self) -> tuple[str, int] | None:
        if self.client:
            return _host_and_port(str(self.address))
        with contextlib.suppress(Exception):
            return _host_and_port(str(self.ray.get_runtime_context().gcs_address))
        return None

    def check(self) -> None:
        """Raise `ClusterLost` once the head has not answered for a while; to be called often."""
        if time.monotonic() >= self._watched + WATCHED_EVERY:
            self.answers()

    def answers(self) -> bool:
        """Whether the head answers now. Ray must be asked for nothing while it does not: it would wait, and not end."""
        if self._head is None:
            return True
        now = self._watched = time.monotonic()
        try:
            with socket.create_connection(self._head, timeout=WATCHED_EVERY):
                self._missed_since = 0.0
                return True
        except OSError as error:
            self._missed_since = self._missed_since or now
            if time.monotonic() - self._missed_since >= HEAD_GONE_SECONDS:
                host, port = self._head
                reason = error.strerror or first_line(error)
                raise ClusterLost(
                    f"its head at {host}:{port} has not answered for {HEAD_GONE_SECONDS} s ({reason})"
                ) from error
            return False

    def wait_for_head(self) -> None:
        """Return once the head answers; raise `ClusterLost` where it does not for too long."""
        while not self.answers():
            time.sleep(0.5)

    def kill(self, actor: Any) -> None:
        """End a process of the cluster, if it and the cluster are still there."""
        with contextlib.suppress(Exception):
            if self.answers():
                self.ray.kill(actor)


def refuse_unanswered(address: str) -> None:
    """Refuse an address where no cluster answers that this process could use, and say why not."""
    if address != AUTO:
        host, port = _host_and_port(address)
        try:
            with socket.create_connection((host, port), timeout=TCP_SECONDS):
                pass
        except OSError as error:
            reason = f"not reached within {TCP_SECONDS} s" if isinstance(error, TimeoutError) else str(error)
            raise _unanswered(address, f"a TCP connection to {host}, port {port}: {reason}") from error
    found = probed(address)
    if found.error:
        raise _refusal(address, found)


def _refusal(address: str, found: Probed) -> RetrieverError:
    text = found.message
    if "ersion mismatch" in text or "different version" in text.lower():
        said = " ".join(text.split())
        return RetrieverError(
            f"the Ray cluster at {address} runs other versions than this process, and Ray needs the same of Ray and of "
            f"Python on both sides: {said[:600]}"
        )
    if "uthenticat" in text or "UNAUTHENTICATED" in text or "token" in text.lower():
        return RetrieverError(
            f"the Ray cluster at {address} wants its token: {first_line(RuntimeError(text))} Put the one of its head "
            "node (ray get-auth-token) into ~/.ray/auth_token, or set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN."
        )
    if address == AUTO and found.error == "ConnectionError":
        return RetrieverError(
            "--address auto: no Ray cluster runs on this machine (looked for RAY_ADDRESS and for what `ray start` "
            "leaves in /tmp/ray). Start one with: ray start --head, name one with --address HOST:PORT, or leave "
            "--address away for one that lives as long as this run."
        )
    return _unanswered(address, f"a connection by Ray: {found.error}: {first_line(RuntimeError(text))}")


def _unanswered(address: str, tried: str) -> RetrieverError:
    return RetrieverError(
        f"no Ray cluster answers at {address}. Tried, for up to {TCP_SECONDS} s and {CONNECT_SECONDS} s: {tried}. See "
        "whether it runs there (ray status) and whether the port is open from here; HOST:PORT is of `ray start --head` "
        "(6379) and needs a Ray node on this machine, ray://HOST:PORT is of its client server (10001) and needs none. "
        "A cluster with a token answers only who has it, in ~/.ray/auth_token or RAY_AUTH_TOKEN. Nothing was indexed."
    )


@cache
def own_token() -> str:
    """One for all clusters that this process begins: Ray remembers the first it has seen."""
    return secrets.token_hex(32)


def _has_token() -> bool:
    given = any(os.environ.get(name) for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    return given or TOKEN_FILE.expanduser().is_file()


def _handlers() -> dict[int, Any]:
    """The signal handlers of now; Ray sets one of its own for SIGTERM, which would end the process unclean."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    numbers = (getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP"))
    return {number: signal.getsignal(number) for number in numbers if number is not None}


@contextlib.contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    """These variables while Ray is imported and begun, for it and for the processes it starts."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update({name: value for name, value in settings.items() if before[name] is None})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
