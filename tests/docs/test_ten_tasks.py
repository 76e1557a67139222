"""Ten tasks in lines of code: ours run, the others run where they are installed, and the table in the docs is right."""

import ast
import asyncio
import importlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retriever import Retriever

pytestmark = pytest.mark.heavy
ROOT = Path(__file__).parents[2]
TASKS = Path(__file__).parents[1] / "support" / "ten_tasks"
SYSTEMS = ("ours", "txtai", "chroma", "lance")
NAMES = {
    "own_vectors": "own vectors",
    "frame_in": "frame in",
    "filter": "filter",
    "hybrid": "hybrid",
    "asynchronous": "async",
    "serve": "serve",
    "langchain": "LangChain",
    "delete": "delete",
    "update": "update",
    "export": "export",
}


def lines(system: str) -> dict[str, int]:
    """Count the lines of each function's body, without blank lines and docstrings."""
    text = (TASKS / f"{system}.py").read_text(encoding="utf-8")
    counted = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            own = text.splitlines()[body[0].lineno - 1 : node.end_lineno]
            counted[node.name] = sum(1 for line in own if line.strip())
    return counted


def test_the_table_in_the_docs_is_counted_and_ours_is_never_longer_than_the_shortest_plus_one() -> None:
    counts = {system: lines(system) for system in SYSTEMS}
    table = [line for line in (ROOT / "docs" / "python.md").read_text(encoding="utf-8").splitlines() if "|" in line]
    for task, shown in NAMES.items():
        own = [counts[system].get(task) for system in SYSTEMS]
        assert f"| {shown} | {' | '.join('none' if n is None else str(n) for n in own)} |" in table
        assert own[0] is not None and own[0] <= min(n for n in own if n is not None) + 1


@pytest.fixture(scope="module")
def tasks() -> Any:
    return importlib.import_module("ten_tasks.ours")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, tasks: Any) -> Path:
    folder = tmp_path_factory.mktemp("tasks") / "notes"
    assert tasks.own_vectors(folder)[0].id == "budget"
    return folder


@pytest.fixture
def notes(built: Path, tmp_path: Path) -> Iterator[Retriever]:
    from ten_tasks import embed

    shutil.copytree(built, tmp_path / "notes")
    with Retriever.open(tmp_path / "notes", encoder=embed) as opened:
        yield opened


def test_ours_run(tasks: Any, notes: Retriever, tmp_path: Path) -> None:
    assert tasks.frame_in(tmp_path / "frame")[0].metadata == {"year": 2021}
    assert {hit.id for hit in tasks.filter(notes)} == {"budget", "cats"}
    assert tasks.hybrid(notes)[0].id == "budget"
    assert asyncio.run(tasks.asynchronous(notes))[0].id == "budget"
    assert tasks.langchain(notes)[0].id == "budget"
    tasks.update(notes)
    assert notes.document("budget").metadata == {"year": 2023} and len(notes) == 3
    tasks.delete(notes)
    assert list(notes) == ["budget", "cats"] or sorted(notes) == ["budget", "cats"]
    tasks.export(notes, tmp_path / "notes.parquet")
    assert (tmp_path / "notes.parquet").stat().st_size > 0


def test_our_command_serves(tasks: Any, tmp_path: Path) -> None:
    import httpx
    from serving_process import served
    from ten_tasks import DOCUMENTS

    Retriever.build(DOCUMENTS, tmp_path / "notes").close()
    program, command, *arguments = tasks.serve(str(tmp_path / "notes"))
    assert (program, command) == ("retriever", "serve")
    with served(*arguments) as (_, url, _), httpx.Client(base_url=url, timeout=120) as client:
        while client.get("/ready").status_code != 200:
            time.sleep(0.05)
        found = client.post("/v1/search", json={"query": "budget"}).json()
    assert found["hits"][0]["id"] == "budget"


def test_lance_runs(tmp_path: Path) -> None:
    pytest.importorskip("lancedb")
    lance = importlib.import_module("ten_tasks.lance")
    assert lance.own_vectors(str(tmp_path / "a"))[0]["id"]
    assert lance.frame_in(str(tmp_path / "b"))
    notes = importlib.import_module("lancedb").connect(str(tmp_path / "a")).open_table("notes")
    assert {row["id"] for row in lance.filter(notes)} == {"budget", "cats"}
    assert lance.hybrid(notes) and asyncio.run(lance.asynchronous(str(tmp_path / "a"))) and lance.langchain(notes)
    lance.update(notes)
    lance.delete(notes)
    lance.export(notes, tmp_path / "notes.parquet")
    assert notes.count_rows() == 2


def test_chroma_runs(tmp_path: Path) -> None:
    pytest.importorskip("chromadb")
    chroma = importlib.import_module("ten_tasks.chroma")
    assert chroma.own_vectors(str(tmp_path / "a"))["ids"] and chroma.frame_in(str(tmp_path / "b"))["ids"]
    notes = importlib.import_module("chromadb").PersistentClient(str(tmp_path / "a")).get_collection("notes", None)
    assert set(chroma.filter(notes)["ids"][0]) == {"budget", "cats"}
    assert chroma.langchain(notes)
    chroma.update(notes)
    chroma.delete(notes)
    chroma.export(notes, tmp_path / "notes.parquet")
    assert notes.count() == 2


def test_txtai_runs(tmp_path: Path) -> None:
    pytest.importorskip("txtai")
    txtai = importlib.import_module("ten_tasks.txtai")
    from ten_tasks import DOCUMENTS, embed

    assert txtai.own_vectors(str(tmp_path / "a")) and txtai.frame_in(str(tmp_path / "b"))
    assert txtai.hybrid(str(tmp_path / "c"))
    notes = importlib.import_module("txtai").Embeddings(method="external", transform=embed, content=True)
    notes.index([(document["id"], document, None) for document in DOCUMENTS])
    assert {row["id"] for row in txtai.filter(notes)} <= {"budget", "cats"}
    assert asyncio.run(txtai.asynchronous(notes)) and txtai.langchain(notes)
    txtai.update(notes)
    txtai.delete(notes)
    txtai.export(notes, tmp_path / "notes.parquet")
    assert notes.count() == 2
