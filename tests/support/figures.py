"""The rows that a benchmark leaves in a folder, and the figures among them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def rows_in(out: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((out / "results.json").read_text())
    return found


def pick(rows: Sequence[dict[str, Any]], **wanted: object) -> list[float]:
    return [row["value"] for row in rows if all(row[key] == value for key, value in wanted.items())]
