"""The settings of a server, and the limits on requests."""

from dataclasses import dataclass
from ipaddress import ip_address

LONGEST_QUERY = 10_000
LONGEST_INPUT = 100_000
"""Characters of a text to embed. The encoder's limit, in tokens, is lower."""
MOST_INPUTS = 2_048
MOST_QUERIES = 1_000
MOST_HITS = 1_000
MOST_HITS_OF_BATCH = 20_000
"""Maximum number of queries times `k` in one request."""
MOST_HIGHLIGHTED = 100
"""Maximum `k` with highlights. Every sentence of a highlighted passage is encoded."""
MOST_HIGHLIGHTED_OF_BATCH = 1_000
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
LARGEST_EMBEDDINGS_BODY = 4 << 20
LARGEST_DOCUMENTS_BODY = 64 << 20
SMALL_BODY = 1 << 20
MOST_LARGE_BODIES = 2
"""Maximum number of bodies above SMALL_BODY that a route parses and answers at a time. The others wait."""
MOST_BODY_BYTES = 256 << 20
"""Maximum size of all bodies together that the server holds."""
SECONDS_FOR_BODY = 30.0
SLOWEST_BODY = 4 << 10
"""Bytes per second. A body must arrive in the time that it needs at this rate plus `SECONDS_FOR_BODY`."""

MOST_REQUESTS = 256
MOST_REQUESTS_PER_CLIENT = 32

SECONDS_TO_FINISH = 30
"""Time for the running requests after a signal to stop. Then they are cancelled."""
SECONDS_TO_CLOSE = 5
"""Time for closing the collections after that. Then the process ends in any case."""


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
    log_level: str = "warning"
    """The least serious records that are logged. Requests have the level "info"."""
    log_queries: bool = False
    """Whether the log of requests has the texts of queries."""

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
