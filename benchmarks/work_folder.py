"""Where a benchmark's inputs and stores lie while it runs."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

WORK = "work"


@contextmanager
def work_folder(out: Path | None) -> Iterator[Path]:
    """In --out, so that a killed run finds what it made again, and gone at the end; without --out somewhere else."""
    if out is None:
        with TemporaryDirectory() as name:
            yield Path(name)
        return
    folder = out / WORK
    folder.mkdir(parents=True, exist_ok=True)
    yield folder
    shutil.rmtree(folder)
