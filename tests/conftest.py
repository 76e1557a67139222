"""Shared by all tests: a tiny real BERT, some text, the command line, and the benchmark data if present."""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # before anything can import ONNX Runtime, here or in a subprocess

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from samples import PETS, Run, invoker, make_bert, write_jsonl

TESTS = Path(__file__).parent
HEAVY = [
    TESTS / name
    for name in (
        "hostile",
        "indexes/milvus",
        "ingest/engines",
        "integrations",
        "mcp",
        "packaging",
        "recovery",
        "serve",
        "torture",
    )
]
"""Folders in which every test is heavy. `make check` leaves them out."""
LONGEST = [
    TESTS / name
    for name in (
        "torture/test_crashes.py",
        "ingest/engines/test_ray.py",
        "hostile/test_sources.py",
        "indexes/folder/test_filtered_search.py",
        "serve/browser/test_looks.py",
        "recovery/test_database.py",
        "indexes/milvus/test_bad_input.py",
        "serve/browser/test_trouble.py",
        "serve/browser/test_space.py",
        "ingest/test_pipeline.py",
        "indexes/milvus/test_deaths.py",
        "indexes/milvus/test_both_places.py",
    )
]
"""The slowest files start first, so that no process is left with one of them at the end."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip importing the folders of heavy tests if no heavy test is selected."""
    return True if "not heavy" in config.option.markexpr and collection_path in HEAVY else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(folder in item.path.parents for folder in HEAVY):
            item.add_marker(pytest.mark.heavy)
    places = {path: place for place, path in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_configure() -> None:
    """Restore SIGINT: a shell's background job ignores it, and the commands that tests interrupt would inherit that.

    No example of a property has a time limit, because a busy machine would fail it.
    """
    settings.register_profile("without deadlines", deadline=None)
    settings.load_profile("without deadlines")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache folder for this run, used by the processes that tests start too."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        patch.setenv("RAY_TQDM_PATCH_PRINT", "0")  # Python's own print stays, for the tests that come after
        yield folder / "flow-retriever"
    assert not (folder / "Microsoft").exists(), "something has imported ONNX Runtime with its telemetry on"


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_bert(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.fixture(scope="session")
def other_bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Another BERT of the same shape."""
    return str(make_bert(tmp_path_factory.mktemp("models") / "other", seed=1))


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "pets.jsonl", PETS)


@pytest.fixture
def run() -> Run:
    """Run the `retriever` command in this process; any exception that is not for people fails the test."""
    from retriever.cli.main import main

    return invoker(main)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    folder = Path(os.environ.get("RETRIEVER_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not folder.is_dir():
        pytest.skip("no benchmark data: set RETRIEVER_DATA to a folder that holds wiki/, sts/, ...")
    return folder


@pytest.fixture(scope="session")
def wiki_sentences(shared_data: Path) -> list[str]:
    import gzip

    with gzip.open(shared_data / "wiki" / "wiki_sentences_00.txt.gz", "rt", encoding="utf-8") as file:
        return [line.rstrip("\n") for line in file]
