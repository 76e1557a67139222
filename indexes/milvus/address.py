"""Where a collection in Milvus lies: `milvus:URI` or `milvus:URI#NAME`.

The URI is a file that ends in .db (Milvus Lite, inside of this process) or http(s)://host:port of a server. What a
server asks for to log in, `user:password` or an API key, comes from the environment: it would be seen on the command
line.
"""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from indexes.errors import Misuse

MILVUS = "milvus:"
DEFAULT_NAME = "retriever"
TOKEN = "MILVUS_TOKEN"
DATABASE = "MILVUS_DATABASE"
LONGEST_NAME = 100


@dataclass(frozen=True)
class Address:
    """A server or file, and the name of the collection there."""

    uri: str
    name: str = DEFAULT_NAME
    database: str = ""
    token: str = field(default="", repr=False)

    @classmethod
    def parse(cls, place: str | Path) -> "Address":
        """The address that `milvus:URI#NAME` stands for."""
        uri, _, name = str(place).removeprefix(MILVUS).partition("#")
        name = name or DEFAULT_NAME
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or len(name) > LONGEST_NAME:
            raise Misuse(
                f"{place}: {name!r} is no name of a Milvus collection; it has letters of ASCII, digits and _, and at "
                f"most {LONGEST_NAME} of them."
            )
        if re.match(r"https?://[^/]*@", uri):
            raise Misuse(f"a login does not belong into the address, which is shown; set {TOKEN} to user:password.")
        if re.fullmatch(r"https?://[^/\s]+/?", uri):
            return cls(uri.rstrip("/"), name, os.environ.get(DATABASE, ""), os.environ.get(TOKEN, ""))
        if uri.endswith(".db") and "://" not in uri:
            return cls(str(Path(uri).expanduser().absolute()), name)
        raise Misuse(
            f"{place} is no place in Milvus; write milvus:FILE.db for Milvus Lite on this machine, or "
            "milvus:http://HOST:19530 for a server, each with #NAME behind it where it is not to be called "
            f"{DEFAULT_NAME}."
        )

    @property
    def is_file(self) -> bool:
        """Whether Milvus Lite holds it, in a file of this machine."""
        return "://" not in self.uri

    def __str__(self) -> str:
        return f"{MILVUS}{self.uri}" + (f"#{self.name}" if self.name != DEFAULT_NAME else "")
