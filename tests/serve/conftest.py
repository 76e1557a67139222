"""Collections to serve, and a server over them that most tests share."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from serving import DOCUMENTS, Running, running

from retriever.retriever import Retriever


@pytest.fixture(scope="session")
def made_collection(tiny_bert: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "pets"
    Retriever.build(DOCUMENTS, folder, encoder=tiny_bert, transform="whiten", precision="fp32").close()
    return folder


@pytest.fixture
def fresh(made_collection: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A copy of the collection under another name, which a test may change."""

    def copy(name: str = "pets") -> Path:
        return Path(shutil.copytree(made_collection, tmp_path / name))

    return copy


@pytest.fixture(scope="session")
def server(made_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Two collections, read only, no token."""
    others = Path(shutil.copytree(made_collection, tmp_path_factory.mktemp("served") / "others"))
    with running([made_collection, others]) as found:
        yield found
