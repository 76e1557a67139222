"""The collection that a command uses if the user names none: one in the folder `collections` of the current folder.

This module imports click and nothing heavy.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from indexes.places import collections_in, in_milvus

HOME = Path("collections")
"""Where `retriever index` makes collections, below the current folder."""


def place(ctx: click.Context, parameter: click.Parameter, value: str | None) -> "str | Path | None":
    """Parse the address of a collection: a folder, or milvus:URI."""
    return value if value is None or in_milvus(value) else Path(value)


def folders(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Parse one or several folders. Refuse collections in Milvus."""
    for one in value if isinstance(value, tuple) else (value,):
        if in_milvus(one):
            raise click.BadParameter(
                f"{one} is in Milvus, but this command needs a folder. Copy the collection first: retriever copy "
                f"{one} DIR"
            )
    return tuple(map(Path, value)) if isinstance(value, tuple) else Path(value)


def latest(ctx: click.Context, parameter: click.Parameter, value: str | None) -> "str | Path":
    """Parse the address of a collection to read. The default is the one in `collections` that was changed last."""
    if (given := place(ctx, parameter, value)) is not None:
        return given
    collections = _collections()
    if len(collections) > 1:
        click.echo(f"Using {collections[0]}, the last of {len(collections)} collections that was changed.", err=True)
    return collections[0]


def latest_folder(ctx: click.Context, parameter: click.Parameter, value: str | None) -> Path:
    """Parse the folder of a collection to read. The default is that of `latest`."""
    chosen: Path = folders(ctx, parameter, str(latest(ctx, parameter, value)))
    return chosen


def only(ctx: click.Context, parameter: click.Parameter, value: str | None) -> "str | Path":
    """Parse the address of a collection to change. The default is the only one in `collections`."""
    if (given := place(ctx, parameter, value)) is not None:
        return given
    collections = _collections()
    if len(collections) > 1:
        raise click.UsageError(f"say which collection with -i: {', '.join(map(str, sorted(collections)))}.")
    return collections[0]


def every(given: Sequence[Path], named: Sequence[Path] = (), parents: Sequence[Path] = ()) -> tuple[Path, ...]:
    """Return the collections to serve: those in `named`, and those that are given or are inside of given folders.

    The default is all collections in `collections`. A folder without collections counts as one, unless it is among
    `parents`.
    """
    if not given and not named:
        return tuple(sorted(collections_in(HOME) if HOME in parents else _collections()))
    found = (sorted(collections_in(folder)) or [folder] * (folder not in parents) for folder in given)
    unique: dict[Path, Path] = {}  # a folder may be named twice
    for one in (*named, *(one for folder in found for one in folder)):
        unique.setdefault(one.resolve(), one)
    return tuple(unique.values())


def parents(given: Sequence[Path], named: Sequence[Path] = ()) -> tuple[Path, ...]:
    """Return the folders of collections among the given folders, or `collections` if none is given.

    A folder without files is one, too: collections may be put into it later.
    """
    return tuple(one for one in given or ([] if named else [HOME]) if collections_in(one) or _is_empty(one))


def _is_empty(folder: Path) -> bool:
    """Return whether a folder has no files. Volumes may have folders and hidden files from the start."""
    from indexes.folder.generation import GENERATIONS

    if not folder.is_dir() or (folder / GENERATIONS).exists():
        return False
    return not any(one.is_file() for one in folder.iterdir() if not one.name.startswith("."))


def place_for(sources: Sequence[str]) -> Path:
    """Return the collection that `retriever index` makes from a source: it has the name of the source."""
    if len(sources) > 1 or sources[0] == "-":
        what = "several sources" if len(sources) > 1 else "standard input"
        raise click.UsageError(f"name the collection of {what} with -i, e.g. -i {HOME / 'notes'}.")
    path = Path(sources[0]).resolve()
    name = path.name if path.is_dir() else path.name.split(".")[0]
    if not name:
        raise click.UsageError(f"name the collection with -i, e.g. -i {HOME / 'notes'}.")
    _refuse_another_source(HOME / name, sources)
    return HOME / name


def _refuse_another_source(place: Path, sources: Sequence[str]) -> None:
    """Ask for -i if the collection was made from other files, which only have the same name."""
    from indexes.folder.collection import Collection
    from retriever.corpus.listing import resolved
    from retriever.ingest.writer import SOURCES

    if not Collection.exists(place):
        return
    with Collection.open(place) as collection:
        known = collection.store.setting(SOURCES)
    if known and known != resolved(sources):
        raise click.UsageError(
            f"{place} was made from {', '.join(known)}. To add these documents to it, give -i {place}. To make another "
            f"collection, name it with -i, e.g. -i {place}-2."
        )


def _collections() -> list[Path]:
    """Return the collections in `collections`, the last changed first. Raise an error if there is none."""
    if found := collections_in(HOME):
        return found
    raise click.UsageError(
        f"there is no collection in the folder {HOME}. Make one with: retriever index SOURCE. If there is one "
        "elsewhere, name it with -i."
    )
