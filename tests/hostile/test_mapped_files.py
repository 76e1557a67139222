"""Files that another program cuts or writes to while a process has them mapped: an error, and the process lives."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from limited import ROOT
from samples import make_bert

from indexes.mapped import SUPPORTED
from retriever import Retriever

pytestmark = pytest.mark.skipif(not SUPPORTED, reason="the structures of the system are not known")

WORDS = ("cats", "dogs", "fish", "birds", "horses", "rivers", "hills", "stars")
COUNT = 2000
TYPES = {"flat": "flat", "hnsw": "hnsw", "pq": "IVF4,PQ8"}

PRELUDE = """
import json, os, sys, threading
from pathlib import Path
from retriever import Retriever
from retriever.errors import RetrieverError

def found(number=0):
    try:
        hits = retriever.search(f"cats {number}", 10, mode="dense")
    except RetrieverError as error:
        return f"{type(error).__name__}: {error}"
    return [hit.id for hit in hits]

retriever = Retriever.open(sys.argv[1])
told = {"before": found()}
"""


@pytest.fixture(scope="module", params=TYPES)
def index(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Path:
    folder = tmp_path_factory.mktemp("mapped") / request.param
    documents = [f"{WORDS[n % 8]} and {WORDS[n // 8 % 8]} number {n}" for n in range(COUNT)]
    options = {"encoder": tiny_bert, "transform": "none", "precision": "fp32", "index_type": TYPES[request.param]}
    Retriever.build(documents, folder, **options).close()
    return folder


def told(code: str, *arguments: object) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", f"{PRELUDE}\n{code}\nprint(json.dumps(told))", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-2000:]}"
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


CUT = """
for path in Path(sys.argv[1]).glob(f"generations/*/{sys.argv[2]}"):
    told["there"] = True
    os.truncate(path, 5000)
told["cut"] = [found(number) for number in range(3)]
retriever.verify(repair=True)
told["after"] = found()
"""


@pytest.mark.parametrize(
    "name", ["numbers.npy", *(pytest.param(name, marks=pytest.mark.slow) for name in ("vectors.faiss", "raw.f16"))]
)
def test_a_file_of_an_index_is_cut(index: Path, name: str) -> None:
    """The search after it is refused with advice, and once the collection is repaired the same process finds again."""
    result = told(CUT, index, name)
    for found in result["cut"]:
        if "there" not in result or (name == "vectors.faiss" and "flat" in index.name):
            assert len(found) == 10  # an exact index was read as a whole, and has no file of raw vectors
        else:
            assert isinstance(found, str) and found.startswith("Damaged"), found
            assert name in found and "verify --repair" in found
    assert len(result["after"]) == 10


CHANGED = """
(path,) = Path(sys.argv[1]).glob("generations/*/numbers.npy")
kept = path.read_bytes()
with path.open("r+b") as file:
    file.seek(len(kept) // 2)
    file.write(bytes(len(kept) - len(kept) // 2))
told["changed"] = found()
path.write_bytes(kept)
told["after"] = found()
"""


def test_a_file_of_an_index_is_written_to(index: Path) -> None:
    """Nothing signals that. The result is dropped all the same, and the file is checked again."""
    result = told(CHANGED, index)
    assert str(result["changed"]).startswith("Damaged")
    assert result["after"] == result["before"]


THREADS = """
(path,) = Path(sys.argv[1]).glob("generations/*/numbers.npy")
results = []
stopping = threading.Event()

def search(first):
    while not stopping.is_set():
        results.append(found(first))

threads = [threading.Thread(target=search, args=[number]) for number in range(4)]
expected = [found(number) for number in range(4)]
for thread in threads:
    thread.start()
while len(results) < 20:
    pass
kept = path.read_bytes()
for _ in range(4):
    os.truncate(path, 5000)
    before = len(results)
    while len(results) < before + 8:
        pass
    path.write_bytes(kept)
    before = len(results)
    while len(results) < before + 8:
        pass
stopping.set()
for thread in threads:
    thread.join()
told["wrong"] = [one for one in results if one not in expected and not str(one).startswith("Damaged")]
told["refused"] = sum(isinstance(one, str) for one in results)
told["found"] = sum(one in expected for one in results)
"""


def test_searches_in_threads_while_a_file_is_cut_and_restored(index: Path) -> None:
    result = told(THREADS, index)
    assert not result["wrong"]
    assert result["refused"] and result["found"]


WEIGHTS = """
from retriever.encoder.encoder import Encoder
from retriever.errors import EncoderUnavailable
encoder = Encoder(sys.argv[2], device="cpu", precision="fp32", pooling="mean")
before = encoder.encode(["a cat"])
if sys.argv[3] == "torch":
    path = Path(sys.argv[2]) / "model.safetensors"
    encode = lambda: encoder.encode_poolings(["a cat"], ["mean"])["mean"]
    encode()
else:
    from retriever.encoder.runtimes.onnx_runtime import WEIGHTS, export_folder
    path = export_folder(encoder.identity) / WEIGHTS
    encode = lambda: encoder.encode(["a cat"])
kept = path.read_bytes()
os.truncate(path, 8192)
try:
    encode()
except EncoderUnavailable as error:
    told["cut"] = str(error)
path.write_bytes(kept)
try:
    told["same"] = bool((abs(encode() - before) < 1e-4).all())
except EncoderUnavailable as error:
    told["same"] = str(error)
"""


@pytest.mark.parametrize("runtime", ["onnx", "torch"])
def test_weights_of_an_encoder_are_cut(
    tmp_path: Path, tiny_bert: str, runtime: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Retriever.build(["a", "b"], tmp_path / "index", encoder=tiny_bert, transform="none", precision="fp32").close()
    bert = make_bert(tmp_path / "bert")
    result = told(WEIGHTS, tmp_path / "index", bert, runtime)
    assert "was changed by another program" in str(result["cut"])
    assert result["same"] is True if runtime == "onnx" else "was changed" in str(result["same"])


LOG = """
(path,) = Path(sys.argv[1]).glob("documents.sqlite-shm")
os.truncate(path, 0)
retriever.search("cats", 10)
"""


@pytest.mark.parametrize("name", ["index", "by a link", "in\ntwo lines"])
def test_the_index_of_the_log_is_cut(tmp_path: Path, tiny_bert: str, name: str) -> None:
    """There is no way to go on, so the process ends; it says why, and what is stored stays."""
    index = tmp_path / name
    if name == "by a link":
        (tmp_path / "elsewhere").mkdir()
        index.symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    Retriever.build(["a", "b"], index, encoder=tiny_bert, transform="none", precision="fp32").close()
    done = subprocess.run([sys.executable, "-c", PRELUDE + LOG, str(index)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "documents.sqlite-shm was cut by another program" in done.stderr
    with Retriever.open(index) as retriever:
        assert retriever.verify().clean
        assert len(retriever) == 2


def test_another_handler_gets_what_is_not_ours(tmp_path: Path) -> None:
    """A file that others map ends the process as ever, with the report of the handler before ours."""
    path = tmp_path / "theirs"
    path.write_bytes(bytes(np.ones(1 << 16)))
    code = (
        "import faulthandler, os, sys; faulthandler.enable()\n"
        "import numpy as np; from pathlib import Path; from indexes.mapped import MappedFile\n"
        "own = MappedFile(Path(sys.executable)); theirs = np.memmap(sys.argv[1], mode='r')\n"
        "os.truncate(sys.argv[1], 0); print(theirs.sum())"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == -7
    assert "Bus error" in done.stderr
