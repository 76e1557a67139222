"""sqlite-utils, without pandas: it imports it where it is installed, which takes longer than a whole search."""

import sys

_absent = "pandas" not in sys.modules
if _absent:
    sys.modules["pandas"] = None  # type: ignore[assignment]
try:
    from sqlite_utils import Database
    from sqlite_utils.migrations import Migrations
finally:
    if _absent:
        del sys.modules["pandas"]

__all__ = ["Database", "Migrations"]
