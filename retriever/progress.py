"""How the library reports the progress of a long operation; the caller decides how to show it."""

from typing import Protocol


class Progress(Protocol):
    """A callback for progress.

    It is called often, with the name of the stage, the number of items done, and their total if that is known. The
    stages of an ingestion add a detail in words.
    """

    def __call__(self, stage: str, done: int, total: int | None, detail: str = "") -> None: ...


def silent(stage: str, done: int, total: int | None, detail: str = "") -> None:
    """Show nothing."""
