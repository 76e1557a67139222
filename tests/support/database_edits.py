"""Changes of a collection's database as a damaged disk makes them."""

import sqlite3
from contextlib import closing
from pathlib import Path


def damage_row(folder: Path, statement: str, *values: object) -> None:
    """Change a row as a damaged disk would: the triggers of the index of words do not fire."""
    with closing(sqlite3.connect(folder / "documents.sqlite")) as connection, connection:
        triggers = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND name GLOB 'words_*'"
        ).fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(statement, values)
        for _, creation in triggers:
            connection.execute(creation)
