"""Writers that die between two changes of Milvus, at any of them that is asked for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from indexes.milvus.client import Client
from indexes.milvus.state import State

CHANGING = {"upsert", "delete", "create_collection", "drop_collection", "create_index"}
"""What is asked of Milvus that changes something: between two of these one moment is as good as another."""


class Death(BaseException):
    """The end of a writer; whatever it still tries, nothing of it reaches Milvus."""


@contextmanager
def dying_at(change: int) -> Iterator[list[str]]:
    """While this lasts, who writes dies right before its change of this number; gives the changes that were made."""
    made: list[str] = []
    called = Client._call

    def call(self: Client, name: str, table: str, **given: Any) -> Any:
        if name in CHANGING:
            if len(made) >= change:
                raise Death
            made.append(f"{name} {table}")
        return called(self, name, table, **given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "_call", call)
        yield made


def changes_of(job: Callable[[], Any]) -> list[str]:
    """The changes that a job makes when it is not disturbed."""
    with dying_at(1_000_000) as made:
        job()
    return made


@contextmanager
def died() -> Iterator[None]:
    """Within, who holds the lock is taken for dead, as a process is that was killed on this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(State, "_is_dead", staticmethod(lambda holder: True))
        yield
