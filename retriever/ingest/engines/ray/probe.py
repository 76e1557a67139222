"""Check the address of a Ray cluster before this process connects to it.

If an address does not answer, Ray waits for minutes and ignores Ctrl-C. A separate process therefore tries first:

    python -m retriever.ingest.engines.ray.probe ADDRESS

That process connects to the cluster, prints the result as JSON, and ends.
"""

import json
import socket
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from retriever.errors import Misuse, RetrieverError, first_line

CLIENT = "ray://"
AUTO = "auto"
TCP_SECONDS = 10
# With ray://, the cluster starts a process for each client.
CONNECT_SECONDS = 60
MARK = "probe: "


class Probe(NamedTuple):
    """The class and the message of the error that Ray raised on connecting. Both are empty on success."""

    error: str = ""
    message: str = ""


def check(address: str | None) -> None:
    """Raise an error if the address is invalid or if Ray is not installed."""
    if find_spec("ray") is None:
        raise RetrieverError("`engine=\"ray\"` needs Ray, which is not installed: pip install 'flow-retriever[ray]'")
    if address is None or address == AUTO:
        return
    if address.startswith(CLIENT) and find_spec("grpc") is None:
        raise RetrieverError(f"the address {address} needs Ray's client: pip install 'flow-retriever[ray]'")
    host_and_port(address)


def host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix(CLIENT).rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536 or "/" in host:
        raise Misuse(f"`address` must be auto, HOST:PORT or ray://HOST:PORT, not {address!r}.")
    return host.strip("[]"), int(port)


def refuse_unreachable(address: str) -> None:
    """Raise an error with the reason if no usable cluster answers at the address."""
    if address != AUTO:
        host, port = host_and_port(address)
        try:
            with socket.create_connection((host, port), timeout=TCP_SECONDS):
                pass
        except OSError as error:
            reason = f"no answer within {TCP_SECONDS} s" if isinstance(error, TimeoutError) else str(error)
            raise _unreachable(address, f"a TCP connection to {host}, port {port}: {reason}") from error
    probe = _run_probe(address)
    if probe.error:
        raise refusal(address, probe)


def _run_probe(address: str) -> Probe:
    command = [sys.executable, "-m", "retriever.ingest.engines.ray.probe", address]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=CONNECT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return Probe("Timeout", f"no answer that Ray understands within {CONNECT_SECONDS} s.")
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            return Probe(**json.loads(line.removeprefix(MARK)))
    lines = done.stderr.strip().splitlines()
    return Probe("NoAnswer", lines[-1] if lines else f"the probe ended with exit code {done.returncode}.")


def refusal(address: str, probe: Probe) -> RetrieverError:
    """Return the error to show to the user after a failed connection."""
    text = probe.message
    if "ersion mismatch" in text or "different version" in text.lower():
        return RetrieverError(
            f"the Ray cluster at {address} runs different versions from this process, but Ray needs the same versions "
            "of "
            f"Ray and Python on both sides: {' '.join(text.split())[:600]}"
        )
    if "uthenticat" in text or "UNAUTHENTICATED" in text or "token" in text.lower():
        return RetrieverError(
            f"the Ray cluster at {address} requires a token: {first_line(RuntimeError(text))} Put the token of its "
            "head node (ray get-auth-token) into ~/.ray/auth_token, or set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN."
        )
    if address == AUTO and probe.error == "ConnectionError":
        return RetrieverError(
            "`address=auto`: no Ray cluster runs on this machine (neither RAY_ADDRESS nor /tmp/ray names one). Start "
            "one with: ray start --head, set `address` to HOST:PORT, or omit `address` to use a temporary cluster."
        )
    return _unreachable(address, f"a connection by Ray: {probe.error}: {first_line(RuntimeError(text))}")


def _unreachable(address: str, attempt: str) -> RetrieverError:
    return RetrieverError(
        f"no Ray cluster answers at {address}. Tried {attempt}. The limits are {TCP_SECONDS} s for TCP and "
        f"{CONNECT_SECONDS} s for Ray. Nothing was indexed. Check that the cluster is running (ray status) and that "
        "its port can be reached from this machine. HOST:PORT is the port of `ray start --head` (6379); it works only "
        "if a Ray node runs on this machine. ray://HOST:PORT is the port of the client server (10001); it works "
        "without a Ray node on this machine. If the cluster requires a token, put it into "
        "~/.ray/auth_token or RAY_AUTH_TOKEN."
    )


def main(address: str) -> None:
    ray: Any = import_module("ray")
    probe = Probe()
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        ray.cluster_resources()
    except BaseException as error:
        probe = Probe(type(error).__name__, str(error))
    print(MARK + json.dumps(probe._asdict()), flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
