"""`requirements-ci.txt`: every version is the one that the tests passed with, and has hashes."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"^([A-Za-z0-9_.-]+)==([^\s;]+)", re.MULTILINE)


def versions(name: str) -> dict[str, str]:
    found = PIN.findall((ROOT / name).read_text(encoding="utf-8"))
    return {re.sub(r"[-_.]+", "-", package).lower(): version for package, version in found}


def test_the_versions_are_those_of_the_constraints() -> None:
    hashed, passed = versions("requirements-ci.txt"), versions("constraints.txt")
    assert len(hashed) > 200
    assert {name: version for name, version in hashed.items() if passed.get(name, version) != version} == {}


def test_every_version_has_hashes() -> None:
    text = (ROOT / "requirements-ci.txt").read_text(encoding="utf-8")
    for block in re.split(r"\n(?=\S)", text.strip()):
        assert PIN.match(block) and "--hash=sha256:" in block, block
