"""The types of the public API: a user's script that uses every public name is strictly typed, without any Any."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import typed_script

import retriever

pytest.importorskip("mypy", reason="needs mypy")
CONFIG = """
[mypy]
strict = True
disallow_any_expr = True
disallow_any_unimported = True
disallow_any_decorated = True
[mypy-retriever.*,indexes.*]
follow_imports = silent
"""
"""The package is checked elsewhere. Here it is what it is for its users: installed, and silent about itself."""


def check(script: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    config = cache.with_name("mypy.ini")
    config.write_text(CONFIG)
    command = [sys.executable, "-m", "mypy", "--config-file", str(config), "--cache-dir", str(cache), str(script)]
    return subprocess.run(command, capture_output=True, text=True, timeout=880)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_script_that_uses_every_public_name_has_no_any(tmp_path: Path) -> None:
    script = Path(typed_script.__file__)
    text = script.read_text(encoding="utf-8")
    names = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    assert set(retriever.__all__) <= names
    used = {node.attr for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)}
    public = {name for name in vars(retriever.Retriever) if not name.startswith("_")}
    assert public - used == set()
    found = check(script, tmp_path / "cache")
    assert found.returncode == 0, found.stdout + found.stderr
    wrong = tmp_path / "wrong.py"
    wrong.write_text('from retriever import Retriever\nRetriever.open("a").search("b", mode="sparse", where=3)\n')
    told = check(wrong, tmp_path / "cache").stdout
    assert '"mode"' in told and '"where"' in told
