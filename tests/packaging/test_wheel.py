"""The wheel: two importable names, and the command works from it."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import click
import pytest
from crashes import strace_works
from samples import PETS, write_jsonl
from traced import API, HAYSTACK, Place

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build from what git tracks, so that files left in the checkout are not packed."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in names.split("\0"):
        if name and name.partition("/")[0] not in ("tests", "docs") and (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stdout + done.stderr
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty virtual environment with the wheel; its dependencies are those of this environment."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, capture_output=True, check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{Path(click.__file__).parents[1]}\n", encoding="utf-8")
    return python


def retriever(python: Path, folder: Path, *args: object) -> str:
    command = [str(python.with_name("retriever")), *map(str, args)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stdout + done.stderr
    return done.stdout


def test_it_holds_two_importable_names(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
    startup = "flow_retriever_no_telemetry.pth"  # no importable name
    assert {top for top in tops if not top.endswith(".dist-info")} == {"retriever", "indexes", startup}


def test_the_commands_work_from_it(installed: Path, tmp_path: Path, tiny_bert: str) -> None:
    found = subprocess.run(
        [str(installed), "-c", "import retriever; print(retriever.__file__)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(installed.parents[1]) in found.stdout
    assert "Usage:" in retriever(installed, tmp_path, "--help")
    source = write_jsonl(tmp_path / "pets.jsonl", PETS)
    retriever(installed, tmp_path, "index", source, "--index", "pets", "--encoder", tiny_bert)
    assert "cat" in retriever(installed, tmp_path, "search", "purr", "--mode", "lexical", "--index", "pets")
    rows = [f"test\tmade up\t{n % 6}.0\tA cat sat on mat {n}.\tA dog sat on mat {n % 4}." for n in range(12)]
    header = "split\tsource\tscore\tsentence1\tsentence2"
    (tmp_path / "stsb.tsv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    options = ["--encoder", tiny_bert, "--transform", "none", "--cache", tmp_path / "cache", "--dataset", "stsb"]
    assert "none" in retriever(installed, tmp_path, "bench", "sts", "--data", tmp_path, *options)


@pytest.mark.timeout(900)
@pytest.mark.skipif(not strace_works(), reason="strace is missing, or may not trace")
def test_nobody_is_told_anything_whatever_is_imported_first(installed: Path, tmp_path: Path, tiny_bert: str) -> None:
    place = Place(tmp_path, tiny_bert, installed)
    place.traced("-c", API.format(first="import onnxruntime"), tiny_bert).check()
    place.traced("-c", "import onnxruntime, indexes").check(nothing_written=True)
    pytest.importorskip("haystack", reason="needs the extra haystack")
    place.traced("-c", HAYSTACK.format(first="import haystack")).check()


def test_a_users_own_benchmarks_folder_is_imported(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "mine.py").write_text("value = 7\n", encoding="utf-8")
    code = "import benchmarks.mine; print(benchmarks.mine.value)"
    done = subprocess.run([str(installed), "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "7\n"
