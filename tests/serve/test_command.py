"""`retriever serve` as people start it: what it says, what it refuses, and how it ends."""

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from samples import Run
from serving_process import served

from retriever import Retriever

Fresh = Callable[..., Path]


def test_it_says_what_it_serves_and_drains_on_sigterm(fresh: Fresh) -> None:
    one, two = fresh("one"), fresh("two")
    with served(one, two, "--writable") as (process, url, said):
        assert "7 documents in 7 passages" in said[0] and said[1].startswith("two")
        assert any("--writable" in line for line in said)
        queries = [f"query number {n} of a long batch" for n in range(1000)]
        with (
            httpx.Client(base_url=url, timeout=60) as client,
            client.stream("POST", "/v1/search/batch", json={"queries": queries, "mode": "hybrid"}) as response,
        ):
            lines = response.iter_lines()
            answered = [json.loads(next(lines))]
            process.send_signal(signal.SIGTERM)
            answered += [json.loads(line) for line in lines]
        assert [line["query"] for line in answered] == queries  # what was under way was finished
        assert process.wait(60) == 0
        with pytest.raises(httpx.ConnectError):
            httpx.get(url)


def test_ctrl_c_ends_it(fresh: Fresh) -> None:
    with served(fresh()) as (process, _, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert process.stderr and "Traceback" not in process.stderr.read()


def test_another_address_needs_a_token_and_says_what_it_means(fresh: Fresh, run: Run) -> None:
    folder = fresh()
    assert "--token" in run("serve", folder, "--host", "0.0.0.0", code=2).output
    with served(folder, "--host", "0.0.0.0", RETRIEVER_TOKEN="secret") as (process, url, _):
        url = url.replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(f"{url}v1/collections").status_code == 401
        headers = {"Authorization": "Bearer secret", "Host": "any.name.example"}
        assert httpx.get(f"{url}v1/collections", headers=headers).status_code == 200
        process.terminate()
        _, errors = process.communicate()
        assert "other machines can reach" in errors


def test_space_around_the_token_and_capitals_of_an_origin_do_not_matter(fresh: Fresh) -> None:
    with served(fresh(), "--cors", "HTTPS://Example.org:8443", RETRIEVER_TOKEN=" abc\n") as (_, url, _):
        headers = {"Authorization": "Bearer abc", "Origin": "https://example.org:8443"}
        response = httpx.get(f"{url}v1/collections", headers=headers)
        assert response.status_code == 200
        assert response.headers["access-control-allow-origin"] == "https://example.org:8443"


def test_what_it_refuses(fresh: Fresh, tmp_path: Path, run: Run) -> None:
    folder = fresh("one")
    assert "does not exist" in run("serve", tmp_path / "none", code=2).output
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("A note. An empty folder would be served.")
    assert "is not a collection" in run("serve", tmp_path / "notes", code=2).output
    twin = fresh("deeper/one")
    output = " ".join(run("serve", folder, twin, code=2).output.split())
    assert str(folder) in output and str(twin) in output
    assert "--token" in run("serve", folder, "--token", "", code=2).output
    for token in ("sécret", "two words", "new\nline"):
        assert "header" in run("serve", folder, "--token", token, code=2).output
    assert "origin" in run("serve", folder, "--cors", "*", code=2).output
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"port {port}" in run("serve", folder, "--port", port, code=1).output


def test_an_encoder_that_cannot_be_loaded_ends_it(fresh: Fresh, other_bert: str) -> None:
    command = [sys.executable, "-m", "retriever", "serve", str(fresh()), "--port", "0", "--encoder", other_bert]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 1
    assert "was made with the encoder" in done.stderr and "Traceback" not in done.stderr
    assert "Serving at" not in done.stdout


def test_a_collection_whose_queries_nothing_can_encode_ends_it(tmp_path: Path) -> None:
    Retriever.build(["north"], tmp_path / "function", encoder=lambda texts: [[len(text), 1] for text in texts]).close()
    command = [sys.executable, "-m", "retriever", "serve", str(tmp_path / "function"), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 1 and "Traceback" not in done.stderr and "Serving at" not in done.stdout
    assert "<lambda> of a Python program" in done.stderr and "retriever search --mode lexical" in done.stderr


def test_such_a_collection_does_not_keep_its_neighbours_from_being_served(fresh: Fresh) -> None:
    folder = fresh("home/one")
    other = folder.parent / "other"
    Retriever.build(["north"], other, encoder=lambda texts: [[len(text), 1] for text in texts]).close()
    with served(folder.parent) as (_, url, _):
        listed = httpx.get(f"{url}v1/collections").json()
        assert [one["name"] for one in listed["collections"]] == ["one"]
        assert httpx.get(f"{url}v1/search", params={"q": "cats"}).status_code == 200


def test_documents_that_brought_their_vectors_are_served_by_words(tmp_path: Path) -> None:
    Retriever.build([{"id": "n", "text": "north", "vector": [0, 1]}], tmp_path / "brought").close()
    with served(tmp_path / "brought") as (_, url, _):
        found = httpx.get(f"{url}v1/search", params={"q": "north"}).json()
        assert [hit["id"] for hit in found["hits"]] == ["n"] and "search by words" in found["note"]
        refused = httpx.get(f"{url}v1/search", params={"q": "north", "mode": "dense"})
        assert refused.status_code == 422 and "mode lexical" in refused.text


def test_a_missing_extra_is_named(fresh: Fresh) -> None:
    code = "import sys; sys.modules['fastapi'] = None; from retriever.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "serve", str(fresh())],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 1
    assert "flow-retriever[serve]" in done.stderr and "Traceback" not in done.stderr


def test_importing_the_command_imports_no_server() -> None:
    code = "import sys, cli; assert not {'fastapi', 'uvicorn', 'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_it_is_ready_only_when_all_is_loaded(fresh: Fresh) -> None:
    """Asked from the first moment on, it answers 503 with Retry-After until it answers 200, and then only that."""
    folder = fresh()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    statuses: list[int] = []

    def ask() -> None:
        while not statuses or statuses[-1] != 200:
            try:
                response = httpx.get(f"http://127.0.0.1:{port}/ready")
            except httpx.TransportError:
                continue
            statuses.append(response.status_code)
            assert response.status_code == 200 or response.headers["retry-after"]

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    command = [sys.executable, "-m", "retriever", "serve", str(folder), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=Path(__file__).parents[2]) as process:
        thread.join(60)
        process.terminate()
        assert process.wait(60) == 0
    assert set(statuses) <= {200, 503} and statuses[-1] == 200
