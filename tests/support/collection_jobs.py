"""What is done to collections while they are killed, starved and watched: each job runs in a child of the zygote.

A scenario (made from a seed) says which documents a collection holds before the job and after it. Whatever happens in
between, every document must be one of the two, whole; and the same job, run again, must come to its end.
"""

import contextlib
import hashlib
import json
import mmap
import os
import random
import shutil
import signal
import sqlite3
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from database_edits import damage_row

Contents = dict[str, tuple[str, str, dict[str, Any]]]

WORDS = "river mountain child plays eats paints red old young song book garden house road never always today".split()
KINDS = ("first run", "next run", "add", "delete", "rebuild", "repair")
MARK = "/acknowledged-and-not-there"
"""What a job tries to remove when something was acknowledged, for a tracer to see."""
TALLY = "RETRIEVER_TALLY"
"""Names a file, shared by processes, in which each text that ingestion embeds is noted, without a system call."""
TALLY_BYTES = 1 << 16
BATCH_BEGINS = 0x8000
"""In the tally, added to the number of tokens of the first text of a batch."""
LONGEST = 32
"""Tokens of a passage: short, so that a long document is embedded in many batches."""


@dataclass
class Scenario:
    """One job on one collection, all of it made from a seed."""

    kind: str
    seed: int
    encoder: str
    built: Contents = field(default_factory=dict)
    """What the collection is made of, before it is damaged."""
    damaged: str = ""
    before: Contents = field(default_factory=dict)
    after: Contents = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    batch_tokens: int = 64
    backlog: int = 1000

    @classmethod
    def make(cls, kind: str, seed: int, encoder: str) -> "Scenario":
        rng = random.Random(f"{kind} {seed}")
        made = cls(kind, seed, encoder)
        made.settings = {
            "transform": rng.choice(["none", "center", "whiten", "standardize"]),
            "index_type": rng.choice(["flat", "flat", "sq8"]),
        }
        made.batch_tokens = rng.choice([16, 32, 64])
        made.backlog = rng.choice([2, 1000])
        numbers = range(rng.randint(6, 24))
        documents = {f"d{number}": _document(rng, number) for number in numbers}
        documents |= {f"d{number}": _document(rng, number, 25) for number in rng.sample(numbers, 2)}
        made.before = {} if kind == "first run" else documents
        made.after = dict(documents)
        changed = rng.sample(sorted(documents), rng.randint(1, 4))
        if kind in ("next run", "add"):
            made.after |= {id_: _document(rng, 100 + place) for place, id_ in enumerate(changed)}
            made.after |= {f"n{number}": _document(rng, 200 + number) for number in range(rng.randint(1, 6))}
            made.after |= {f"l{number}": _document(rng, 300 + number, 25) for number in range(2)}
        if kind == "next run":
            del made.after[next(id_ for id_ in documents if id_ not in changed)]
        if kind == "delete":
            made.after = {id_: document for id_, document in documents.items() if id_ not in changed}
        if kind == "repair":
            made.damaged = changed[0]
            made.before = documents | {made.damaged: ("changed", *documents[made.damaged][1:])}
            del made.after[made.damaged]
        made.built = documents
        return made

    @property
    def uncertain(self) -> set[str]:
        """The documents that are one thing before the job and another after it."""
        return {i for i in self.before | self.after if self.before.get(i) != self.after.get(i)}


def _document(rng: random.Random, number: int, length: int | None = None) -> tuple[str, str, dict[str, Any]]:
    sentences = [
        f"{' '.join(rng.choice(WORDS) for _ in range(rng.randint(3, 9)))} {number}."
        for _ in range(length or rng.choice([1, 1, 1, 2, 5]))
    ]
    title = f"Title {number}" if rng.random() < 0.5 else ""
    return title, " ".join(sentences), {"number": number} if rng.random() < 0.5 else {}


# ---- what runs in a child --------------------------------------------------------------------------------


def warm(encoder: str) -> None:
    """Import and load what jobs need, so that a fork has it, and have ingestion note what it embeds."""
    import faiss  # noqa: F401
    import numpy as np
    import onnxruntime  # noqa: F401
    import pyarrow  # noqa: F401
    import tokenizers  # noqa: F401

    import retriever.retriever
    from indexes.sqlite.connections import Database
    from retriever.encoder.encoder import Encoder
    from retriever.ingest.pipeline import Ingestion
    from retriever.transforms import fit

    for spec in ("center", "whiten", "standardize"):
        fit(spec, np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32), seed=0)
    assert retriever.retriever
    Database(sqlite3.connect(":memory:")).conn.close()
    loaded = [Encoder(encoder, precision="fp32", max_length=length) for length in (None, LONGEST)]
    for part in ("tokenizer", "_truncating_tokenizer", "_runtime"):
        _load_once(Encoder, part, loaded)
    run, encode = Ingestion.run, Encoder.encode_tokens
    counting = []

    def counted_run(self: Any, *args: Any, **kwargs: Any) -> Any:
        counting.append(True)
        try:
            return run(self, *args, **kwargs)
        finally:
            counting.clear()

    def counted_encode(self: Any, tokens: list[list[int]]) -> Any:
        vectors = encode(self, tokens)
        if counting:
            _note(tokens)
        return vectors

    Ingestion.run = counted_run  # type: ignore[method-assign]
    Encoder.encode_tokens = counted_encode  # type: ignore[method-assign]


def _load_once(encoder_class: Any, part: str, loaded: list[Any]) -> None:
    """Have every encoder of the same files and length take the part of one of these."""
    own = vars(encoder_class)[part]
    ready = {(one.files.folder, one.identity.max_length): getattr(one, part) for one in loaded}

    def of(encoder: Any) -> Any:
        found = ready.get((encoder.files.folder, encoder.identity.max_length))
        return own.func(encoder) if found is None else found

    setattr(encoder_class, part, property(of))


def _note(tokens: list[list[int]]) -> None:
    """Write down a batch that was embedded."""
    if TALLY not in os.environ:
        return
    with Path(os.environ[TALLY]).open("r+b") as file, mmap.mmap(file.fileno(), TALLY_BYTES) as shared:
        for number, own in enumerate(tokens):
            (count,) = struct.unpack_from("<Q", shared)
            digest = hashlib.sha256(repr(own).encode()).digest()[:6]
            length = len(own) + (0 if number else BATCH_BEGINS)
            shared[8 * (count + 1) : 8 * (count + 2)] = digest + length.to_bytes(2, "little")
            struct.pack_into("<Q", shared, 0, count + 1)


def embedded() -> tuple[int, int, int]:
    """Since the tally was emptied: how many tokens were embedded, how many of them once more than they had to be, and
    how many there are in the two largest batches."""
    data = Path(os.environ[TALLY]).read_bytes()
    (count,) = struct.unpack_from("<Q", data)
    seen: Counter[bytes] = Counter()
    batches, again = [0], 0
    for number in range(count):
        digest, length = struct.unpack_from("<6sH", data, 8 * (number + 1))
        if length & BATCH_BEGINS:
            batches.append(0)
        batches[-1] += length % BATCH_BEGINS
        again += length % BATCH_BEGINS if seen[digest] else 0
        seen[digest] += 1
    return sum(batches), again, sum(sorted(batches)[-2:])


def prepare(kind: str, seed: int, encoder: str, folder: str) -> None:
    """The collection as it is before the job."""
    scenario = Scenario.make(kind, seed, encoder)
    if not scenario.before:
        return
    _build(scenario, Path(folder), scenario.built)
    if kind == "repair":
        flip(next(Path(folder).glob("generations/*/vectors.faiss")), 60)
        damage_row(Path(folder), "UPDATE documents SET title = 'changed' WHERE id = ?", scenario.damaged)


def flip(path: Path, place: int, bit: int = 0) -> None:
    """Change one bit of a file."""
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1 << bit]))


def _records(contents: Contents) -> list[Any]:
    from retriever import Document

    return [Document(id_, text, title, metadata) for id_, (title, text, metadata) in contents.items()]


def _build(scenario: Scenario, folder: Path, contents: Contents, **options: Any) -> None:
    from retriever import Retriever

    fixed = {"precision": "fp32", "max_length": LONGEST, "encoder": scenario.encoder}
    Retriever.build(_records(contents), folder, **fixed, **scenario.settings, **options).close()


def act(kind: str, seed: int, encoder: str, folder: str, largest_file: int | None = None) -> None:
    """The job itself; `largest_file` has the system refuse to write beyond so many bytes of any file."""
    import resource

    from retriever.encoder import encoder as encoders
    from retriever.ingest import writer
    from retriever.signals import graceful_shutdown

    scenario, path = Scenario.make(kind, seed, encoder), Path(folder)
    writer.BACKLOG_ROWS = scenario.backlog
    encoders.BATCH_TOKENS = {"cpu": scenario.batch_tokens}
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    with graceful_shutdown():
        _act(scenario, path)


def _act(scenario: Scenario, path: Path) -> None:
    from retriever import Retriever

    kind = scenario.kind
    if kind == "first run":
        _build(scenario, path, scenario.after)
    elif kind == "next run":
        _build(scenario, path, scenario.after, prune=True)
    else:
        with Retriever.open(path) as retriever:
            if kind == "add":
                changed = {i: scenario.after[i] for i in scenario.after if i in scenario.uncertain}
                retriever.add(_records(changed))
            elif kind == "delete":
                retriever.delete(sorted(scenario.uncertain))
            elif kind == "rebuild":
                retriever.rebuild(transform="whiten:soft=1", index_type="flat")
            elif kind == "repair":
                retriever.verify(repair=True)


def small_write(folder: str) -> None:
    """A transaction of a few frames, which changes no document."""
    from indexes.folder.collection import Collection

    with Collection.open(Path(folder)) as collection, collection.writing():
        collection.store.set_settings({"created": os.urandom(4).hex()})


def stumble(kind: str, seed: int, encoder: str, folder: str) -> None:
    """The job, which something is done to; then a small write by the same process, which is killed after it."""
    with _kept_open(Path(folder)):
        with contextlib.suppress(Exception):  # so that something acknowledged is in the log
            small_write(folder)
        with contextlib.suppress(Exception):
            act(kind, seed, encoder, folder)
        with contextlib.suppress(Exception):
            small_write(folder)
        os.kill(os.getpid(), signal.SIGKILL)


def acknowledge(kind: str, seed: int, encoder: str, folder: str) -> None:
    """The job, and once it is acknowledged a call that can be seen; what is open is never closed."""
    with _kept_open(Path(folder)):
        act(kind, seed, encoder, folder)
        mark()
        os._exit(0)


def write_aside(target: str) -> None:
    """A folder that takes its name when it is whole."""
    from retriever.files import atomic_write

    with atomic_write(Path(target)) as aside:
        (aside / "inner").mkdir(parents=True)
        (aside / "one.txt").write_text("one")
        (aside / "inner" / "two.txt").write_text("two")
    mark()


def mark() -> None:
    with contextlib.suppress(FileNotFoundError):
        Path(MARK).unlink()


@contextlib.contextmanager
def _kept_open(folder: Path) -> Iterator[None]:
    """Another connection of this process: without it, to close the last one would empty and sync the log."""
    if not (folder / "documents.sqlite").exists():
        yield
        return
    with contextlib.closing(sqlite3.connect(folder / "documents.sqlite")) as connection:
        connection.execute("SELECT count(*) FROM documents").fetchone()
        yield


def change(folder: str, documents: list[dict[str, Any]], deleted: list[str], rebuild: bool) -> None:
    """Some changes to a collection, one after the other."""
    from retriever import Document, Retriever

    with Retriever.open(folder) as retriever:
        if documents:
            made = [Document(one["id"], one["text"], one["title"], {"n": one["n"]}) for one in documents]
            retriever.add(made)
        if deleted:
            retriever.delete(deleted)
        if rebuild and len(retriever):
            retriever.rebuild()


def look(kind: str, seed: int, encoder: str, folder: str) -> list[str]:
    """What is wrong with a collection in which the job was killed or failed."""
    scenario, path = Scenario.make(kind, seed, encoder), Path(folder)
    if not scenario.before and not _finished(path):
        return []
    return _problems(scenario, path, done=False)


def all_there(kind: str, seed: int, encoder: str, folder: str) -> list[str]:
    """What is wrong with a collection after the end of the job."""
    return _problems(Scenario.make(kind, seed, encoder), Path(folder), done=True)


def go_on(kind: str, seed: int, encoder: str, folder: str) -> dict[str, Any]:
    """Run the job again, undisturbed: what is wrong then, and how many tokens were embedded once more."""
    scenario, path = Scenario.make(kind, seed, encoder), Path(folder)
    act(kind, seed, encoder, folder)
    problems = _problems(scenario, path, done=True)
    names = {entry.name for entry in path.iterdir()}
    expected = {"documents.sqlite", "documents.sqlite-wal", "documents.sqlite-shm", "generations", "writer.lock"}
    expected |= {"checked.json"} | ({"quarantine"} if kind == "repair" else set())
    problems += [f"there is a file {name}" for name in sorted(names - expected) if not name.startswith("checked.json.")]
    if len(generations := list((path / "generations").iterdir())) != 1:
        problems.append(f"there are generations {[generation.name for generation in generations]}")
    in_all, again, in_hand = embedded()
    return {"problems": problems, "embedded": in_all, "again": again, "in_hand": in_hand}


def _finished(folder: Path) -> bool:
    """Whether a first run has come so far that its collection can be searched."""
    from retriever import Retriever
    from retriever.errors import NotACollection

    try:
        with Retriever.open(folder) as retriever:
            retriever.collection.refuse_unfinished()
    except NotACollection:
        return False
    return True


def _problems(scenario: Scenario, folder: Path, *, done: bool) -> list[str]:
    from retriever import Retriever

    with Retriever.open(folder) as retriever:
        verified = retriever.verify().problems
        problems = [] if scenario.kind == "repair" and not done else [f"verify: {one}" for one in verified]
        found = contents_of(retriever)
        wanted = [scenario.after] if done else [scenario.before, scenario.after]
        for id_ in sorted(scenario.before | scenario.after | found):
            if not any(found.get(id_) == state.get(id_) for state in wanted):
                problems.append(f"document {id_} is {found.get(id_)}")
        if scenario.kind == "delete" and len({id_ in found for id_ in scenario.uncertain}) > 1:
            problems.append("some documents were deleted and some were not")
        if not verified:
            problems += search_problems(retriever, found)
    return problems


def contents_of(retriever: Any) -> Contents:
    """Every document as the table has it."""
    rows = retriever.collection.store.each_document()
    return {row["id"]: (row["title"], row["text"], json.loads(row["metadata"])) for row in rows}


def search_problems(retriever: Any, found: Contents) -> list[str]:
    """Whether every document, and nothing else, is found by an exact search, and first by its own words."""
    problems = []
    ids = list(found)
    queries = [f"{found[i][0]}\n{found[i][1]}" if found[i][0] else found[i][1] for i in ids]
    for id_, hits in zip(ids, retriever.search_many(queries, len(found), mode="dense"), strict=True):
        if sorted(hit.id for hit in hits) != sorted(found):
            problems.append(f"a search finds {len(hits)} of {len(found)} documents")
        same = {other for other in found if found[other][:2] == found[id_][:2]}
        if len(found[id_][1]) < 60 and hits[0].id not in same:
            problems.append(f"the words of {id_} find {hits[0].id} first")
    return problems


JOBS: dict[str, Callable[..., Any]] = {
    "prepare": prepare,
    "act": act,
    "change": change,
    "look": look,
    "all there": all_there,
    "go on": go_on,
    "small write": small_write,
    "stumble": stumble,
    "acknowledge": acknowledge,
    "write aside": write_aside,
    "remove": lambda folder: shutil.rmtree(folder, ignore_errors=True),
}
