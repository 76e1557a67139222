"""The address of a collection in Milvus: `milvus:URI` or `milvus:URI#NAME`.

The URI is a path that ends in .db (Milvus Lite, which runs inside this process) or http(s)://host:port of a server.
The login for a server, `user:password` or an API key, is read from the environment, because other users can see the
command line.
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
MAX_NAME_LENGTH = 100


@dataclass(frozen=True)
class Address:
    """A server or file, and the name of the collection there."""

    uri: str
    name: str = DEFAULT_NAME
    database: str = ""
    token: str = field(default="", repr=False)

    @classmethod
    def parse(cls, place: str | Path) -> "Address":
        """Parse `milvus:URI#NAME`."""
        uri, _, name = str(place).removeprefix(MILVUS).partition("#")
        name = name or DEFAULT_NAME
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or len(name) > MAX_NAME_LENGTH:
            raise Misuse(
                f"{place}: {name!r} is not a valid collection name in Milvus. Use ASCII letters, digits and _, at "
                f"most {MAX_NAME_LENGTH} characters, and no digit at the start."
            )
        if re.match(r"https?://[^/]*@", uri):
            raise Misuse(f"the address must not contain a login, because it is displayed; set {TOKEN}=user:password.")
        if re.fullmatch(r"https?://[^/\s]+/?", uri):
            return cls(uri.rstrip("/"), name, os.environ.get(DATABASE, ""), os.environ.get(TOKEN, ""))
        if uri.endswith(".db") and "://" not in uri:
            return cls(str(Path(uri).expanduser().absolute()), name)
        raise Misuse(
            f"{place} is not a valid Milvus address. Write milvus:FILE.db for Milvus Lite on this machine, or "
            f"milvus:http://HOST:19530 for a server. Append #NAME if the collection is not called {DEFAULT_NAME}."
        )

    @property
    def is_file(self) -> bool:
        """True for Milvus Lite, which stores the data on this machine."""
        return "://" not in self.uri

    def __str__(self) -> str:
        return f"{MILVUS}{self.uri}" + (f"#{self.name}" if self.name != DEFAULT_NAME else "")
