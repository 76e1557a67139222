"""What tests share: a tiny real BERT, some text, the command line, and the benchmark data where it is."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from samples import PETS, Run, invoker, make_bert, write_jsonl


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
