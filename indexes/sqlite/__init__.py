"""Documents, passages and raw vectors in SQLite: tables, migrations, connections, words, filters."""
