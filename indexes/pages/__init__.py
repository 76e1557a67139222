"""Reads the files of SQLite as bytes, for `verify` and `salvage`."""
