"""Which files of a folder are read, and that every other one is accounted for."""

import io
import os
from pathlib import Path
from typing import Any

import pytest

from retriever.corpus import Corpus, Document, Skipped
from retriever.errors import Misuse


def write(folder: Path, *names: str, text: str = "some text") -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def read(corpus: Corpus) -> list[str]:
    return [item.id for item in corpus if isinstance(item, Document)]


def test_every_file_is_accounted_for_by_kind_and_reason(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "b.txt", "sub/c.md", "d.png", "sub/e.png", "Makefile", ".env", ".git/x.md", "t.jsonl")
    (tmp_path / "empty.txt").write_text(" \n")
    corpus = Corpus([tmp_path])
    assert read(corpus) == ["a.md", "b.txt", "sub/c.md"]
    assert dict(corpus.account.read) == {"md": 2, "txt": 1}
    unread = {key: (entry.count, entry.names) for key, entry in corpus.account.unread.items()}
    assert unread == {
        (".png", "unknown kind"): (2, ["d.png", "sub/e.png"]),
        ("without ending", "unknown kind"): (1, ["Makefile"]),
        ("", "hidden"): (2, [".env", ".git/"]),
        ("txt", "has no text"): (1, ["empty.txt"]),
        ("jsonl", "none of its records can be read"): (1, ["t.jsonl"]),
    }
    assert corpus.account.sentences() == [
        "Read 3 files: 2 md, 1 txt.",
        "Not read: 2, hidden: .env, .git/",
        "Not read: 2 .png, unknown kind: d.png, sub/e.png",
        "Not read: 1 without ending, unknown kind: Makefile",
        "Not read: 1 txt, has no text: empty.txt",
        "Not read: 1 jsonl, none of its records can be read: t.jsonl",
    ]
    assert list(corpus) and dict(corpus.account.read) == {"md": 2, "txt": 1}, "counted once in each reading"


def test_only_the_first_files_of_a_reason_are_named(tmp_path: Path) -> None:
    write(tmp_path, "a.md", *(f"{number}.png" for number in range(9)))
    corpus = Corpus([tmp_path])
    list(corpus)
    assert corpus.account.sentences()[1] == "Not read: 9 .png, unknown kind: 0.png, 1.png, 2.png, 3.png, 4.png, …"


def test_gitignore(tmp_path: Path) -> None:
    write(
        tmp_path,
        "keep.md",
        "drop.log.md",
        "build/x.md",
        "sub/build/y.md",
        "sub/local.md",
        "sub/deep/local.md",
        "top.md",
    )
    write(tmp_path, "sub/notes/drop.log.md")
    (tmp_path / ".gitignore").write_text("*.log.md\nbuild/\n/top.md\n!\n")
    (tmp_path / "sub" / ".gitignore").write_text("/local.md\n!notes/*.log.md\n")
    corpus = Corpus([tmp_path])
    assert read(corpus) == ["keep.md", "sub/deep/local.md", "sub/notes/drop.log.md"]
    ignored = corpus.account.unread["", "ignored by .gitignore"]
    assert ignored.count == 5
    assert ignored.names == ["build/", "drop.log.md", "top.md", "sub/build/", "sub/local.md"]


def test_gitignore_of_the_repository_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "docs/a.md", "docs/_build/b.md", "out/c.md")
    (tmp_path / ".gitignore").write_text("docs/_build\nout/\n")
    assert read(Corpus([tmp_path / "docs"])) == ["a.md", "_build/b.md"], "no repository"
    (tmp_path / ".git").mkdir()
    assert read(Corpus([tmp_path / "docs"])) == ["a.md"]
    assert read(Corpus([tmp_path / "out"])) == ["c.md"], "the user named it"
    monkeypatch.chdir(tmp_path / "docs")
    assert read(Corpus(["."])) == ["a.md"]


def test_include_and_exclude(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "b.py", "sub/c.py", "sub/d.md", "old/e.py", ".hidden.py")
    assert read(Corpus([tmp_path], include=["*.py"])) == ["b.py", "old/e.py", "sub/c.py"]
    corpus = Corpus([tmp_path], include=["*.py", "/a.md"], exclude=["old"])
    assert read(corpus) == ["a.md", "b.py", "sub/c.py"]
    assert {reason: entry.names for (_, reason), entry in corpus.account.unread.items()} == {
        "hidden": [".hidden.py"],
        "excluded": ["old/"],
        "not included": ["sub/d.md"],
    }


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list everything")
def test_a_folder_without_permission_is_named(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "locked/b.md")
    (tmp_path / "locked").chmod(0)
    try:
        (item,) = (item for item in Corpus([tmp_path]) if isinstance(item, Skipped))
    finally:
        (tmp_path / "locked").chmod(0o700)
    assert item.reason == "cannot be listed: Permission denied" and item.file == "locked"


@pytest.mark.parametrize(
    ("data", "kind"),
    [(b"%PDF-1.7\n", "a PDF"), (b"PK\x03\x04\x14", "a zip archive"), (bytes(range(256)) * 20, "binary data")],
)
def test_binary_input_is_refused(data: bytes, kind: str) -> None:
    with pytest.raises(Misuse, match=f"standard input is not text: it looks like {kind}"):
        list(Corpus(["-"], stdin=io.BytesIO(data)))


def test_standard_input_as_one_document() -> None:
    (item,) = Corpus(["-"], whole=True, stdin=io.BytesIO(b"<p>one\n\ntwo\n"))
    assert isinstance(item, Document) and item.text == "<p>one\n\ntwo\n" and item.source == "stdin"


@pytest.mark.parametrize("data", ['[{"text": "one"},\n {"text": "two"}]', '\ufeff[\n{"text": "one"}, {"text": "two"}]'])
def test_json_over_several_lines_is_not_read_by_lines(data: str) -> None:
    found = list(Corpus(["-"], stdin=io.BytesIO(data.encode())))
    assert [item.text for item in found if isinstance(item, Document)] == ["one", "two"]
    by_lines = Corpus(["-"], stdin=io.BytesIO(b'{"text": "one"}\n{"text": "two"}\n'))
    assert [item.id for item in found if isinstance(item, Document)] == read(by_lines)


def test_an_object_over_several_lines_is_one_document() -> None:
    (item,) = Corpus(["-"], stdin=io.BytesIO(b'{\n "text": "one",\n "colour": "red"\n}\n'))
    assert isinstance(item, Document) and item.text == "one" and item.metadata == {"colour": "red"}


@pytest.mark.parametrize("data", [b"<!DOCTYPE html>\n<p>one\n<p>two", b"\n<html lang=en>\n<body>x", b"<?xml?><html>"])
def test_html_is_not_read_by_lines(data: bytes) -> None:
    with pytest.raises(Misuse, match=r"looks like HTML.*or read its source as one document"):
        list(Corpus(["-"], stdin=io.BytesIO(data)))
    (item,) = Corpus(["-"], whole=True, stdin=io.BytesIO(data))
    assert isinstance(item, Document)


def test_only_the_first_reasons_are_told_and_no_file_twice(tmp_path: Path) -> None:
    write(tmp_path, "a.md", *(f"{number}.kind{number}" for number in range(20)))
    corpus = Corpus([tmp_path])
    list(corpus)
    read_line, *unread, last = corpus.account.sentences()
    assert len(unread) == 12 and last.startswith("Not read: 8 more, for other reasons: ") and last.endswith(", …")
    told = {f"{number}.kind{number}" for number in range(19)}
    assert corpus.account.sentences(told) == [
        read_line,
        "Not read: 19 files, named as skipped.",
        'Not read: 1 .kind19, unknown kind (`include=["*.kind19"]` reads it as text): 19.kind19',
    ]


def test_a_collection_in_a_folder_is_one_entry(tmp_path: Path) -> None:
    (tmp_path / "collections" / "notes" / "generations").mkdir(parents=True)
    (tmp_path / "collections" / "notes" / "documents.sqlite").touch()
    (tmp_path / "collections" / "notes" / "checked.json").write_text("{}")
    (tmp_path / "a.txt").write_text("text")
    corpus = Corpus([tmp_path])
    assert [item.id for item in corpus if isinstance(item, Document)] == ["a.txt"]
    assert corpus.account.unread["", "a collection"].names == ["collections/notes/"]


@pytest.mark.parametrize(
    ("given", "named", "message"),
    [
        ("notes", {}, "`sources` must be a list of files and folders: Corpus(['notes'])."),
        (Path("notes"), {}, "`sources` must be a list of files and folders: Corpus(['notes'])."),
        (None, {}, "`sources` must be a list of files and folders, not None."),
        ([None], {}, "`sources` must be a list of files and folders, not [None]."),
        (["-"], {"encoding": 5}, "`encoding` must be the name of an encoding, e.g. cp1252, not 5."),
        (["-"], {"keys": {"text": "body"}}, "`keys` must be Keys, not a dict: Keys(text='body')."),
        (["-"], {"keys": "Product"}, "`keys` must be Keys, e.g. Keys(text='Product')."),
        (["-"], {"include": "*.md"}, "`include` must be a list of patterns: include=['*.md']."),
        (["-"], {"exclude": "*.md"}, "`exclude` must be a list of patterns: exclude=['*.md']."),
    ],
    ids=str,
)
def test_wrong_arguments_are_named(given: Any, named: dict[str, Any], message: str) -> None:
    with pytest.raises(Misuse) as refused:
        Corpus(given, **named)
    assert str(refused.value) == message
