"""The SQLite schema of a collection, as numbered migrations that are never edited once released.

A vector belongs to a text, not to a document: a text that two documents share is one row of `vectors` and two rows of
`passages`. Numbers in `vectors.id` are never reused (AUTOINCREMENT), so the highest number in a generation of the FAISS
index shows which vectors the index lacks. `documents.seal` is a hash over a document's id, content, source and
passages, including the texts of the passages. `vectors.checksum` is a checksum over a vector and the hash of its text.
Triggers maintain the table `unused`, which lists the vectors that no passage refers to. `PRAGMA user_version` is the
number of migrations that were applied.
"""

PRE_RELEASE_TABLE = "_sqlite_migrations"
"""A table that exists only in databases from before the first release."""

INITIAL = """
CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE documents (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    title TEXT NOT NULL,
    text TEXT NOT NULL,
    metadata TEXT NOT NULL,
    content_hash BLOB NOT NULL,
    source TEXT NOT NULL,
    seal BLOB NOT NULL
);

CREATE TABLE vectors (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    text_hash BLOB NOT NULL UNIQUE,
    vector BLOB NOT NULL,
    checksum INTEGER NOT NULL
);

CREATE TABLE passages (
    document INTEGER NOT NULL REFERENCES documents(number) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    start INTEGER NOT NULL,
    "end" INTEGER NOT NULL,
    vector INTEGER NOT NULL REFERENCES vectors(id),
    PRIMARY KEY (document, position)
) WITHOUT ROWID;
CREATE INDEX passages_by_vector ON passages(vector);

CREATE TABLE unused (vector INTEGER PRIMARY KEY REFERENCES vectors(id) ON DELETE CASCADE);
CREATE TRIGGER vector_arrives AFTER INSERT ON vectors BEGIN
    INSERT OR IGNORE INTO unused VALUES (NEW.id);
END;
CREATE TRIGGER passage_arrives AFTER INSERT ON passages BEGIN
    DELETE FROM unused WHERE vector = NEW.vector;
END;
CREATE TRIGGER passage_leaves AFTER DELETE ON passages
WHEN NOT EXISTS (SELECT 1 FROM passages WHERE vector = OLD.vector) BEGIN
    INSERT OR IGNORE INTO unused SELECT id FROM vectors WHERE id = OLD.vector;
END;

CREATE TABLE generations (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    folder TEXT NOT NULL,
    manifest_sha256 TEXT NOT NULL,
    published_at TEXT NOT NULL
);
CREATE TABLE generation_files (
    generation INTEGER NOT NULL REFERENCES generations(number) ON DELETE CASCADE,
    name TEXT NOT NULL,
    bytes BLOB NOT NULL,
    PRIMARY KEY (generation, name)
);

CREATE TABLE quarantine (
    number INTEGER PRIMARY KEY,
    reason TEXT NOT NULL,
    at TEXT NOT NULL,
    table_name TEXT NOT NULL,
    row TEXT NOT NULL
);
"""

# The index of words (words.py) does not store the texts, so a delete must repeat the text that was inserted.
WORDS = """
CREATE VIRTUAL TABLE words USING fts5(
    title, text, content='documents', content_rowid='number', tokenize='porter unicode61 remove_diacritics 2'
);
CREATE TRIGGER words_arrive AFTER INSERT ON documents BEGIN
    INSERT INTO words (rowid, title, text) VALUES (NEW.number, NEW.title, NEW.text);
END;
CREATE TRIGGER words_leave AFTER DELETE ON documents BEGIN
    INSERT INTO words (words, rowid, title, text) VALUES ('delete', OLD.number, OLD.title, OLD.text);
END;
CREATE TRIGGER words_change AFTER UPDATE OF title, text ON documents BEGIN
    INSERT INTO words (words, rowid, title, text) VALUES ('delete', OLD.number, OLD.title, OLD.text);
    INSERT INTO words (rowid, title, text) VALUES (NEW.number, NEW.title, NEW.text);
END;
INSERT INTO words (words) VALUES ('rebuild');
"""

WORDS_TRIGGERS = ("words_arrive", "words_leave", "words_change")
MIGRATIONS = (INITIAL + WORDS,)
FORMAT = len(MIGRATIONS)
