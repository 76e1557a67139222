"""The callback by which the library reports the progress of a long operation. The caller decides how to show it."""

from typing import Protocol


class Progress(Protocol):
    """A callback for progress.

    The library calls it often. `stage` is the name of the stage, `done` the number of finished items, and `total` the
    number of all items, or None if that is unknown. During an ingestion, `detail` is a short text to show as well.
    """

    def __call__(self, stage: str, done: int, total: int | None, detail: str = "") -> None: ...


def silent(stage: str, done: int, total: int | None, detail: str = "") -> None:
    """Ignore the progress."""
