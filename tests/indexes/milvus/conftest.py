"""Places for collections: a folder, and Milvus Lite."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

MISSING = ("pymilvus", "milvus_lite")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without the extra `milvus` there is nothing to test here."""
    from importlib.util import find_spec

    if missing := [name for name in MISSING if find_spec(name) is None]:
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=f"{', '.join(missing)} not installed: the extra `milvus`"))


Place = Callable[[str], str]


@pytest.fixture(params=["folder", "milvus lite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Where a collection of this name lies, in one of the two kinds of places."""
    if request.param == "folder":
        yield lambda name: str(tmp_path / name)
    else:
        yield lambda name: f"milvus:{tmp_path / 'm.db'}#{name}"


@pytest.fixture
def lite(tmp_path: Path) -> str:
    """A place in Milvus Lite."""
    return f"milvus:{tmp_path / 'm.db'}"
