"""Collections to be damaged, made once."""

import os
from pathlib import Path

import pytest
from damaged_collection import make

TIMES = int(os.environ.get("RETRIEVER_TORTURE", "1"))


@pytest.fixture(scope="session")
def times() -> int:
    """How many times the quick number of cases is to be tried: RETRIEVER_TORTURE."""
    return TIMES


@pytest.fixture(scope="session")
def collection(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Path:
    """With everything in the database itself."""
    return make(tmp_path_factory.mktemp("damage") / "c", tiny_bert, with_log=False)


@pytest.fixture(scope="session")
def collection_with_log(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Path:
    """With the last transactions in the write-ahead log."""
    return make(tmp_path_factory.mktemp("damage") / "c", tiny_bert, with_log=True)


@pytest.fixture(scope="session")
def collection_with_log_and_index(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Path:
    """The same with what tells how much of the log was acknowledged."""
    return make(tmp_path_factory.mktemp("damage") / "c", tiny_bert, with_log=True, with_index=True)
