"""Documents from every kind of file, and a clear reason for everything that is none."""

import codecs
import datetime
import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.corpus import Corpus, Document, Keys, Skipped
from retriever.corpus.document import content_id, text_id
from retriever.errors import Misuse

ROOT = Path(__file__).parents[2]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str | bytes], Path]:
    """Writes files below the folder the test runs in."""
    monkeypatch.chdir(tmp_path)

    def _write(name: str, content: str | bytes) -> Path:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return _write


Write = Callable[[str, str | bytes], Path]


def documents(corpus: Corpus) -> list[Document]:
    read = list(corpus)
    assert not [item for item in read if isinstance(item, Skipped)]
    return [item for item in read if isinstance(item, Document)]


def by_content(file: str, text: str, source: str, **metadata: Any) -> Document:
    """A row without an id, which goes by its content."""
    digest = Document("", text, "", metadata).content_hash().hex()
    return Document(f"{file}#{digest[:16]}", text, "", metadata, source)


FILE = {"file", "folder", "format", "date", "language", "encoding"}


def own(item: Document | Skipped) -> Document | Skipped:
    """A document without the metadata that every file has."""
    if isinstance(item, Skipped):
        return item
    return replace(item, metadata={key: value for key, value in item.metadata.items() if key not in FILE})


def skipped(corpus: Corpus) -> list[tuple[str, str]]:
    return [(item.where, item.reason) for item in corpus if isinstance(item, Skipped)]


def parquet(columns: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), buffer)
    return buffer.getvalue()


# JSONL


@pytest.mark.parametrize("name", ["notes.jsonl", "notes.jsonl.gz", "NOTES.JSONL"])
def test_jsonl(write: Write, name: str) -> None:
    path = write(
        name,
        '{"_id": "a", "title": "T", "text": "x\u2028y", "metadata": {"url": "u"}, "year": 1999}\r\n'
        "\n   \n"
        '{"id": 7, "text": "seven"}\n'
        '{"text": "no id", "title": null, "big": 123456789012345678901234567890}',
    )
    assert documents(Corpus([path])) == [
        Document("a", "x\u2028y", "T", {"url": "u", "year": 1999}, f"{name}:1"),
        Document("7", "seven", "", {}, f"{name}:4"),
        by_content(name, "no id", f"{name}:5", big=123456789012345678901234567890),
    ]


def test_jsonl_with_other_keys(write: Write) -> None:
    path = write("a.jsonl", '{"docno": "D1", "body": "b", "head": "h", "id": 3}\n{"body": "c"}\n')
    read = list(Corpus([path], keys=Keys(text="body", title="head", id="docno")))
    assert read[0] == Document("D1", "b", "h", {"id": 3}, "a.jsonl:1")
    assert isinstance(read[1], Skipped) and "'docno' is missing" in read[1].reason


def test_a_byte_order_mark_is_no_text(write: Write) -> None:
    bom = codecs.BOM_UTF8
    write("a.csv", bom + b'"text",id\nx,1\n')
    write("b.jsonl", bom + b'{"id": 2, "text": "x"}\n')
    write("c.tsv", bom + b"text\tid\nx\t3\n")
    folder = write("d.txt", bom + b"x").parent
    assert [(found.id, found.text) for found in documents(Corpus([folder]))] == [
        ("1", "x"),
        ("2", "x"),
        ("3", "x"),
        ("d.txt", "x"),
    ]


BAD_LINES = [
    (b'{"text": "a" "b"}', "not valid JSON: Expecting ',' delimiter at column 14"),
    (b'{"text": "caf\xe9"}', "invalid UTF-8: byte 0xe9 at position 14"),
    (b'["text"]', "is a list, not an object"),
    (b"null", "is null, not an object"),
    (
        b'{"body": "b", "id": 1}',
        "has no text: 'text' is missing; found: 'body', 'id'; see `Keys(text=...)`",
    ),
    (b'{"text": null}', "has no text: 'text' is null"),
    (b'{"text": 3}', "has no text: 'text' is a number, not a string"),
    (b'{"text": " \\n\\t"}', "has no text: 'text' is empty"),
    (b'{"text": "\\u0000"}', "has no text: 'text' is empty"),
    (b'{"text": "x", "id": 1.5}', "its id is a number, not a string or an integer"),
    (b'{"text": "x", "id": true}', "its id is a boolean, not a string or an integer"),
    (b'{"text": "x", "id": "a\\u0000"}', "its id holds a NUL character"),
    (b'{"text": "x", "title": ["t"]}', "its title is a list, not a string"),
    (b'{"text": "x", "metadata": "m"}', "its metadata is a string, not an object"),
    (b'{"text": "x", "score": NaN}', "not valid JSON: NaN is not a JSON number"),
    (b'{"text": "x", "score": -Infinity}', "not valid JSON: -Infinity is not a JSON number"),
    (b'{"text": "x", "score": 1e999}', "not valid JSON: the number 1e999 is too large"),
    (b'{"text": "\\ud800"}', "holds half a character (the lone surrogate \\ud800), which UTF-8 cannot store"),
    (
        b'{"text": "x", "a": {"\\udc00": 1}}',
        "holds half a character (the lone surrogate \\udc00), which UTF-8",
    ),
    (b'{"text": "x", "a": ' + b"[" * 200 + b"]" * 200 + b"}", "its JSON is nested too deeply"),
    (b'{"text": "x", "a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "its JSON is nested too deeply"),
    (b'{"text": "x", "a": ' + b"1" * 5000 + b"}", "not valid JSON: Exceeds the limit"),
]


@pytest.mark.parametrize(("line", "reason"), BAD_LINES, ids=lambda value: str(value)[:40])
def test_a_bad_line_is_named_and_the_rest_is_read(write: Write, line: bytes, reason: str) -> None:
    path = write("a.jsonl", b'{"id": 1, "text": "before"}\n' + line + b'\n{"id": 3, "text": "after"}\n')
    before, bad, after = Corpus([path])
    assert isinstance(before, Document) and isinstance(after, Document) and after.source == "a.jsonl:3"
    assert isinstance(bad, Skipped) and bad.where == "a.jsonl:2"
    assert bad.reason.startswith(reason)


def test_nul_characters_are_removed_and_escaped_pairs_are_characters(write: Write) -> None:
    path = write("a.jsonl", r'{"id": "a", "text": "x\u0000y \ud83d\ude00", "title": "\u0000t"}')
    assert documents(Corpus([path])) == [Document("a", "xy 😀", "t", {}, "a.jsonl:1")]


def test_many_brackets_are_not_depth(write: Write) -> None:
    path = write("a.jsonl", json.dumps({"text": "[" * 500, "a": [[1]] * 300}))
    assert len(documents(Corpus([path]))) == 1


# Tables


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_csv(write: Write, name: str) -> None:
    path = write(
        name,
        'id,title,text,lang\r\n1,"A ""quoted"" title","two\r\nlines, one field",en\r\n\r\n'
        "2,,short\r\n3,,,en\r\n4,,too,many,fields\r\n,,no id,en\r\n5,\0t,nul\0,en\r\n",
    )
    read = list(Corpus([path]))
    assert read == [
        Document("1", "two\r\nlines, one field", 'A "quoted" title', {"lang": "en"}, f"{name}:2"),
        Skipped(f"{name}:5", "has 3 columns, but the header has 4"),
        Skipped(f"{name}:6", "has no text: 'text' is empty"),
        Skipped(f"{name}:7", "has 5 columns, but the header has 4"),
        Document(content_id(name, "", "no id", {"lang": "en"}), "no id", "", {"lang": "en"}, f"{name}:8"),
        Document("5", "nul", "t", {"lang": "en"}, f"{name}:9"),
    ]


def test_csv_with_bad_quotes_bad_bytes_and_huge_fields(write: Write) -> None:
    huge = b"word " * 60_000
    path = write(
        "t.csv",
        b'id,text\n1,"a"b\n2,caf\xe9\n3,"line\nbad \xff\nline"\n4,' + huge + b'\n5,"never closed\n6,swallowed\n',
    )
    read = list(Corpus([path], encoding="utf-8"))
    assert [item.where if isinstance(item, Skipped) else item.id for item in read] == [
        *("t.csv:2", "t.csv:3", "t.csv:4", "4", "t.csv:8")
    ]
    reasons = [item.reason for item in read if isinstance(item, Skipped)]
    assert reasons[0].startswith("not valid CSV: ")
    assert reasons[1] == "invalid UTF-8: byte 0xe9 at position 6"
    assert reasons[2] == "invalid UTF-8: byte 0xff at position 5"
    assert reasons[3] == "not valid CSV: a quoted field that begins in this row is never closed"


def test_csv_with_the_line_ends_of_old_macs(write: Write) -> None:
    assert [d.text for d in documents(Corpus([write("t.csv", "id,text\r1,one\r2,two\r")]))] == ["one", "two"]


def test_tsv_knows_no_quotes(write: Write) -> None:
    path = write("t.tsv", 'text\tid\n"open\t1\r\nit\'s "fine"\t2\nonly one\ncaf\t3\tx\n')
    assert list(Corpus([path])) == [
        Document("1", '"open', "", {}, "t.tsv:2"),
        Document("2", 'it\'s "fine"', "", {}, "t.tsv:3"),
        Skipped("t.tsv:4", "has 1 columns, but the header has 2"),
        Skipped("t.tsv:5", "has 3 columns, but the header has 2"),
    ]


@pytest.mark.parametrize("name", ["t.parquet", "t.parquet.gz"])
def test_parquet(write: Write, name: str) -> None:
    columns = {
        "id": [1, 2, None],
        "text": pyarrow.array(["one", None, "three"]).dictionary_encode(),
        "title": ["A", "B", None],
        "when": [datetime.datetime(2020, 1, 2, 3, 4, 5), None, None],
        "exact": pyarrow.array([1_600_000_000_000_000_001, 0, 0], pyarrow.timestamp("ns")),
        "score": [0.5, 1.0, float("nan")],
        "raw": [b"\x00\xff", None, None],
        "metadata": [{"tags": ["a"]}, None, {"tags": None}],
    }
    read = list(Corpus([write(name, parquet(columns))]))
    first, second, third = read
    assert isinstance(first, Document) and isinstance(third, Document)
    assert (first.id, first.text, first.title, first.source) == ("1", "one", "A", f"{name}:1")
    assert first.metadata == {
        "when": "2020-01-02T03:04:05",
        "exact": "2020-09-13T12:26:40",
        "score": 0.5,
        "raw": "00ff",
        "tags": ["a"],
    }
    assert second == Skipped(f"{name}:2", "has no text: 'text' is null")
    assert third.id == f"{name}#{third.content_hash().hex()[:16]}" and third.metadata["score"] is None
    json.dumps(third.metadata, allow_nan=False)


def test_parquet_with_invalid_utf8_loses_only_that_row(write: Write) -> None:
    bad = pyarrow.Array.from_buffers(
        pyarrow.string(),
        2,
        [None, pyarrow.py_buffer(b"\0\0\0\0\x01\0\0\0\x02\0\0\0"), pyarrow.py_buffer(b"\xffb")],
    )
    read = list(Corpus([write("t.parquet", parquet({"text": bad}))]))
    assert isinstance(read[0], Skipped) and read[0].where == "t.parquet:1"
    assert read[1] == by_content("t.parquet", "b", "t.parquet:2")


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.parquet"])
def test_a_missing_column_is_misuse_and_says_which_there_are(write: Write, name: str) -> None:
    tab = "\t" if name == "t.tsv" else ","
    content = parquet({"id": ["1"], "body": ["x"]}) if name == "t.parquet" else f"id{tab}body\n1{tab}x\n"
    path = write(name, content)
    with pytest.raises(Misuse, match=rf"{name}: no column 'text'; found: 'id', 'body'.*`Keys\(text=\.\.\.\)`"):
        list(Corpus([path]))
    with pytest.raises(Misuse, match=r"no column 'nr'.*`Keys\(id=\.\.\.\)`"):
        list(Corpus([path], keys=Keys(text="body", id="nr")))
    with pytest.raises(Misuse, match=r"no column 'head'.*`Keys\(title=\.\.\.\)`"):
        list(Corpus([path], keys=Keys(text="body", title="head")))
    assert [d.text for d in documents(Corpus([path], keys=Keys(text="body")))] == ["x"]


def test_two_columns_of_one_name_are_misuse(write: Write) -> None:
    with pytest.raises(Misuse, match="more than one column is called 'text'"):
        list(Corpus([write("t.csv", "text,text\na,b\n")]))


def test_tables_without_header(write: Write) -> None:
    assert skipped(Corpus([write("t.csv", ""), write("u.tsv", "\n")])) == [
        ("t.csv", "is empty: a header row with the names of the columns is needed"),
        ("u.tsv", "is empty: a header row with the names of the columns is needed"),
    ]


# Text


def test_text_files(write: Write) -> None:
    write("b/x.txt", "One.\nTwo.\n")
    write("b/y.md.gz", "```\n# no heading\n```\n# A *heading* #\n\nBody.\n")
    write("b/z.md", "# Only a heading\n")
    write("b/empty.txt", " \n")
    write("b/w.md", "\n# Top #\n\nBody of it.\n")
    folder = write("b/bad.txt", b"ok\n\xff").parent
    assert list(map(own, Corpus([folder], encoding="utf-8"))) == [
        Skipped("bad.txt", "is not utf-8: 'utf-8' codec can't decode byte 0xff in position 3: invalid start byte"),
        Skipped("empty.txt", "has no text"),
        Document("w.md", "Body of it.\n", "Top", {}, "w.md:4"),
        Document("x.txt", "One.\nTwo.\n", "", {}, "x.txt"),
        Document("y.md.gz", "```\n# no heading\n```\n# A *heading* #\n\nBody.\n", "A *heading*", {}, "y.md.gz"),
        Document("z.md", "# Only a heading\n", "Only a heading", {}, "z.md"),
    ]


def test_a_text_file_by_lines(write: Write) -> None:
    path = write("a.txt", b"one\r\n\n\xff\nthree")
    assert list(Corpus([path], lines=True, encoding="utf-8")) == [
        by_content("a.txt", "one", "a.txt:1"),
        Skipped("a.txt:3", "invalid UTF-8: byte 0xff at position 1"),
        by_content("a.txt", "three", "a.txt:4"),
    ]


@pytest.mark.parametrize(
    ("given_bytes", "expected"),
    [
        (b'\n {"id": "a", "text": "x"}\n{"text": "y"}\nno\n', ["a", text_id("y"), "stdin:4: not valid JSON"]),
        (b"id;text\na;one\nb;two\n", ["a", "b"]),
        (b"id\ttext\na\tone\n", ["a"]),
        (b"plain {\n\n[x]\n", [text_id("plain {"), text_id("[x]")]),
        (b"", []),
    ],
)
def test_stdin(given_bytes: bytes, expected: list[str]) -> None:
    corpus = Corpus(["-", "-"], stdin=io.BytesIO(given_bytes))
    assert corpus.fraction_read is None
    read = [item.id if isinstance(item, Document) else f"{item.where}: {item.reason[:14]}" for item in corpus]
    assert read == expected
    with pytest.raises(Misuse, match="only once"):
        list(corpus)


# Sources


def test_a_folder_is_walked_in_order_without_hidden_and_unknown_files(write: Write, tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.txt", "a/.hidden.txt", ".git/x.txt", "image.png", "c.txt.bak", "a/b/y.md"):
        write(f"docs/{name}", name)
    (tmp_path / "docs" / "a" / "loop").symlink_to(tmp_path / "docs")
    (tmp_path / "docs" / "gone.txt").symlink_to(tmp_path / "nowhere.txt")
    corpus = Corpus([tmp_path / "docs"])
    assert [item.id if isinstance(item, Document) else item.where for item in corpus] == [
        *("b.txt", "gone.txt", "a/z.txt", "a/b/y.md")
    ]
    assert skipped(corpus) == [("gone.txt", "cannot be read: No such file or directory")]


@pytest.mark.parametrize("corpus_name", ["corpus.jsonl", "corpus.jsonl.gz"])
def test_a_beir_folder_gives_only_its_corpus(write: Write, tmp_path: Path, corpus_name: str) -> None:
    write(f"sets/scifact/{corpus_name}", '{"_id": "4983", "title": "T", "text": "x", "metadata": {}}\n')
    write("sets/scifact/queries.jsonl", '{"_id": "1", "text": "a query"}\n')
    write("sets/scifact/qrels/test.tsv", "query-id\tcorpus-id\tscore\n1\t4983\t1\n")
    write("sets/other.txt", "other")
    assert [found.id for found in documents(Corpus([tmp_path / "sets" / "scifact"]))] == ["4983"]
    assert [found.id for found in documents(Corpus([tmp_path / "sets"]))] == ["other.txt", "4983"]


def test_a_file_is_read_once_and_names_never_clash(write: Write, tmp_path: Path) -> None:
    first, second = write("a/n.txt", "first"), write("b/n.txt", "second")
    (tmp_path / "a" / "link.txt").symlink_to(tmp_path / second)
    assert [(d.id, d.text) for d in documents(Corpus([first, first.parent, str(first), first.parent]))] == [
        ("n.txt", "first"),
        ("link.txt", "second"),
    ]
    (tmp_path / "a" / "link.txt").unlink()
    assert [(d.id, d.text) for d in documents(Corpus(["a", "b"]))] == [("n.txt", "first"), ("b/n.txt", "second")]


def test_ids_are_the_same_from_wherever_a_file_is_read(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = write("2023/report.md", "old"), write("2024/report.md", "new")
    table = write("2024/t.csv", "text\nx\n")
    assert [d.id for d in documents(Corpus([old, new]))] == ["report.md", "2024/report.md"]
    read = [documents(Corpus([path])) for path in (table, tmp_path / table, "./2024/../2024/t.csv")]
    folders = [documents(Corpus([path])) for path in ("2024", tmp_path / "2024", "./2023/../2024")]
    monkeypatch.chdir(tmp_path / "2024")
    read.append(documents(Corpus(["t.csv"])))
    folders += [documents(Corpus(["."])), documents(Corpus(["../2024"]))]
    assert all(found == [by_content("t.csv", "x", "t.csv:2")] for found in read)
    assert all(found == folders[0] for found in folders) and folders[0][0].id == "report.md"


@pytest.mark.parametrize("key", ["id", "ID", "_id", "Id", "key"])
def test_columns_that_are_ids(write: Write, key: str) -> None:
    (found,) = documents(Corpus([write("t.csv", f"{key},text\n7,x\n")]))
    assert (found.id, found.metadata) == ("7", {})


def test_an_inserted_row_changes_no_other_id(write: Write) -> None:
    before = {d.id for d in documents(Corpus([write("t.csv", "text,year\na,1\nb,2\na,3\n")]))}
    after = {d.id for d in documents(Corpus([write("t.csv", "text,year\nnew,0\na,1\nb,2\na,3\n")]))}
    assert len(before) == 3 and before < after and len(after) == 4


def test_lines_of_stdin_are_known_by_their_text_in_every_run() -> None:
    first, second = (
        {d.text: d.id for d in documents(Corpus(["-"], stdin=io.BytesIO(data)))} for data in (b"a\nb\n", b"c\na\n")
    )
    assert first["a"] == second["a"] == hashlib.sha256(b"a").hexdigest()[:16]
    assert len({*first.values(), *second.values()}) == 3


@pytest.mark.parametrize("name", ["t.csv", "t.tsv.gz", "t.parquet"])
def test_a_table_of_something_else_does_not_stop_a_folder(write: Write, name: str) -> None:
    write(f"docs/{name}", parquet({"price": [1.5]}) if "parquet" in name else "price\n1.5\n")
    write("docs/z.txt", "after it")
    table, text = Corpus(["docs"])
    assert table == Skipped(name, "no column 'text'; found: 'price'; see `Keys(text=...)`")
    assert isinstance(text, Document) and text.text == "after it"
    with pytest.raises(Misuse, match=f"{name}: no column 'text'"):
        list(Corpus([f"docs/{name}"]))


def test_keys_that_cannot_be_changed_are_named(write: Write) -> None:
    for path in (write("q.jsonl", '{"body": "x"}\n'), write("q.csv", "body\nx\n")):
        try:
            message = str(list(Corpus([path], keys=Keys(fixed=True))))
        except Misuse as error:
            message = str(error)
        assert "the known keys are text, title, _id, id, ID, Id and key" in message and "--" not in message


def test_misuse_is_told_before_anything_is_read(write: Write, tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="no source"):
        Corpus([])
    with pytest.raises(Misuse, match=r"no such file or folder: .*gone\.txt, .*lost$"):
        Corpus([tmp_path / "gone.txt", tmp_path, str(tmp_path / "lost")])
    with pytest.raises(Misuse, match=r"a\.xyz: unknown type of file; the known types are \.jsonl, .*\.csv, .*\.gz"):
        Corpus([write("x/a.xyz", "%PDF")])
    with pytest.raises(Misuse, match="no readable file in this folder; the known types are"):
        Corpus([tmp_path / "x"])
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(Misuse, match="not a regular file"):
        Corpus([tmp_path / "pipe.txt"])


def test_damaged_files_are_told_and_what_came_before_is_kept(write: Write, tmp_path: Path) -> None:
    lines = b"".join(b'{"id": %d, "text": "%s"}\n' % (n, os.urandom(20).hex().encode()) for n in range(5000))
    packed = gzip.compress(lines)
    (tmp_path / "a.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "b.jsonl.gz").write_bytes(b"no gzip at all")
    (tmp_path / "c.jsonl.gz").write_bytes(packed[:5000] + b"\0" * 100 + packed[5100:])
    (tmp_path / "d.parquet").write_bytes(b"no parquet at all")
    (tmp_path / "e.parquet.gz").write_bytes(gzip.compress(parquet({"text": ["x"]}))[:-30])
    (tmp_path / "f.txt").write_text("last")
    read = list(Corpus([tmp_path]))
    reasons = [(item.where, item.reason) for item in read if isinstance(item, Skipped) and ":" not in item.where]
    assert [where for where, _ in reasons] == [*("a.jsonl.gz", "b.jsonl.gz", "c.jsonl.gz", "d.parquet", "e.parquet.gz")]
    assert reasons[0][1] == reasons[4][1] == "is a truncated gzip file"
    assert "gzip" in reasons[1][1] and "gzip" in reasons[2][1] and "Parquet" in reasons[3][1]
    kept = [item for item in read if isinstance(item, Document) and item.source.startswith("a.")]
    assert 2000 < len(kept) < 3000
    assert isinstance(read[-1], Document) and read[-1].text == "last"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_files_are_told(write: Write) -> None:
    path = write("a/x.txt", "x")
    path.chmod(0)
    assert skipped(Corpus([path.parent])) == [("x.txt", "cannot be read: Permission denied")]


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz", "t.csv", "t.tsv", "t.parquet", "t.parquet.gz"])
def test_progress_grows_from_nothing_to_everything_and_again(write: Write, name: str) -> None:
    texts = [os.urandom(100).hex() for _ in range(3000)]
    if ".parquet" in name:
        content = parquet({"text": texts})
    elif ".jsonl" in name:
        content = "\n".join(json.dumps({"text": text}) for text in texts).encode()
    else:
        content = "\n".join(["text", *texts]).encode()
    corpus = Corpus([write(name, content), write("z/last.txt", "x" * 100)])
    for _ in range(2):
        seen = [corpus.fraction_read or 0.0 for _ in corpus]
        assert len(seen) == 3001
        assert seen == sorted(seen) and seen[0] < 0.2 and 0.3 < seen[1500] < 0.7
        assert corpus.fraction_read == 1.0


# Documents


def test_content_hash_depends_on_content_only() -> None:
    one = Document("a", "text", "title", {"x": 1, "y": [2]}, "f:1")
    assert one.content_hash() == Document("b", "text", "title", {"y": [2], "x": 1}, "g:2").content_hash()
    others = [
        Document("a", "text", "titl", {"x": 1, "y": [2]}),
        Document("a", "titletext", "", {"x": 1, "y": [2]}),
        Document("a", "text", "title", {"x": 1, "y": [3]}),
        Document("a", "text", "title"),
    ]
    assert len({one.content_hash(), *(other.content_hash() for other in others)}) == 5


@given(st.binary(max_size=200))
def test_no_bytes_on_stdin_break_the_reader(data: bytes) -> None:
    try:
        read = list(Corpus(["-"], stdin=io.BytesIO(b"{" + data)))
    except Misuse as error:
        assert "standard input is not text" in str(error)
    else:
        assert all(isinstance(item, Document | Skipped) for item in read)


@given(st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=4), max_size=5))
def test_what_json_holds_is_what_is_read(records: list[dict[str, str]]) -> None:
    given_records = [{**record, "text": "t", "id": str(n)} for n, record in enumerate(records) if "_id" not in record]
    for record in given_records:
        record.pop("metadata", None)
        record.pop("title", None)
    data = "\n".join(json.dumps(record) for record in given_records).encode()
    read = documents(Corpus(["-"], stdin=io.BytesIO(data)))
    assert [{**found.metadata, "text": found.text, "id": found.id} for found in read] == given_records


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys, retriever.corpus, retriever.corpus.passages, retriever.corpus.python_docs;"
        "print(*{'torch', 'transformers', 'numpy', 'faiss', 'pyarrow'} & set(sys.modules))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""


WITHOUT_PYARROW = (
    "import sys; sys.modules['pyarrow'] = None\n"
    "from retriever.cli.entry import main\n"
    "sys.argv = ['retriever', *sys.argv[1:]]; main()"
)


def test_without_pyarrow_the_extra_is_named(write: Write, tmp_path: Path, tiny_bert: str) -> None:
    def retriever(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", WITHOUT_PYARROW, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})

    table, folder = write("docs/a.parquet", parquet({"text": ["a cat"]})), tmp_path / "index"
    index = ("--index", folder, "--encoder", tiny_bert)
    given = retriever("index", table, *index)
    reason = "a.parquet: reading Parquet needs pyarrow; install it with: pip install 'flow-retriever[parquet]'"
    assert given.returncode == 2 and given.stderr.strip().endswith(reason) and len(given.stderr.splitlines()) == 1
    write("docs/b.txt", "a dog")
    walked = retriever("index", table.parent, *index)
    assert walked.returncode == 0 and reason in walked.stderr, "the rest of a folder is indexed"
    exported = retriever("export", tmp_path / "out.parquet", "--index", folder)
    assert exported.returncode == 1 and len(exported.stderr.splitlines()) == 1
    assert "exporting Parquet needs pyarrow; install it with: pip install 'flow-retriever[parquet]'" in exported.stderr
    assert not (tmp_path / "out.parquet").exists()
