"""Files made to do harm: nothing crashes, blocks, or takes more memory than a document may have."""

import gzip
import io
import json
import os
import random
import socket
import subprocess
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import example, given, seed
from hypothesis import strategies as st
from limited import FUZZED, MIB, limited
from samples import Run

from retriever.corpus import Corpus, Document, Skipped
from retriever.corpus.readers import tables
from retriever.corpus.readers.lines import LARGEST_DOCUMENT, LARGEST_METADATA, MOST_COLUMNS, numbered_lines
from retriever.corpus.source import Source
from retriever.errors import RetrieverError

READ = """
from retriever.corpus import Corpus, Document
items = [
    [x.id[:40], len(x.text)] if isinstance(x, Document) else [x.where, x.reason]
    for x in Corpus(sys.argv[1:2], lines=True, stdin=sys.stdin.buffer)
]
tell(items=items)
"""


def read(path: Path, *, lines: bool = False) -> list[Document | Skipped]:
    """Everything that comes out of a file; an error for people is as good as a reason."""
    try:
        return list(Source(Corpus([path], lines=lines)))
    except RetrieverError:
        return []


def reasons(path: Path | str) -> list[tuple[str, str]]:
    return [(item.where, item.reason) for item in Corpus([path]) if isinstance(item, Skipped)]


def write_repeated(path: Path, *parts: tuple[bytes, int]) -> Path:
    """A file of parts, each so often, without holding it."""
    with path.open("wb") as file:
        for part, count in parts:
            block = part * max(1, MIB // len(part))
            whole, rest = divmod(count, len(block) // len(part))
            for _ in range(whole):
                file.write(block)
            file.write(part * rest)
    return path


# Any bytes at all

SNIPPETS = st.sampled_from(
    [
        *(b"{", b"}", b"[", b'"', b"\\", b"\\ud800", b"\\u0000", b"\0", b",", b"\t", b"\n", b"\r", b"\xff"),
        *(b'{"text": "a"}', b'{"id": 1, "text": "b"}', b"NaN", b"-Infinity", b"1e999", b"9" * 5000, b"null"),
        *("\u202e\u200b\u2066\ufeff".encode(), "\u05d0\u0628".encode(), b"text\tid\n", b"text,id\n", b"# ", b"```\n"),
        *(b"\x1f\x8b\x08", b"\xed\xa0\x80"),
    ]
)
BYTES = st.lists(st.one_of(SNIPPETS, st.binary(max_size=8)), max_size=40).map(b"".join)


@FUZZED
@given(data=BYTES, ending=st.sampled_from(["jsonl", "csv", "tsv", "txt", "md", "parquet"]), packed=st.booleans())
@example(b'text,id\n"', "csv", False)
@example(b"", "parquet", True)
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, data: bytes, ending: str, packed: bool) -> None:
    path = tmp_path_factory.getbasetemp() / f"fuzzed.{ending}{'.gz' if packed else ''}"
    path.write_bytes(gzip.compress(data, 1) if packed else data)
    for item in [*read(path), *read(path, lines=True)]:
        json.dumps(item.metadata, allow_nan=False).encode() if isinstance(item, Document) else item.reason.encode()


def table() -> bytes:
    buffer = io.BytesIO()
    columns: dict[str, Any] = {
        "id": [str(number) for number in range(100)],
        "text": [f"text {number % 7}" for number in range(100)],
        "inner": [{"a": [1, 2], "b": {"c": [["z"]]}} for _ in range(100)],
        "at": pyarrow.array(range(100), pyarrow.timestamp("ns")),
        "bytes": [b"\xff"] * 100,
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), buffer, compression="zstd", row_group_size=40)
    return buffer.getvalue()


TABLE = table()


# Fixed examples: for some damaged list columns pyarrow itself ends the process, which only a reader in a process of its
# own could survive.
@seed(0)
@FUZZED
@given(seed=st.integers(0, 2**32), changes=st.integers(1, 30), packed=st.booleans())
def test_damaged_tables(tmp_path_factory: pytest.TempPathFactory, seed: int, changes: int, packed: bool) -> None:
    rng = random.Random(seed)
    data = bytearray(gzip.compress(TABLE, 1) if packed else TABLE)
    for _ in range(changes):
        place = rng.randrange(len(data))
        if rng.random() < 0.8:
            data[place] = rng.choice([0, 127, 128, 255, rng.randrange(256)])
        else:
            del data[place : place + rng.randrange(1, 30)]
    path = tmp_path_factory.getbasetemp() / f"damaged.parquet{'.gz' if packed else ''}"
    path.write_bytes(data)
    read(path)


def test_column_names_that_are_no_utf8(tmp_path: Path) -> None:
    path = tmp_path / "names.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a"], "zzzz": ["b"]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"zzzz", b"\xff\xfe\xfd\xfc"))
    ((where, reason),) = reasons(path)
    assert where == path.name and reason.startswith("not a readable Parquet file: ")


def test_deeply_nested_tables(tmp_path: Path) -> None:
    kind = pyarrow.int64()
    for _ in range(500):
        kind = pyarrow.struct([("a", kind)])
    path = tmp_path / "deep.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a"], "deep": pyarrow.array([None], kind)}), path)
    ((_, reason),) = reasons(path)
    assert reason.startswith("not a readable Parquet file: ")


# Much of everything


@pytest.mark.parametrize("ending", ["jsonl", "txt", "stdin", "tsv"])
def test_a_line_too_long_is_passed_over(tmp_path: Path, ending: str) -> None:
    size = LARGEST_DOCUMENT + 40 * MIB
    before, after = (b"text\n" if ending == "tsv" else b"before\n"), b'{"text": "after"}\n'
    path = write_repeated(tmp_path / f"long.{ending}", (before, 1), (b"x", size), (b"\n", 1), (after, 1))
    with path.open("rb") as stream:
        told = limited(READ, "-" if ending == "stdin" else path, stdin=stream)
    (number, reason), last = told["items"][-2:]
    assert number.endswith(":2")
    assert reason == "is longer than 64 MiB, the maximum size of a document"
    assert last[1] == (5 if ending == "jsonl" else 17)
    assert told["peak"] < 4 * (LARGEST_DOCUMENT // MIB)


def test_a_line_as_long_as_may_be(tmp_path: Path) -> None:
    path = write_repeated(tmp_path / "long.txt", (b"x", LARGEST_DOCUMENT), (b"\n", 1), (b"y", 1))
    assert [item[1] for item in limited(READ, path)["items"]] == [LARGEST_DOCUMENT, 1]


@pytest.mark.parametrize("ending", ["txt", "md"])
def test_a_text_too_long(tmp_path: Path, ending: str) -> None:
    path = write_repeated(tmp_path / f"long.{ending}", (b"a\n", LARGEST_DOCUMENT))
    told = limited(READ.replace("lines=True", "lines=False"), path)
    assert told["items"] == [[path.name, "is longer than 64 MiB, the maximum size of a document"]]
    assert told["peak"] < 4 * (LARGEST_DOCUMENT // MIB)


def test_markdown_of_many_lines(tmp_path: Path) -> None:
    path = write_repeated(tmp_path / "many.md", (b"a\n", LARGEST_DOCUMENT // 2))
    told = limited(READ, path)
    assert [item[1] for item in told["items"]] == [LARGEST_DOCUMENT]
    assert told["peak"] < 8 * (LARGEST_DOCUMENT // MIB)


@pytest.mark.parametrize("part", [b"[],", b"{},", b'"ab",', b'"" ', b"12,"])
def test_json_of_many_values(tmp_path: Path, part: bytes) -> None:
    count = LARGEST_DOCUMENT // len(part) - 20
    path = write_repeated(
        tmp_path / "many.jsonl", (b'{"text": "a", "x": [', 1), (part, count), (b'1]}\n{"text": "after"}', 1)
    )
    told = limited(READ, path)
    assert told["items"][0][1] == "holds more than 2,000,000 strings, commas and brackets"
    assert told["items"][1][1] == len("after")


@pytest.mark.parametrize("row", [b'"' + b"x" * 100 + b"\n", b'"\n",', b"ab,", b"x"])
def test_csv_rows_without_end(tmp_path: Path, row: bytes) -> None:
    opening = b'"' if row.endswith(b"x") is False and row.startswith(b'"x') else b""
    part = row.removeprefix(b'"') if opening else row
    path = write_repeated(
        tmp_path / "endless.csv", (b"text\nfirst\n" + opening, 1), (part, (LARGEST_DOCUMENT + 40 * MIB) // len(part))
    )
    told = limited(READ, path)
    first, (where, reason) = told["items"]
    assert first[1] == len("first")
    assert where == f"{path.name}:3"
    assert reason.endswith("the rest was not read, because the start of the next row is unknown")
    assert told["peak"] < 12 * (LARGEST_DOCUMENT // MIB)


@pytest.mark.parametrize(("ending", "separator"), [("csv", b","), ("tsv", b"\t")])
@pytest.mark.parametrize("names", ["different", "equal"])
def test_a_million_columns(tmp_path: Path, run: Run, ending: str, separator: bytes, names: str) -> None:
    columns = [b"c%d" % (number if names == "different" else 0) for number in range(1_000_000)]
    path = tmp_path / f"wide.{ending}"
    path.write_bytes(b"text" + separator + separator.join(columns) + b"\n" + separator * 1_000_000)
    result = run("index", path, "--index", tmp_path / "index", code=2)
    assert f"has more than {MOST_COLUMNS:,} columns" in result.output
    assert len(result.output) < 1000


def test_columns_that_repeat_and_have_long_names(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text("text," + ",".join(["c" * 5000] * 2 + [f"c{number % 4000}" for number in range(8000)]) + "\n")
    with pytest.raises(RetrieverError) as caught:
        list(Corpus([path]))
    assert len(str(caught.value)) < 1000


def test_metadata_too_large() -> None:
    large = {"text": "a", "value": "x" * LARGEST_METADATA}
    (item,) = Source([large])
    assert isinstance(item, Skipped)
    assert item.reason == f"its metadata has {LARGEST_METADATA + 13:,} characters as JSON; the maximum is 16,777,216"


def test_a_python_text_too_long() -> None:
    (item,) = Source(["x" * (LARGEST_DOCUMENT + 1)])
    assert isinstance(item, Skipped)


def test_metadata_of_a_thousand_levels(tmp_path: Path) -> None:
    path = tmp_path / "deep.jsonl"
    deep = '{"text": "a", "x": ' + "[" * 1000 + "]" * 1000 + "}\n"
    objects = '{"text": "a", "metadata": ' + '{"a":' * 1000 + "1" + "}" * 1000 + "}\n"
    path.write_text(deep + objects + '{"text": "a", "x": ' + "[" * 1_000_000 + "\n" + '{"text": "after"}\n')
    assert [reason for _, reason in reasons(path)] == ["its JSON is nested too deeply"] * 3
    nested: list[Any] = []
    for _ in range(1000):
        nested = [nested]
    (item,) = Source([{"text": "a", "x": nested}])
    assert item == Skipped("document 1", "its metadata is nested too deeply")


def test_a_source_of_unreadable_lines_alone(tmp_path: Path) -> None:
    path = write_repeated(tmp_path / "bad.jsonl", (b"{\n", 300_000))
    code = """
from retriever.corpus import Corpus
from retriever.corpus.source import Source
source = Source(Corpus(sys.argv[1:]))
source.refuse_if_empty()
tell(count=sum(1 for _ in source))
"""
    told = limited(code, path)
    assert told["count"] == 300_000
    assert told["peak"] < 256


# What is packed


class Counted(io.BufferedReader):
    """A stream that counts the lines that are read one by one."""

    lines = 0

    def readline(self, size: int | None = -1) -> bytes:
        self.lines += 1
        return super().readline(size)


@pytest.mark.parametrize("blank", [b"\n", b"\r\n"])
@pytest.mark.parametrize("tsv", [False, True])
def test_millions_of_blank_lines(blank: bytes, tsv: bool) -> None:
    """300 KB of gzip can hold 300 million of them: they are passed over together, and counted."""
    stream = Counted(cast(io.RawIOBase, io.BytesIO(b"\xef\xbb\xbfa\n" + blank * 1_000_000 + b"b\n\n\nc")))
    assert list(numbered_lines(stream, "x", tsv=tsv)) == [("x:1", b"a"), ("x:1000002", b"b"), ("x:1000005", b"c")]
    assert stream.lines < 2000


@pytest.mark.parametrize("blank", [b"\n", b"\r\n"])
def test_millions_of_blank_lines_in_a_table(tmp_path: Path, blank: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "blank.csv.gz"
    rows = b'id,text\n1,"a\n\n\nb"\n\n2,c\r\n' + blank * 1_000_000 + b'3,"d\n\ne"\n4\n\n5,f'
    path.write_bytes(gzip.compress(rows))
    read, lines = tables._CsvLines._readline, 0

    def counted(self: tables._CsvLines) -> str:
        nonlocal lines
        lines += 1
        return read(self)

    monkeypatch.setattr(tables._CsvLines, "_readline", counted)
    found = list(Corpus([path]))
    assert [item.text for item in found if isinstance(item, Document)] == ["a\n\n\nb", "c", "d\n\ne", "f"]
    (skipped,) = (item for item in found if isinstance(item, Skipped))
    assert skipped.where.endswith("blank.csv.gz:1000011")
    assert lines < 100


SLOWLY_UNPACKED = [pytest.param(ending, marks=pytest.mark.slow) for ending in ("csv", "parquet")]


@pytest.mark.parametrize("ending", ["jsonl", "txt", *SLOWLY_UNPACKED])
def test_a_gzip_bomb(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"bomb.{ending}.gz"
    first = {"jsonl": b'{"text": "a"}\n', "csv": b"text\na\n", "txt": b"a\n", "parquet": b"PAR1"}[ending]
    member = gzip.compress((b" " * 1023 + b"\n") * (64 * MIB // 1024), 9)
    with path.open("wb") as file:
        file.write(gzip.compress(first))
        for _ in range(64):
            file.write(member)
    told = limited(READ, path)
    *before, (where, reason) = told["items"]
    assert [item[1] for item in before[:1]] == ([1] if ending != "parquet" else [])
    assert where == path.name
    assert reason.startswith("unpacks to more than 256 MiB and more than 200 times its size")
    assert told["peak"] < 512


@pytest.mark.slow
def test_a_parquet_bomb(tmp_path: Path) -> None:
    path = tmp_path / "bomb.parquet"
    rows = pyarrow.array(["x" * 10_000_000]).take(pyarrow.array([0] * 100))
    pyarrow.parquet.write_table(pyarrow.table({"text": rows}), path, compression="zstd")
    assert path.stat().st_size < 10_000
    told = limited(READ, path, mib=6144)
    *before, (where, reason) = told["items"]
    assert before and all(item[1] == 10_000_000 for item in before)
    assert where == path.name
    assert reason.startswith("unpacks to more than 256 MiB")
    assert told["peak"] < 1024


REFERENCES = {
    "a list of one text": lambda text: pyarrow.ListArray.from_arrays(
        pyarrow.array(range(0, 32_001, 2000), pyarrow.int32()), _repeated(text, 32_000)
    ),
    "one text in every row": lambda text: _repeated(text, 2000),
    "a struct in a list": lambda text: pyarrow.ListArray.from_arrays(
        pyarrow.array(range(0, 32_001, 2000), pyarrow.int32()),
        pyarrow.StructArray.from_arrays([_repeated(text, 32_000)], ["own"]),
    ),
    "a map": lambda text: pyarrow.MapArray.from_arrays(
        pyarrow.array(range(0, 32_001, 2000), pyarrow.int32()),
        pyarrow.array([f"key {n}" for n in range(32_000)]),
        _repeated(text, 32_000),
    ),
    "a list of numbers": lambda _: pyarrow.ListArray.from_arrays(
        pyarrow.array([0, 40_000_000, 80_000_000], pyarrow.int32()), pyarrow.array(np.zeros(80_000_000, np.int8))
    ),
}


def _repeated(text: str, times: int) -> Any:
    references = pyarrow.array([0] * times, pyarrow.int32())
    return pyarrow.DictionaryArray.from_arrays(references, pyarrow.array([text]))


@pytest.mark.parametrize("as_stored", [True, False], ids=["dictionary", "plain"])
@pytest.mark.parametrize("kind", REFERENCES)
def test_a_parquet_bomb_of_references(tmp_path: Path, kind: str, as_stored: bool) -> None:
    """One text of 4 MB, named a thousand times at the cost of some bits."""
    path = tmp_path / "bomb.parquet"
    column = REFERENCES[kind]("x " * 2_000_000)
    table = pyarrow.table({"text": ["a"] * len(column), "blob": column})
    pyarrow.parquet.write_table(table, path, store_schema=as_stored)
    assert path.stat().st_size < 1_000_000
    told = limited(READ, path, mib=4096)
    *before, (where, reason) = told["items"]
    assert (len(before) > 10) == (kind == "one text in every row")
    assert where == path.name
    assert reason.startswith("unpacks to more than 256 MiB")
    assert told["peak"] < 640


def test_rows_of_parquet_that_are_too_large(tmp_path: Path) -> None:
    """Not a bomb as a whole: then only these rows are left out."""
    path = tmp_path / "rows.parquet"
    text = "".join(chr(33 + number % 90) for number in range(1 << 20))
    tags = [[text] * (70 if number == 3 else 1) for number in range(20)]
    numbers = [[1] * (3_000_000 if number == 5 else 1) for number in range(20)]
    padding = [random.Random(number).randbytes(100_000) for number in range(20)]
    columns = {"text": ["a"] * 20, "tags": tags, "numbers": numbers, "padding": padding}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    told = limited(READ, path, mib=4096)
    assert [item[1] for place, item in enumerate(told["items"]) if place not in (3, 5)] == [1] * 18
    assert told["items"][3][1].startswith("is longer than 64 MiB")
    assert told["items"][5] == [f"{path.name}:6", "holds more than 2,000,000 values"]
    assert told["peak"] < 640


def test_what_packs_well_is_read(tmp_path: Path) -> None:
    """Up to 256 MiB, whatever the ratio."""
    path = tmp_path / "well.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"text": "a"}\n' + b" " * (100 * MIB), 9))
    assert limited(READ, path)["items"][0][1] == 1


# What is no file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "sound.txt").write_text("sound")
    return folder


@pytest.mark.parametrize("linked", [False, True])
def test_pipes_and_devices_in_a_folder(folder: Path, linked: bool) -> None:
    place = folder.parent if linked else folder
    os.mkfifo(place / "pipe.jsonl")
    with socket.socket(socket.AF_UNIX) as own:
        own.bind(os.path.relpath(place / "socket.csv"))
    if linked:
        (folder / "pipe.jsonl").symlink_to(place / "pipe.jsonl")
        (folder / "socket.csv").symlink_to(place / "socket.csv")
    for name in ("zero.txt", "tty.md"):
        (folder / name).symlink_to(f"/dev/{name.split('.')[0]}")
    items = list(Corpus([folder]))
    assert [item.id for item in items if isinstance(item, Document)] == ["sound.txt"]
    skipped = [item for item in items if isinstance(item, Skipped)]
    assert {item.where for item in skipped} >= {"pipe.jsonl", "socket.csv", "zero.txt"}
    assert {item.reason for item in skipped if item.where != "tty.md"} == {"is not a regular file"}


def test_a_file_that_becomes_a_pipe(folder: Path) -> None:
    corpus = Corpus([folder])
    (folder / "sound.txt").unlink()
    os.mkfifo(folder / "sound.txt")
    assert list(corpus) == [Skipped("sound.txt", "is not a regular file")]


def test_links_that_lead_round_and_nowhere(folder: Path) -> None:
    (folder / "round").symlink_to(folder)
    (folder / "up").symlink_to(folder.parent)
    (folder / "self.txt").symlink_to("self.txt")
    (folder / "nowhere.txt").symlink_to("nothing")
    (folder / "inner").mkdir()
    (folder / "inner" / "back").symlink_to(folder)
    items = list(Corpus([folder]))
    assert [item.id for item in items if isinstance(item, Document)] == ["sound.txt"]
    assert sorted(item.where for item in items if isinstance(item, Skipped)) == ["nowhere.txt", "self.txt"]


def test_folders_a_thousand_deep(folder: Path) -> None:
    here = os.open(folder, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    try:
        assert [item.id for item in Corpus([folder]) if isinstance(item, Document)] == ["sound.txt"]
    finally:
        subprocess.run(["rm", "-rf", folder / "d"], check=True)  # shutil.rmtree calls itself for every level


# What is stored is what was read


NASTY = [
    "../../../etc/passwd",
    "/etc/passwd",
    "C:\\windows\\x",
    "x" * 10_240,
    "a\nb\tc\x1b[31m",
    "'; DROP TABLE documents; --",
    "\u202egnp.exe",
    "\u200b\u200d\ufeffid",
    "\u05d0\u05d1 \u0627\u0644",
    "%s%n{0}",
    "-k",
    "--help",
]


def test_ids_of_every_kind(tmp_path: Path, tiny_bert: str, run: Run) -> None:
    source, index = tmp_path / "ids.jsonl", tmp_path / "index"
    source.write_text(
        "".join(
            json.dumps({"id": id_, "text": f"text {n} {id_}", "m": {id_: id_}}) + "\n" for n, id_ in enumerate(NASTY)
        )
    )
    before = set(tmp_path.rglob("*"))
    run("index", source, "--index", index, "--encoder", tiny_bert, "--transform", "none")
    assert {path for path in tmp_path.rglob("*") if index not in path.parents} - before == {index}
    shown = run("search", "text", "--index", index, "-k", 20).output
    assert not set("\x1b\u202e\u2066\u200b\ufeff") & set(shown)
    hits = run("search", "text", "--index", index, "-k", 20, "--json").stdout.splitlines()
    assert sorted(json.loads(hit)["id"] for hit in hits) == sorted(NASTY)
    for id_ in NASTY:
        assert not set("\x1b\u202e\u200b") & set(run("similar", "--index", index, "--", id_).output)
    run("delete", "--index", index, "--", *NASTY[:-1])
    assert source.exists()


@pytest.mark.parametrize(
    "text",
    [
        "x" * 3_000_000,
        "\u200b" * 300_000 + "a",
        "\u202e\u05d0 " * 100_000,
        "a" + "\u0301" * 300_000,
        "\U0001f468\u200d" * 99_999,
    ],
    ids=["one word", "nothing to see", "right to left", "one letter", "one emoji"],
)
def test_texts_of_every_kind(tmp_path: Path, tiny_bert: str, text: str) -> None:
    from retriever import Retriever

    with Retriever.build([{"id": "a", "text": text}], tmp_path / "index", encoder=tiny_bert, transform="none") as made:
        assert made.document("a").text == text
        assert made.search("x", mode="lexical") is not None
        assert [hit.id for hit in made.search(text[:100])] == ["a"]
        assert made.verify().clean


def test_a_text_as_long_as_may_be_is_split_in_little_memory() -> None:
    code = """
from retriever.encoder.batches import load_tokenizer
from retriever.encoder.model_files import ModelFiles
from retriever.corpus.passages import split
tokenizer = load_tokenizer(ModelFiles("all-MiniLM-L6-v2"))
def count(texts):
    return [len(encoding) for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
text = ". " * 400_000
passages = split(text, "", 254, count)
covered = 0
for passage in passages:
    assert not text[covered:passage.start].strip()
    covered = passage.end
assert not text[covered:].strip()
tell()
"""
    assert limited(code)["peak"] < 512


def test_queries_too_long_or_made_of_anything(tmp_path: Path) -> None:
    from retriever.cli.search import read_queries

    path = write_repeated(tmp_path / "queries.txt", (b"first\n", 1), (b"x", LARGEST_DOCUMENT + 2))
    queries = read_queries(path)
    assert next(queries).text == "first"
    with pytest.raises(RetrieverError, match="longer than 64 MiB"):
        next(queries)
