"""A child that is forked from a process with an encoder works, and ends by itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from samples import PETS

from retriever import Retriever

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system"),
]

FORKS = """
import os, signal, sys, time
{first}
from retriever import Retriever
retriever = Retriever.open(sys.argv[1])
retriever.search("purr")
retriever.search_many(["bark", "fly"])
for number in range(int(sys.argv[2])):
    child = os.fork()
    if not child:
        assert retriever.search(f"purr {{number}}", 1)
        sys.stdout.write(f"{{number}}\\n")
        sys.exit(number % 200)  # and not os._exit, which would run no destructors
    deadline = time.monotonic() + 60
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            sys.exit(f"child {{number}} did not end")
        time.sleep(0.001)
    if os.waitstatus_to_exitcode(ended[1]) != number % 200:
        sys.exit(f"child {{number}} ended with {{os.waitstatus_to_exitcode(ended[1])}}")
"""

MULTIPROCESSING = """
import multiprocessing, sys
{first}
from retriever import Retriever
retriever = Retriever.open(sys.argv[1])
retriever.search("purr")
def work(number):
    return retriever.search(f"purr {{number}}", 1)[0].id
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert len(pool.map(work, range(int(sys.argv[2])))) == int(sys.argv[2])
    pool.close()
    pool.join()
print(*range(int(sys.argv[2])), sep="\\n")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Path:
    folder = tmp_path_factory.mktemp("forks") / "pets"
    Retriever.build(PETS, folder, encoder=tiny_bert, transform="none").close()
    return folder


@pytest.mark.parametrize(
    "children",
    [
        pytest.param(24, id="quick"),
        pytest.param(1000, id="often", marks=[pytest.mark.torture, pytest.mark.timeout(7200)]),
    ],
)
@pytest.mark.parametrize("first", ["", "import onnxruntime"], ids=["", "with telemetry"])
@pytest.mark.parametrize("code", [FORKS, MULTIPROCESSING], ids=["os.fork", "multiprocessing"])
def test_children_end_by_themselves(folder: Path, tmp_path: Path, code: str, first: str, children: int) -> None:
    """With telemetry, which only begins if ONNX Runtime is imported before `retriever`, a thread is lost in a fork."""
    environment = {name: value for name, value in os.environ.items() if name not in ("ORT_DISABLE_TELEMETRY", "CI")}
    if first:
        environment |= {"HOME": str(tmp_path), "TMPDIR": str(tmp_path), "ORT_DISABLE_TELEMETRY": "0"}
        cache = Path(environment.pop("XDG_CACHE_HOME"))
        (tmp_path / ".cache").mkdir()
        (tmp_path / ".cache" / "flow-retriever").symlink_to(cache / "flow-retriever")
    done = subprocess.run(
        [sys.executable, "-c", code.format(first=first), folder, str(children)],
        env={**environment, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-500:] + done.stderr
    assert sorted(map(int, done.stdout.split())) == list(range(children)), "a child's output is written before it ends"
    assert bool(first) == (tmp_path / ".cache" / "Microsoft").exists(), "telemetry runs only in the second case"
