"""The parsers that take foreign bytes, each as a function of bytes that raises for what must not happen.

A target is made in a folder of its own. It may raise nothing but what it calls a finding: an error that is not for
people, or an answer that breaks a promise. It must end within seconds.
"""

import asyncio
import contextlib
import hashlib
import io
import json
import os
import random
import sqlite3
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Parse = Callable[[bytes], None]

IN_PROCESS = ("jsonl", "json", "csv", "tsv", "txt", "md", "rst", "ipynb")
FOREIGN = ("html", "eml")
"""Formats that foreign code reads. A reader process is as slow as a thousand inputs, so they are read in this one."""


@dataclass(frozen=True)
class Target:
    """One parser."""

    make: Callable[[Path], Parse]
    """Prepares the parser in an empty folder."""
    seeds: Callable[[], list[bytes]]
    words: tuple[str, ...] = ()
    """What the format is made of, for the mutations."""
    longest: int = 2048


# ---- documents -----------------------------------------------------------------------------------------------------


def _documents(folder: Path) -> Parse:
    from retriever.corpus import Corpus, Document
    from retriever.corpus.language import language_of_text
    from retriever.corpus.readers import process
    from retriever.corpus.source import Source
    from retriever.errors import RetrieverError

    language_of_text("Some words in a language that is told from others.")  # loads its tables, which takes seconds

    def parse(data: bytes) -> None:
        kinds = IN_PROCESS + FOREIGN
        ending, data = kinds[data[0] % len(kinds)] if data else "txt", data[1:]
        if ending in FOREIGN:
            answer, text = process._read(ending, data, None)
            assert answer.get("refused") or isinstance(text.decode(), str)
            json.dumps(answer, allow_nan=False).encode()
            return
        path = folder / f"fuzzed.{ending}"
        path.write_bytes(data)
        with contextlib.suppress(RetrieverError):
            for item in Source(Corpus([path])):
                if isinstance(item, Document):
                    assert item.id and "\0" not in item.id
                    json.dumps([item.id, item.title, item.text, item.metadata], allow_nan=False).encode()
                    assert item.text.strip() and "\0" not in item.text
                else:
                    assert item.reason.encode()

    return parse


def _document_seeds() -> list[bytes]:
    import files_made_up

    made = files_made_up.every_format("The tapir sleeps under the old bridge.")
    return [bytes([place]) + made[kind] for place, kind in enumerate(IN_PROCESS + FOREIGN)] + [
        b'\x00{"id": "a", "text": "b", "title": "c", "metadata": {"n": [1, {"x": null}]}}\n{"text": "d"}\n',
        b'\x02id;text;year\n1;"a ""b"" c";2020\n',
        b"\x05---\ntitle: T\ntags: [a, b]\n---\n# H\n\n```python\nx\n```\n\n| a | b |\n|---|---|\n",
        b"\x06Title\n=====\n\n.. note:: text\n\n* one\n* two\n\n::\n\n    code\n",
    ]


# ---- filters and queries -------------------------------------------------------------------------------------------

METADATA = [
    {"legs": 4, "lang": "en", "tags": ["a", "b"], "place": {"city": "Oslo", "at": [{"x": 1}, {"x": "2"}]}},
    {"legs": 0, "a.b": True, "n": None, "big": 2**70, "text": "1e999", "": ""},
]


def _filters(folder: Path) -> Parse:
    from indexes.errors import BadFilter
    from indexes.sqlite.filters import parse as parse_filter

    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE documents (metadata TEXT)")
    connection.executemany("INSERT INTO documents VALUES (?)", [(json.dumps(one),) for one in METADATA])

    def found(text: str) -> int:
        sql, bound = parse_filter(text).sql()
        query = f"SELECT count(*), sum(met IS NULL) FROM (SELECT {sql} AS met FROM documents)"  # noqa: S608
        count, unknown = connection.execute(query, bound).fetchone()
        assert (count, unknown) == (len(METADATA), 0), "a condition is true or false"
        (met,) = connection.execute(f"SELECT count(*) FROM documents WHERE {sql}", bound).fetchone()  # noqa: S608
        return int(met)

    def parse(data: bytes) -> None:
        text = data.decode("utf-8", "surrogateescape")
        with contextlib.suppress(BadFilter):
            met = found(text)
            assert found(f"  {text} ") == met, "spaces around a filter mean nothing"

    return parse


def _queries(folder: Path) -> Parse:
    from samples import PETS, make_bert

    from retriever import Retriever
    from retriever.errors import Misuse

    encoder = str(make_bert(folder / "tiny", width=8, layers=1))
    retriever = Retriever.build(PETS, folder / "pets", encoder=encoder, transform="none")
    every = {one["id"] for one in PETS}

    def parse(data: bytes) -> None:
        mode = ("lexical", "hybrid", "dense")[data[0] % 3] if data else "lexical"
        text = data[1:].decode("utf-8", "surrogateescape")
        try:
            hits = retriever.search(text, len(PETS), mode=mode, highlight=True, explain=True)  # type: ignore[arg-type]
        except Misuse:
            assert not text.strip() or any("\ud800" <= c <= "\udfff" for c in text), "any other text is a query"
            return
        assert {hit.id for hit in hits} <= every
        assert mode == "lexical" or (mode == "hybrid" and '"' in text) or len(hits) == len(PETS)
        scores = [hit.score for hit in hits]
        assert scores == sorted(scores, reverse=True) and all(score == score for score in scores)

    return parse


# ---- manifests -----------------------------------------------------------------------------------------------------


def _manifests(folder: Path) -> Parse:
    from indexes.errors import Damaged
    from indexes.folder.generation import load_index, problems, read_generation

    generation = folder / "c" / "generations" / "000001"
    generation.mkdir(parents=True)
    cache = folder / "cache"
    os.environ["XDG_CACHE_HOME"] = str(cache)
    from retriever.encoder.runtimes.onnx_runtime import FACTS, export_folder, is_exported
    from retriever.files import cache_folder

    def parse(data: bytes) -> None:
        from retriever.encoder.model_files import EncoderIdentity

        if data[:1] == b"\x01":  # the encoder cache
            identity = EncoderIdentity("a", "b", "c", "d", "mean", 8, True, 2)
            exported = export_folder(identity)
            exported.mkdir(parents=True, exist_ok=True)
            (exported / FACTS).write_bytes(data[1:])
            assert not is_exported(exported), "its files are missing"
            assert cache_folder() in exported.parents and not exported.exists()
            return
        (generation / "manifest.json").write_bytes(data)
        with contextlib.suppress(Damaged):
            read = read_generation(1, generation, hashlib.sha256(data).hexdigest())
            problems(read)
            assert all((generation / name).parent == generation for name in read.manifest["files"])
            _ = read.row, read.last_vector, read.count
            load_index(read)

    return parse


def _manifest_seeds() -> list[bytes]:
    files = {name: {"sha256": "0" * 64, "bytes": 10} for name in ("vectors.faiss", "numbers.npy", "raw.f16")}
    manifest = {
        "format": 1,
        "files": files,
        "count": 3,
        "last_sequence": 3,
        "factory": "Flat",
        "index_type": "flat",
        "search_settings": {"nprobe": 1},
        "measured": {"recall": 1.0},
    }
    facts = {
        "encoder": {
            **dict.fromkeys(("name", "weights", "tokenizer", "config", "pooling"), "a"),
            "max_length": 8,
            "normalize": True,
            "dimension": 2,
        },
        "files": dict.fromkeys(("model.onnx", "weights.bin", "tokenizer.json"), "0" * 64),
    }
    facts["encoder"] |= {"weights": "b", "tokenizer": "c", "config": "d", "pooling": "mean"}
    return [json.dumps(manifest).encode(), b"\x01" + json.dumps(facts).encode()]


# ---- SQLite's pages ------------------------------------------------------------------------------------------------


def _pages(folder: Path) -> Parse:
    from indexes.pages import wal
    from indexes.pages.carving import Carver
    from indexes.pages.page_file import Pages

    wal.SECONDS_BETWEEN_READS, wal.READS = 0.0, 1
    database = folder / "documents.sqlite"
    beside = {suffix: database.with_name(f"{database.name}{suffix}") for suffix in ("-wal", "-shm")}

    def parse(data: bytes) -> None:
        sizes = struct.unpack(">HH", data[:4].ljust(4, b"\0"))
        stream = io.BytesIO(data[4:])
        for path, content in zip(beside.values(), [stream.read(size) for size in sizes], strict=True):
            path.write_bytes(content)
        database.write_bytes(stream.read())
        with Pages(database) as pages:
            assert len(pages) >= 0 and pages.size in wal.PAGE_SIZES
            carver = Carver(pages)
            for row in carver.rows():
                assert isinstance(row.number, int) and row.table
            carver.stray_pages()
        wal.problem(database)

    return parse


def _page_seeds() -> list[bytes]:
    """Databases of a collection's tables with small pages: at rest, and with a log."""
    import shutil
    import tempfile

    from indexes.sqlite.connections import Database
    from indexes.sqlite.schema import MIGRATIONS

    seeds = []
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "documents.sqlite"
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA page_size = 512")
        connection.execute("PRAGMA journal_mode = WAL")
        Database(connection)
        rng = random.Random(0)
        connection.execute("CREATE TABLE documents (number INTEGER PRIMARY KEY, id TEXT, title TEXT, text TEXT, n)")
        connection.execute("CREATE TABLE vectors (id INTEGER PRIMARY KEY, text_hash BLOB, vector BLOB, checksum)")
        connection.execute("CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID")
        assert MIGRATIONS
        connection.execute("BEGIN")
        for number in range(9):
            row = (number, f"d{number}", "T", "some text " * (number * 12 % 100), number * 1.5)
            connection.execute("INSERT INTO documents VALUES (?, ?, ?, ?, ?)", row)
            vector = (number, rng.randbytes(32), rng.randbytes(16), number)
            connection.execute("INSERT INTO vectors VALUES (?, ?, ?, ?)", vector)
            connection.execute("INSERT INTO settings VALUES (?, ?)", (f"key {number}", '{"a": 1}'))
        connection.execute("COMMIT")
        for kind in ("with a log", "at rest"):
            if kind == "at rest":
                connection.execute("DELETE FROM documents WHERE number % 3 = 1")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            contents = []
            for suffix in ("-wal", "-shm", ""):
                copied = shutil.copy(f"{path}{suffix}", f"{path}.copied")
                contents.append(Path(copied).read_bytes()[: 65535 if suffix else None])
            contents[1] = contents[1][:136]
            seeds.append(struct.pack(">HH", len(contents[0]), len(contents[1])) + b"".join(contents))
        connection.close()
    return seeds


# ---- model files ---------------------------------------------------------------------------------------------------


def _model_files(folder: Path) -> Parse:
    from retriever.encoder.model_files import ModelFiles
    from retriever.encoder.model_loader import check_weights
    from retriever.errors import RetrieverError

    model = folder / "model"
    (model / "1_Pooling").mkdir(parents=True)
    (model / "vocab.txt").write_text("[PAD]\n[UNK]\n")
    names = ("config.json", "modules.json", "1_Pooling/config.json", "model.safetensors.index.json")

    def parse(data: bytes) -> None:
        parts = data.split(b"\x1e", len(names))
        for name, part in zip(names, parts, strict=False):
            path = model / name
            path.unlink(missing_ok=True)
            if part:
                path.write_bytes(part)
        (model / "model.safetensors").write_bytes(parts[-1])
        with contextlib.suppress(RetrieverError):
            files = ModelFiles(str(model))
            with contextlib.suppress(RetrieverError):
                files.identity()
            stored = check_weights(files)
            assert stored.tensors >= 0 and stored.numbers * 8 >= 0
            assert stored.numbers <= 8 * len(data), "more numbers than bytes"

    return parse


def _model_seeds() -> list[bytes]:
    import numpy as np
    from safetensors.numpy import save

    weights = save({"embedding.weight": np.zeros((2, 3), np.float32), "b": np.zeros(1, np.float16)})
    config = b'{"model_type": "bert", "hidden_size": 3, "num_hidden_layers": 1, "max_position_embeddings": 8}'
    modules = b'[{"type": "sentence_transformers.models.Transformer", "path": ""}, {"type": "x.Normalize"}]'
    pooling = b'{"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": false}'
    index = b'{"weight_map": {"a": "model.safetensors"}}'
    static = b'[{"type": "sentence_transformers.models.StaticEmbedding"}]'
    return [
        b"\x1e".join([config, modules, pooling, index, weights]),
        b"\x1e".join([config, b"", b"", b"", weights]),
        b"\x1e".join([b"", static, b"", b"", weights]),
    ]


# ---- HTTP ----------------------------------------------------------------------------------------------------------

ROUTES = (
    ("POST", "/v1/search"),
    ("POST", "/v1/search/batch"),
    ("POST", "/v1/similar"),
    ("POST", "/v1/documents"),
    ("POST", "/v1/map/locate"),
)


def _http(folder: Path) -> Parse:
    import httpx
    from samples import PETS, make_bert

    from retriever import Retriever
    from retriever.serve.app import create_app
    from retriever.serve.collections import ServedCollections
    from retriever.serve.settings import Settings

    encoder = str(make_bert(folder / "tiny", width=8, layers=1))
    Retriever.build(PETS, folder / "pets", encoder=encoder, transform="none").close()
    app = create_app(ServedCollections([folder / "pets"]), Settings(writable=True))
    loop = asyncio.new_event_loop()
    lifespan = app.router.lifespan_context(app)
    loop.run_until_complete(lifespan.__aenter__())
    client = httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app, raise_app_exceptions=True), base_url="http://127.0.0.1", timeout=20
    )

    async def ready() -> None:
        while (await client.get("/ready")).status_code != 200:
            await asyncio.sleep(0.01)

    loop.run_until_complete(ready())

    def parse(data: bytes) -> None:
        method, path = ROUTES[data[0] % len(ROUTES)] if data else ROUTES[0]
        headers = {"Content-Type": "application/json"}
        response = loop.run_until_complete(client.request(method, path, content=data[1:], headers=headers))
        assert response.status_code < 500, (response.status_code, response.text)
        answers: list[Any] = [json.loads(line) for line in response.text.splitlines()]
        (answer, *_) = answers
        if response.status_code >= 400:
            assert answer["detail"] and answer["status"] == response.status_code
            assert "Traceback" not in response.text

    return parse


def _http_seeds() -> list[bytes]:
    bodies = [
        {"query": "cats", "k": 3, "mode": "hybrid", "where": ["legs >= 0"], "highlight": True, "explain": True},
        {"queries": ["cats", "dogs"], "k": 2, "min_score": 0.1},
        {"id": "cat", "k": 2},
        {"documents": [{"id": "n", "text": "New.", "title": "T", "metadata": {"a": [1, {"b": None}]}}]},
        {"key": "k", "text": "cats"},
    ]
    return [bytes([place]) + json.dumps(body).encode() for place, body in enumerate(bodies)]


JSON_WORDS = ("{", "}", "[", "]", '"', ":", ",", "null", "true", "1e999", "-1", "NaN", "\\ud800", "\\u0000")

TARGETS = {
    "documents": Target(
        _documents,
        _document_seeds,
        (*JSON_WORDS, '"text":', '"id":', '"metadata":', "---\n", "```\n", "# ", "<p>", "</p>", "<td>", "<!--", "\n\n"),
    ),
    "filters": Target(
        _filters,
        lambda: [b"legs >= 4", b"lang in ('en', de, 3)", b'"a.b" != true', b"place.at.x = null", b"big < 1e30"],
        (
            "legs",
            "lang",
            "tags",
            "place.city",
            "in (",
            ")",
            ",",
            "'",
            '"',
            "''",
            "\\'",
            "!=",
            ">=",
            "==",
            "null",
            "true",
        ),
        200,
    ),
    "queries": Target(
        _queries,
        lambda: [b"\x00cats purr", b'\x01"hunt mice" at night', b"\x02dogs bark", "\x01∀ é 猫".encode()],
        ('"', "NEAR(", " AND ", " OR ", "NOT ", "*", "^", "title:", "cats", "mice", "-", "ﬀ", "é", "猫"),
        200,
    ),
    "manifests": Target(
        _manifests,
        _manifest_seeds,
        (*JSON_WORDS, '"files":', '"sha256":', '"bytes":', "../", '"count":', '"search_settings":', '"encoder":'),
    ),
    "pages": Target(_pages, _page_seeds, ("SQLite format 3", "\r", "\n", "\5", "\2"), 16384),
    "model-files": Target(
        _model_files,
        _model_seeds,
        (*JSON_WORDS, '"dtype":', '"F32"', '"shape":', '"data_offsets":', '"__metadata__":', "\x1e", '"BOOL"'),
    ),
    "http": Target(
        _http,
        _http_seeds,
        (
            *JSON_WORDS,
            '"query":',
            '"queries":',
            '"k":',
            '"mode":',
            '"where":',
            '"documents":',
            '"text":',
            '"highlight":',
        ),
    ),
}
