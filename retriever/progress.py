"""How far a long job is: what the library reports, whoever shows it."""

from typing import Protocol


class Progress(Protocol):
    """Called often with the name of the stage, what is done and, where known, how much there is.

    The stages of ingestion also say in words what `done` stands for.
    """

    def __call__(self, stage: str, done: int, total: int | None, detail: str = "") -> None: ...


def silent(stage: str, done: int, total: int | None, detail: str = "") -> None:
    """Show nothing."""
