"""Whether two collections hold the same, byte for byte; only when they were made may differ, and how quick they are."""

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

TIMES = ("created", "checksums")


def contents(folder: Path) -> dict[str, Any]:
    """All tables, and all files of the published generation."""
    found: dict[str, Any] = {}
    with contextlib.closing(sqlite3.connect(f"file:{folder / 'documents.sqlite'}?mode=ro", uri=True)) as connection:
        # The index of words stores no text, so its own table cannot be read without the collection's SQL functions.
        # Which files are known to be unchanged depends on how long before the run they were written.
        tables = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT IN ('words', 'files')"
        ).fetchall()
        for (name,) in tables:
            found[name] = connection.execute(f'SELECT * FROM "{name}"').fetchall()  # noqa: S608 - a table's own name
    found["settings"] = {key: _timeless(json.loads(value)) for key, value in found["settings"] if key not in TIMES}
    found["generations"] = [row[:2] for row in found["generations"]]
    for path in sorted(folder.glob("generations/*/*")):
        found[path.name] = path.read_bytes()
    manifest = json.loads(found["manifest.json"])
    del manifest["created"]
    manifest["measured"].pop("cpu_ms", None)
    return found | {"manifest.json": manifest}


def _timeless(value: Any) -> Any:
    """A setting without how long it took to choose it."""
    return {key: own for key, own in value.items() if key != "seconds"} if isinstance(value, dict) else value


def differing(one: Path, other: Path) -> list[str]:
    """The tables and files that are not the same; what holds nothing at all counts as such."""
    ours, theirs = contents(one), contents(other)
    assert ours["vectors"] and ours["documents"] and ours["vectors.faiss"]
    return [name for name in sorted({*ours, *theirs}) if ours.get(name) != theirs.get(name)]
