"""The settings of a collection: one JSON value per key, each with a checksum so that damage is noticed."""

import json
from typing import Any

from indexes.checksums import setting_checksum
from indexes.errors import Damaged
from indexes.sqlite.database import DatabaseFile

CHECKSUMS = "checksums"
"""The setting that holds the checksums of the others."""


class SettingsTable(DatabaseFile):
    """Reads and writes the table of settings."""

    def setting(self, key: str, *, checked: bool = True) -> Any:
        """Return a setting, None if it was never set. A `checked` one must match its checksum."""
        rows = dict(self.db.conn.execute("SELECT key, value FROM settings WHERE key IN (?, ?)", [key, CHECKSUMS]))
        if checked and not _matches(key, rows.get(key), self._checksums(rows)):
            raise self._not_as_stored(f"the setting {key!r}")
        return None if key not in rows else self._json(rows[key], f"the setting {key!r}")

    def set_settings(self, values: dict[str, Any]) -> None:
        """Change these settings. The others keep their checksums, so that no damage to them is hidden."""
        insert = "INSERT INTO settings VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        texts = {key: json.dumps(value, sort_keys=True) for key, value in values.items()}
        with self.changing() as db:
            sums = self._checksums(dict(db.conn.execute("SELECT key, value FROM settings")))
            sums |= {key: setting_checksum(key, text) for key, text in texts.items()}
            db.conn.executemany(insert, [*texts.items(), (CHECKSUMS, json.dumps(sums, sort_keys=True))])

    def renew_checksums(self) -> None:
        """Make the checksums of all settings again, from the values they have now."""
        with self.changing() as db:
            rows = dict(db.conn.execute("SELECT key, value FROM settings WHERE key <> ?", [CHECKSUMS]))
            sums = {key: setting_checksum(key, str(text)) for key, text in rows.items()}
            db.conn.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", [CHECKSUMS, json.dumps(sums)])

    def changed_settings(self) -> list[str]:
        """List the settings that do not match their checksums."""
        rows = dict(self.db.conn.execute("SELECT key, value FROM settings"))
        try:
            sums = self._checksums(rows)
        except Damaged:
            return [CHECKSUMS]
        if rows.pop(CHECKSUMS, None) is None:
            return [CHECKSUMS] if rows else []
        return sorted(key for key in {*rows, *sums} if not _matches(key, rows.get(key), sums))

    def _checksums(self, rows: dict[str, Any]) -> dict[str, int]:
        found = self._json(rows[CHECKSUMS], f"the setting {CHECKSUMS!r}") if CHECKSUMS in rows else {}
        if not isinstance(found, dict):
            raise self._not_as_stored(f"the setting {CHECKSUMS!r}")
        return found

    def _json(self, text: Any, what: str) -> Any:
        try:
            return json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise self._not_as_stored(what) from error


def _matches(key: str, text: Any, sums: dict[str, int]) -> bool:
    return key not in sums if text is None else setting_checksum(key, str(text)) == sums.get(key)
