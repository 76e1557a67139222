"""Files and folders that are there whole or not at all, also when power fails."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from indexes.folder.generation import sync


@contextlib.contextmanager
def atomic_write(target: Path) -> Iterator[Path]:
    """A path beside the target to write a file or folder to, which takes the target's name once all went well."""
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        yield aside
        _sync_all(aside)
        if target.is_dir():
            target.rmdir()  # an empty folder may be replaced; one that is not is never lost
        aside.replace(target)
        sync(target.parent)
    except OSError as error:
        if error.filename is not None and Path(error.filename) == aside:  # which nobody asked for
            error.filename = str(target)
        raise
    finally:
        if aside.is_dir():
            shutil.rmtree(aside)
        else:
            aside.unlink(missing_ok=True)


def _sync_all(path: Path) -> None:
    """Force a file to disk, or a folder with everything in it."""
    for parent, _, names in os.walk(path, topdown=False):
        for name in names:
            sync(Path(parent, name))
        sync(Path(parent))
    if path.is_file():
        sync(path)
