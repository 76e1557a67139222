"""Clusters of several nodes, nodes that die, drivers that are killed: real processes, on one machine."""

import contextlib
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from same import differing
from samples import Run, write_jsonl
from workers import begun, begun_again, noting_worker, processes

from retriever import Corpus, Retriever
from retriever.encoder.encoder import Encoder
from retriever.errors import RetrieverError
from retriever.ingest.engines.ray import cluster as ray_cluster
from retriever.ingest.engines.ray import pool as ray_pool
from retriever.ingest.engines.ray import probe as ray_probe

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'flow-retriever[ray]'")

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

OPTIONS: dict[str, Any] = {"transform": "whiten", "precision": "fp32", "batch_tokens": 64}
DOCUMENTS = 3000


@pytest.fixture
def source(tmp_path: Path) -> Path:
    texts = (f"Fact number {i}, one of many facts {'x' * (i % 30)}." for i in range(DOCUMENTS))
    return write_jsonl(tmp_path / "facts.jsonl", [{"id": str(i), "text": text} for i, text in enumerate(texts)])


@pytest.fixture
def two_nodes(own_cache: Path, tiny_bert: str) -> Iterator[Any]:
    """A head and another node, a core each."""
    from ray.cluster_utils import Cluster

    Encoder(tiny_bert).encode(["exported once"])
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    yield cluster
    ray.shutdown()
    with contextlib.suppress(Exception):
        cluster.shutdown()


def vectors(folder: Path) -> int:
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(f"file:{folder / 'documents.sqlite'}?mode=ro", uri=True)) as connection,
    ):
        return int(connection.execute("SELECT count(*) FROM vectors").fetchone()[0])
    return 0


class WhenNoted:
    """As the progress of a build: does something once every worker that there should be has begun some batches."""

    def __init__(self, folder: Path, workers: int, do: Any) -> None:
        self.folder, self.workers, self.do, self.done = folder, workers, do, False

    def __call__(self, stage: str, done: int, total: int | None, detail: str = "") -> None:
        busy = [pid for pid, batches in begun(self.folder).items() if len(batches) > 5]
        if not self.done and len(busy) >= self.workers:
            self.done = True
            self.do()


@pytest.mark.slow
def test_a_node_is_killed_in_the_middle(
    source: Path, tmp_path: Path, tiny_bert: str, two_nodes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    Retriever.build(Corpus([source]), tmp_path / "local", encoder=tiny_bert, **OPTIONS).close()
    (tmp_path / "begun").mkdir()
    monkeypatch.setattr(ray_pool, "Worker", noting_worker(tmp_path / "begun", 0.01))
    kill = WhenNoted(
        tmp_path / "begun",
        2,
        lambda: two_nodes.remove_node(two_nodes.list_all_nodes()[-1], allow_graceful=False),
    )
    with Retriever.build(
        Corpus([source]),
        tmp_path / "ray",
        encoder=tiny_bert,
        engine="ray",
        address=two_nodes.address,
        progress=kill,
        **OPTIONS,
    ) as built:
        assert kill.done
        assert any("1 worker of the Ray cluster died" in note for note in built.notes())
        assert built.verify().clean
    assert begun_again(tmp_path / "begun") <= 1, "the node had one worker, and that one batch in hand"
    assert differing(tmp_path / "local", tmp_path / "ray") == []


@pytest.mark.torture
def test_a_node_that_comes_late_takes_over(
    source: Path, tmp_path: Path, tiny_bert: str, two_nodes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers of a node that died wait for room, and find it on the next one."""
    (tmp_path / "begun").mkdir()
    monkeypatch.setattr(ray_pool, "Worker", noting_worker(tmp_path / "begun", 0.02))

    def exchange() -> None:
        two_nodes.remove_node(two_nodes.list_all_nodes()[-1], allow_graceful=False)
        two_nodes.add_node(num_cpus=1)

    swap = WhenNoted(tmp_path / "begun", 2, exchange)
    with Retriever.build(
        Corpus([source]),
        tmp_path / "c",
        encoder=tiny_bert,
        engine="ray",
        address=two_nodes.address,
        progress=swap,
        **OPTIONS,
    ) as built:
        assert swap.done and len(built) == DOCUMENTS and built.verify().clean
    assert len(begun(tmp_path / "begun")) == 3


@pytest.mark.slow
@pytest.mark.parametrize("dies", ["all of it", pytest.param("its head alone", marks=pytest.mark.torture)])
def test_the_cluster_dies(
    source: Path, tmp_path: Path, tiny_bert: str, two_nodes: Any, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    (tmp_path / "begun").mkdir()
    monkeypatch.setattr(ray_pool, "Worker", noting_worker(tmp_path / "begun", 0.05))
    monkeypatch.setattr(ray_cluster, "HEAD_GONE_SECONDS", 3)
    monkeypatch.setattr(ray_cluster, "CHECK_SECONDS", 1)
    monkeypatch.setattr(ray_pool, "NO_WORKER_SECONDS", 20)

    def kill() -> None:
        if dies == "its head alone":
            two_nodes.head_node.kill_gcs_server(check_alive=False)
            return
        for node in two_nodes.list_all_nodes():
            node.kill_all_processes(check_alive=False, allow_graceful=False)

    with pytest.raises(RetrieverError, match="What was stored is kept. Run the same command again to continue"):
        Retriever.build(
            Corpus([source]),
            tmp_path / "c",
            encoder=tiny_bert,
            engine="ray",
            address=two_nodes.address,
            progress=WhenNoted(tmp_path / "begun", 2, kill),
            **OPTIONS,
        )
    stored = vectors(tmp_path / "c")
    assert 0 < stored < DOCUMENTS
    with Retriever.build(Corpus([source]), tmp_path / "c", encoder=tiny_bert, **OPTIONS) as built:
        assert built.report.texts_embedded == DOCUMENTS - stored
        assert len(built) == DOCUMENTS and built.verify().clean


# ---- a cluster for the run ---------------------------------------------------------------------------------


def started(source: Path, folder: Path, bert: str, *, until: int = 50) -> subprocess.Popen[str]:
    """The command with a cluster of its own, once it has stored some vectors."""
    command = [sys.executable, "-m", "retriever", "index", str(source), "--index", str(folder), "--encoder", bert]
    command += ["--transform", "none", "--precision", "fp32", "--batch-tokens", "16", "--engine", "ray"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 120
    while vectors(folder) < until and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    return process


def clusters() -> set[int]:
    return set(processes(["gcs_server", "raylet/raylet", "ray::", "ray/_private"]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "sent",
    [
        "SIGINT",
        *(pytest.param(sent, marks=pytest.mark.torture) for sent in ("SIGINT by the terminal", "SIGTERM", "SIGKILL")),
    ],
)
def test_a_run_is_stopped_and_goes_on(run: Run, source: Path, tmp_path: Path, tiny_bert: str, sent: str) -> None:
    before, folder = clusters(), tmp_path / "c"
    process = started(source, folder, tiny_bert)
    number = getattr(signal, sent.split()[0])
    if sent.endswith("terminal"):
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    _, said = process.communicate(timeout=60)
    if number == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 128 + number, said
        assert "What was stored is kept. Run the same command again to continue." in said
        assert "Traceback" not in said
    deadline = time.monotonic() + 120  # Ray's agents look for their killed parent for most of a minute
    while clusters() - before and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not clusters() - before, "nothing of the cluster is left"
    stored = vectors(folder)
    assert 50 <= stored < DOCUMENTS
    with Retriever.build(Corpus([source]), folder, encoder=tiny_bert, transform="none") as built:
        assert built.report.texts_embedded == DOCUMENTS - stored
    assert "no damage found" in run("verify", "--index", folder).output


# ---- addresses ---------------------------------------------------------------------------------------------


def refused(run: Run, pets: Path, folder: Path, address: str) -> str:
    output = run("index", pets, "--index", folder, "--engine", "ray", "--address", address, code=1).output
    assert not folder.exists()
    return " ".join(output.split())


def test_an_address_where_nobody_is(run: Run, pets: Path, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}"):
        said = refused(run, pets, tmp_path / "c", address)
        assert f"no Ray cluster answers at {address}. Tried a TCP connection" in said
        assert "Connection refused" in said and "ray status" in said


def test_an_address_of_something_else(run: Run, pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_probe, "CONNECT_SECONDS", 4)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen(10)
        said = refused(run, pets, tmp_path / "c", f"127.0.0.1:{other.getsockname()[1]}")
    assert "no answer that Ray understands within 4 s" in said


def test_auto_with_no_cluster(run: Run, pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    assert "no Ray cluster runs on this machine" in refused(run, pets, tmp_path / "c", "auto")


def test_other_versions() -> None:
    found = ray_probe.Probe("RuntimeError", "Version mismatch: The cluster was started with:\n  Ray: 2.50\n")
    said = str(ray_probe.refusal("head:6379", found))
    assert "runs different versions from this process" in said and "Ray: 2.50" in said


@pytest.mark.torture
def test_from_outside_of_the_cluster(source: Path, tmp_path: Path, tiny_bert: str) -> None:
    """By ray://, where nothing of the cluster sees this process or its files."""
    with socket.socket() as free, socket.socket() as other:
        free.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        port, head = free.getsockname()[1], other.getsockname()[1]
    folder = Path("/tmp") / f"retriever-test-{os.getpid()}"  # a socket's path must be short
    begin = ["start", "--head", f"--port={head}", f"--ray-client-server-port={port}", "--num-cpus=2", "--block"]
    begin += ["--include-dashboard=false", f"--temp-dir={folder}", "--disable-usage-stats"]
    server = subprocess.Popen(
        [sys.executable, "-m", "ray.scripts.scripts", *begin],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.2)
        Retriever.build(Corpus([source]), tmp_path / "local", encoder=tiny_bert, **OPTIONS).close()
        options = ["--transform", "whiten", "--precision", "fp32", "--batch-tokens", "64", "--encoder", tiny_bert]
        options += ["--engine", "ray", "--address", f"ray://127.0.0.1:{port}"]
        command = [sys.executable, "-m", "retriever", "index", str(source), "--index", str(tmp_path / "ray"), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert differing(tmp_path / "local", tmp_path / "ray") == []
    finally:
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)


# ---- one process, several builds ---------------------------------------------------------------------------

TWICE = """
import sys
from retriever import Retriever
from retriever.ingest.engines.ray.cluster import Cluster
from retriever.errors import Misuse
folder, bert = sys.argv[1:]
for name in ("a", "b"):
    with Retriever.build(["One text.", "Another."], f"{folder}/{name}", encoder=bert, engine="ray") as built:
        assert len(built) == 2
import ray
assert not ray.is_initialized()
with Cluster(None):
    try:
        Cluster("head:6379").__enter__()
    except Misuse as error:
        print(error)
    with Cluster(None):
        pass
    assert ray.is_initialized(), "who begins it ends it"
assert not ray.is_initialized()
"""


@pytest.mark.torture
def test_one_process_builds_twice(tmp_path: Path, tiny_bert: str) -> None:
    command = [sys.executable, "-c", TWICE, str(tmp_path), tiny_bert]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "connected to a Ray cluster already" in done.stdout
