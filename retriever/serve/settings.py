"""The settings of a server, and the limits on requests."""

from dataclasses import dataclass
from ipaddress import ip_address

LONGEST_QUERY = 10_000
MOST_QUERIES = 1_000
MOST_HITS = 1_000
MOST_FILTERS = 32
# Filters and ids may appear in a URL. There, an escaped character has up to twelve bytes. The URL must fit into
# LARGEST_HEAD bytes.
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
"""Bytes per second. A body must arrive in the time that it needs at this rate plus `SECONDS_FOR_BODY`."""

MOST_REQUESTS = 256
MOST_REQUESTS_PER_CLIENT = 32


@dataclass(frozen=True)
class Settings:
    """The address of a server, who may connect to it, what clients may do, and how the encoder runs."""

    host: str = "127.0.0.1"
    port: int = 8080
    token: str | None = None
    writable: bool = False
    origins: tuple[str, ...] = ()
    """Origins, such as https://example.org, whose pages may use the API from a browser."""
    encoder: str | None = None
    device: str = "auto"

    @property
    def loopback(self) -> bool:
        """True if only this machine can reach the server."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is a loopback one, so that only this machine can reach it."""
    if host.casefold() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
