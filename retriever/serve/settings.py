"""Settings of a server, whether it is ready, and the limits on what clients may send."""

from dataclasses import dataclass
from ipaddress import ip_address

LONGEST_QUERY = 10_000
MOST_QUERIES = 1_000
MOST_HITS = 1_000
MOST_FILTERS = 32
# These may appear in a URL: escaped, a character takes up to twelve bytes, and a head may have LARGEST_HEAD bytes.
LONGEST_FILTER = 4_000
LONGEST_ID = 4_000
LONGEST_NAME = 255
MOST_DOCUMENTS = 10_000

LARGEST_HEAD = 64 << 10
SECONDS_FOR_HEAD = 30.0

LARGEST_BODY = 1 << 20
LARGEST_DOCUMENTS_BODY = 64 << 20
SECONDS_FOR_BODY = 30.0
SLOWEST_BODY = 4 << 10
"""Bytes per second. A body may take the time its bytes need at this rate, and `SECONDS_FOR_BODY` more."""

MOST_REQUESTS = 256
MOST_REQUESTS_PER_CLIENT = 32


@dataclass(frozen=True)
class Settings:
    """The address to listen on, who may connect, and what clients may do."""

    host: str = "127.0.0.1"
    port: int = 8080
    token: str | None = None
    writable: bool = False
    origins: tuple[str, ...] = ()
    """Web sites whose pages may send requests from a browser."""
    encoder: str | None = None
    device: str = "auto"

    @property
    def loopback(self) -> bool:
        """True if only this machine can reach the server."""
        return is_loopback(self.host)


LOADING = "the collections are being loaded"


class Readiness:
    """Whether requests are answered: not while collections are loading, nor during shutdown."""

    def __init__(self) -> None:
        self.problem: str | None = LOADING

    def loaded(self) -> None:
        if self.problem == LOADING:
            self.problem = None

    def drain(self) -> None:
        self.problem = "the server is shutting down"


def is_loopback(host: str) -> bool:
    """Tell whether a host name or address can only mean this machine."""
    if host.casefold() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
