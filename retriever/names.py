"""What collections and encoders are called by those who do not see the folders."""

from collections.abc import Iterable
from pathlib import Path, PurePosixPath, PureWindowsPath

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


def public_name(name: str) -> str:
    """An encoder's name for others: of a path only the last part, for where a model lies is not their business."""
    for kind in (PurePosixPath, PureWindowsPath):
        if kind(name).is_absolute():
            return kind(name).name or name
    return name
