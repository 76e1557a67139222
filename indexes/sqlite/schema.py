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

# The index of words (words.py) holds the terms of documents (indexes/terms.py). FTS5 gets them separated by spaces from
# SQL functions that `connections.py` defines. It stores no text, so a delete must repeat the terms that were inserted.
# If the language changes, all terms change. No trigger adds the terms of a new document: `documents.py` has its text in
# memory, and stores the terms with it in half the time.
WORDS = """
DROP TRIGGER IF EXISTS words_leave;
DROP TRIGGER IF EXISTS words_change;
DROP TRIGGER IF EXISTS words_change_begins;
DROP TRIGGER IF EXISTS words_change_ends;
DROP TRIGGER IF EXISTS words_language_arrives;
DROP TRIGGER IF EXISTS words_language_changes;
DROP TABLE IF EXISTS words_vocabulary;
DROP TABLE IF EXISTS words;
DROP VIEW IF EXISTS words_of_documents;
CREATE VIEW words_of_documents AS SELECT
    number,
    id_terms(CAST(id AS BLOB), language) AS id,
    field_terms(CAST(title AS BLOB), language) AS title,
    text_terms(CAST(text AS BLOB), language) AS text,
    compounds(CAST(text AS BLOB), language) AS compounds
FROM documents, (SELECT CAST(coalesce((SELECT value FROM settings WHERE key = 'language'), '') AS BLOB) AS language);
CREATE VIRTUAL TABLE words USING fts5(
    id, title, text, compounds, content='words_of_documents', content_rowid='number', tokenize='ascii'
);
CREATE VIRTUAL TABLE words_vocabulary USING fts5vocab('words', 'row');
CREATE TRIGGER words_leave BEFORE DELETE ON documents BEGIN
    INSERT INTO words (words, rowid, id, title, text, compounds)
    SELECT 'delete', * FROM words_of_documents WHERE number = OLD.number;
END;
CREATE TRIGGER words_change_begins BEFORE UPDATE OF id, title, text ON documents BEGIN
    INSERT INTO words (words, rowid, id, title, text, compounds)
    SELECT 'delete', * FROM words_of_documents WHERE number = OLD.number;
END;
CREATE TRIGGER words_change_ends AFTER UPDATE OF id, title, text ON documents BEGIN
    INSERT INTO words (rowid, id, title, text, compounds) SELECT * FROM words_of_documents WHERE number = NEW.number;
END;
CREATE TRIGGER words_language_arrives AFTER INSERT ON settings WHEN NEW.key = 'language' BEGIN
    INSERT INTO words (words) VALUES ('rebuild');
END;
CREATE TRIGGER words_language_changes AFTER UPDATE ON settings
WHEN NEW.key = 'language' AND NEW.value IS NOT OLD.value BEGIN
    INSERT INTO words (words) VALUES ('rebuild');
END;
INSERT INTO words (words) VALUES ('rebuild');
"""

WORDS_PARTS = (
    *("words", "words_docsize", "words_vocabulary", "words_of_documents", "words_leave"),
    *("words_change_begins", "words_change_ends", "words_language_arrives", "words_language_changes"),
)
"""The tables, views and triggers of the index of words."""
# The state of a file is its size, its times and how it was read. A file in the same state is not read again.
FILES = """
CREATE TABLE files (
    document INTEGER PRIMARY KEY REFERENCES documents(number) ON DELETE CASCADE,
    state TEXT NOT NULL
);
CREATE TRIGGER file_changes AFTER UPDATE OF content_hash ON documents BEGIN
    DELETE FROM files WHERE document = NEW.number;
END;
"""
MIGRATIONS = (INITIAL, WORDS, FILES)
FORMAT = len(MIGRATIONS)
CREATED = "".join(MIGRATIONS)
"""All statements of the migrations. SQLite keeps the text of a statement that creates something as it is."""
CREATED_BY_SQLITE = {
    "CREATE TABLE sqlite_sequence(name,seq)",
    "CREATE TABLE sqlite_stat1(tbl,idx,stat)",
    "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)",
    "CREATE TABLE 'words_data'(id INTEGER PRIMARY KEY, block BLOB)",
    "CREATE TABLE 'words_idx'(segid, term, pgno, PRIMARY KEY(segid, term)) WITHOUT ROWID",
    "CREATE TABLE 'words_docsize'(id INTEGER PRIMARY KEY, sz BLOB)",
    "CREATE TABLE 'words_config'(k PRIMARY KEY, v) WITHOUT ROWID",
}
"""The tables that SQLite and FTS5 create for ours, in all versions of SQLite."""
