"""What a server is told when it starts, and the limits it keeps to."""

from dataclasses import dataclass
from ipaddress import ip_address

LONGEST_QUERY = 10_000
MOST_QUERIES = 1_000
MOST_HITS = 1_000
MOST_FILTERS = 32
# What may stand in a URL: escaped, each character may take twelve bytes, and 64 KiB are read of it.
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
"""Bytes a second: a body may take as long as this for what has come, and `SECONDS_FOR_BODY` more."""

MOST_UNDER_WAY = 256
MOST_OF_ONE_CLIENT = 32

RETRY_AFTER_SECONDS = 1


@dataclass(frozen=True)
class Settings:
    """Where to listen, who may ask, and what they may do."""

    host: str = "127.0.0.1"
    port: int = 8080
    token: str | None = None
    writable: bool = False
    origins: tuple[str, ...] = ()
    """Web sites whose pages may ask from a browser."""
    encoder: str | None = None
    device: str = "auto"

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only mean this machine."""
    if host.casefold() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
