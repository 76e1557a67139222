"""SQLite's files read as bytes, for verify and salvage."""
