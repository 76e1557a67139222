"""Documents, passages and raw vectors in SQLite: schema, connections, search by words, filters."""
