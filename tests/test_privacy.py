"""What our libraries do that nobody asked for: no connection beyond this machine, no file outside of our own folders.

The commands and the Python API run under strace, with an empty home and without CI, which makes some libraries quiet.
The test of a program that imports ONNX Runtime before `retriever` is in packaging/, because it needs the wheel.
"""

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from crashes import strace_works
from samples import PETS, write_jsonl
from traced import API, HAYSTACK, Place, Traced

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not strace_works(), reason="strace is missing, or may not trace"),
]


@pytest.fixture
def place(tmp_path: Path, tiny_bert: str) -> Place:
    return Place(tmp_path, tiny_bert)


def test_index_search_and_serve(place: Place) -> None:
    source = write_jsonl(place.folder / "pets.jsonl", PETS)
    (place.folder / "page.html").write_text("<p>Foreign formats are read in a process of their own.</p>")
    index = ("-m", "retriever", "index", source, place.folder / "page.html", "--index", "c/pets")
    place.traced(*index, "--encoder", place.encoder).check()
    place.traced("-m", "retriever", "search", "purr", "--index", "c/pets").check()
    _serve(place)


def _serve(place: Place) -> None:
    log = place.folder / "serve.log"
    command = place.command(log, "-m", "retriever", "serve", place.folder / "c" / "pets", "--port", "0")
    with subprocess.Popen(
        command, env=place.environment(), cwd=place.folder, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout
        try:
            url = next(line.split()[2] for line in process.stdout if line.startswith("Serving at "))
            for path in ("ready", "", "v1/collections", "v1/search?query=purr"):
                _get(f"{url.rstrip('/')}/{path}")
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)
    Traced(place.folder).read(log).check()


def _get(url: str) -> None:
    for _ in range(200):
        try:
            with urllib.request.urlopen(url) as response:
                assert response.status == 200
            return
        except urllib.error.HTTPError as error:
            if error.code != 503:
                assert error.code in (404, 405, 422), error
                return
        time.sleep(0.1)
    pytest.fail(f"{url} is not ready")


def test_the_python_api(place: Place) -> None:
    place.traced("-c", API.format(first=""), place.encoder).check()


@pytest.mark.slow
def test_haystack(place: Place) -> None:
    pytest.importorskip("haystack", reason="needs the extra haystack")
    place.traced("-c", API.format(first=""), place.encoder).check()
    place.traced("-c", HAYSTACK.format(first="")).check()
