"""What tests share: a tiny real BERT, some text, the command line, and the benchmark data where it is."""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # before anything can import ONNX Runtime, here or in a subprocess

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from samples import PETS, Run, make_bert, write_jsonl

HEAVY = ("browser", "damage", "engines", "hostile", "milvus", "serving", "torture")
"""Folders whose tests are heavy, all of them: `make check` leaves them out."""
LONGEST = (
    "torture/test_crashes.py",
    "engines/test_ray.py",
    "hostile/test_sources.py",
    "indexes/test_filtered_search.py",
    "browser/test_looks.py",
    "damage/test_database.py",
    "milvus/test_bad_input.py",
    "browser/test_trouble.py",
    "browser/test_space.py",
    "retriever/test_ingest.py",
    "milvus/test_deaths.py",
    "milvus/test_both_places.py",
)
"""Files that take longest, which begin first, so that no process works on one of them while the others have ended."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import the folders of heavy tests when no heavy test is to run."""
    left_out = "not heavy" in config.option.markexpr and collection_path.parent == Path(__file__).parent
    return True if left_out and collection_path.name in HEAVY else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests = Path(__file__).parent
    for item in items:
        if item.path.relative_to(tests).parts[0] in HEAVY:
            item.add_marker(pytest.mark.heavy)
    places = {tests / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_configure() -> None:
    """A shell's background job ignores Ctrl-C, as the commands would that the tests start and interrupt."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Exported encoders and hashes of this run alone, for the processes that it starts too."""
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
    from cli import main

    def invoke(*args: object, code: int = 0, input: str | None = None) -> Result:
        result = CliRunner().invoke(main, [str(arg) for arg in args], input=input)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, f"exit code {result.exit_code}:\n{result.output}"
        return result

    return invoke


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
