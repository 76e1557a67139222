"""The systems that `python -m benchmarks speed` compares. Each is used as its own documentation shows.

There is one file for each system. A system's packages are imported only when they are needed.
"""

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from benchmarks.speed.rivals.base import Rival
from retriever.errors import Misuse

OURS = "retriever"
OURS_AUTOMATIC = "retriever auto"
REFERENCE = "sentence-transformers + FAISS"


@dataclass(frozen=True)
class System:
    """A compared system.

    `module` is our module for it, `package` the package it needs, `pip` the name to install, and `name` the class in
    our module.
    """

    module: str
    package: str
    pip: str = "'flow-retriever[speed]'"
    name: str = "System"

    @property
    def installed(self) -> bool:
        return find_spec(self.package) is not None


SYSTEMS = {
    OURS: System("benchmarks.speed.rivals.ours", "retriever"),
    OURS_AUTOMATIC: System("benchmarks.speed.rivals.ours", "retriever", name="Automatic"),
    REFERENCE: System("benchmarks.speed.rivals.plain", "sentence_transformers", "'flow-retriever[bench]'"),
    "txtai": System("benchmarks.speed.rivals.txtai", "txtai"),
    "chroma": System("benchmarks.speed.rivals.chroma", "chromadb"),
    "lancedb": System("benchmarks.speed.rivals.lance", "lancedb"),
}


def rival(name: str, folder: Path, model: str) -> Rival:
    found: Rival = getattr(import_module(SYSTEMS[name].module), SYSTEMS[name].name)(folder, model)
    return found


def chosen_systems(names: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return the installed systems among the named ones, and a note about each that is not installed.

    By default, all systems are named.
    """
    if unknown := [name for name in names if name not in SYSTEMS]:
        raise Misuse(f"unknown system {', '.join(map(repr, unknown))}; known: {', '.join(SYSTEMS)}.")
    wanted = [name for name in SYSTEMS if name in (names or SYSTEMS)]
    missing = [name for name in wanted if not SYSTEMS[name].installed]
    notes = [
        f"{name} is left out, because it is not installed; install it with: pip install {SYSTEMS[name].pip}"
        for name in missing
    ]
    return [name for name in wanted if name not in missing], notes
