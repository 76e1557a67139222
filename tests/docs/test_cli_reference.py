"""docs/cli.md is generated from the commands, and the README names every command."""

import subprocess
import sys
from pathlib import Path

from retriever.cli.main import main

ROOT = Path(__file__).parents[2]
GENERATOR = ROOT / "docs" / "generate_cli.py"


def test_the_reference_is_up_to_date() -> None:
    done = subprocess.run([sys.executable, str(GENERATOR), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_stale_reference_is_found(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    copy = tmp_path / "docs" / GENERATOR.name
    copy.write_bytes(GENERATOR.read_bytes())
    (tmp_path / "docs" / "cli.md").write_text("# Commands\n", encoding="utf-8")
    done = subprocess.run([sys.executable, str(copy), "--check"], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 1 and "is stale" in done.stderr


def test_the_readme_names_every_command_and_is_short() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(f"retriever {name}" in readme for name in main.commands)
    assert len(readme.splitlines()) <= 200
