"""Standard input, output and errors that are closed or have few characters, homes that are missing, odd paths."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from indexes.errors import Misuse
from indexes.faiss.vectors import empty_index
from retriever import Retriever

ROOT = Path(__file__).parents[2]
TEXTS = [
    {"id": "a", "text": "Cats purr in a café: “quoted”, 東京, 🐈."},
    {"id": "b", "text": "Dogs bark."},
]

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Path:
    folder = Path(os.fsdecode(os.fsencode(tmp_path_factory.mktemp("streams")) + b"/caf\xe9"))  # not UTF-8
    Retriever.build(TEXTS, folder, encoder=tiny_bert, transform="none", precision="fp32").close()
    return folder


def command(
    *arguments: object, redirect: str = "", without: str = "", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    kept = {name: value for name, value in os.environ.items() if name not in without.split()}
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {redirect}', "sh", sys.executable, "-m", "retriever", *map(str, arguments)],
        cwd=ROOT,
        env={**kept, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode(errors="replace")
    return done


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "ascii"])
def test_an_output_with_few_characters(index: Path, encoding: str) -> None:
    """What the encoding lacks becomes a question mark. A path that is not UTF-8 works, too."""
    done = command("search", "cats", "--index", index, PYTHONIOENCODING=encoding)
    assert done.returncode == 0, done.stderr
    assert b"Cats purr" in done.stdout and b"??" in done.stdout
    done = command("search", "東京", "--index", index / "none", PYTHONIOENCODING=encoding)
    assert done.returncode == 2 and b"does not exist" in done.stderr.replace(b"\n", b" ")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["search"], 0), (["search", "--queries", "-"], 2), (["index", "-"], 2), (["mcp"], 0)],
)
def test_a_closed_standard_input(index: Path, tmp_path: Path, arguments: list[str], code: int) -> None:
    place = tmp_path / "new" if "index" in arguments else index
    done = command(*arguments, "--index", place, redirect="<&-")
    assert done.returncode == code, done.stderr


def test_closed_streams_get_no_file_of_a_collection(index: Path, tmp_path: Path) -> None:
    """Messages would be written into a file that is opened under the number of a closed stream."""
    done = command("add", ROOT / "README.md", "--index", index, redirect="<&- >&- 2>&-")
    assert done.returncode == 0
    with Retriever.open(index) as retriever:
        assert retriever.verify().clean
        retriever.delete(["README.md"])


def test_no_home_folder(index: Path) -> None:
    """A user without an entry in the system's list of users, as in some containers."""
    code = (
        "import os, pwd\n"
        "def getpwuid(number): raise KeyError(f'getpwuid(): uid not found: {number}')\n"
        "pwd.getpwuid = getpwuid\n"
        "from retriever.cli.main import main; main()"
    )
    kept = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME")}
    done = subprocess.run(
        [sys.executable, "-c", code, "search", "cats", "--index", str(index)],
        cwd=ROOT,
        env={**kept, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert b"this user has no home folder" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    "factory",
    ["IVF99999999,PQ1", "IVF16777216,Flat", "IMI2x20,Flat", "IVF4,PQ4x24", "HNSW99999999", "PCA99999999,Flat"],
)
def test_absurd_index_types(factory: str) -> None:
    """FAISS would compute for minutes, or take all memory, before it has seen a vector."""
    with pytest.raises(Misuse, match="a number that is too large"):
        empty_index(factory, 32)


@pytest.mark.parametrize("factory", ["IVF65536_HNSW32,PQ16x8", "OPQ16_64,IVF1024,PQ16x4fs", "SQ8"])
def test_index_types_that_are_in_use(factory: str) -> None:
    assert empty_index(factory, 64).d == 64
