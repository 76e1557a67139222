"""The folder of a benchmark's inputs and stores while it runs."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

WORK = "work"


@contextmanager
def work_folder(out: Path | None) -> Iterator[Path]:
    """A folder in --out, removed at the end, so a killed run finds its files; without --out a temporary folder."""
    if out is None:
        with TemporaryDirectory() as name:
            yield Path(name)
        return
    folder = out / WORK
    folder.mkdir(parents=True, exist_ok=True)
    yield folder
    shutil.rmtree(folder)
