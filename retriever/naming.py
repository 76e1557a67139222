"""What collections are called where there are several: each goes by its folder's name."""

from collections.abc import Iterable
from pathlib import Path

from retriever.errors import Misuse


def named_folders(folders: Iterable[Path]) -> dict[str, Path]:
    """The folders by their names, which no two may share."""
    named: dict[str, Path] = {}
    for folder in folders:
        name = folder.resolve().name
        if name in named:
            raise Misuse(
                f"{named[name]} and {folder} would both be called {name!r}, for a collection goes by the name of its "
                "folder; rename one of them, or give it to another server."
            )
        named[name] = folder
    return named
