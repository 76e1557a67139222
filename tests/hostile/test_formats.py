"""Damaged files of every format: none crashes the reading, and none is passed over. RETRIEVER_FUZZ tries more."""

import os
import random
from pathlib import Path

import files_made_up as made
import pytest

from retriever.corpus import Corpus, Document, Skipped
from retriever.corpus.document import Keys

COUNT = int(os.environ.get("RETRIEVER_FUZZ") or 300)
AT_ONCE = 250


def damaged(rng: random.Random, content: bytes) -> bytes:
    """The content with some bytes changed, removed, repeated or put in."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 5, 20])):
        place = rng.randrange(len(data) + 1)
        change = rng.random()
        if change < 0.6 and place < len(data):
            data[place] = rng.choice([0, 10, 34, 60, 127, 128, 255, rng.randrange(256)])
        elif change < 0.75:
            del data[place : place + rng.randrange(1, 60)]
        elif change < 0.9:
            data[place:place] = rng.randbytes(rng.randrange(1, 30))
        else:
            data[place:place] = data[place : place + rng.randrange(1, 400)] * rng.randrange(1, 20)
    return bytes(data)


@pytest.mark.heavy
@pytest.mark.timeout(60 + COUNT)
def test_damaged_files_are_read_or_named(tmp_path: Path) -> None:
    formats = list(made.every_format("The tapir sleeps under the old bridge.").items())
    rng = random.Random(20)
    for begin in range(0, COUNT, AT_ONCE):
        folder = tmp_path / str(begin)
        folder.mkdir()
        written = {}
        for number in range(begin, min(begin + AT_ONCE, COUNT)):
            ending, content = formats[number % len(formats)]
            if ending == "parquet":  # pyarrow itself may end the process, see the tests of damaged tables
                continue
            name = f"{number}.{ending}"
            written[name] = damaged(rng, content)
            (folder / name).write_bytes(written[name])
        corpus = Corpus([folder], keys=Keys())
        met = set()
        for item in corpus:
            place = item.source if isinstance(item, Document) else item.where
            met.add(
                next(name for name in (place, place.rpartition(":")[0], place.partition("[")[0]) if name in written)
            )
            assert (item.text.strip() if isinstance(item, Document) else item.reason).encode()
        silent = set(written) - met
        assert not [
            name for name in silent if not name.endswith((".jsonl", ".ndjson", ".csv", ".tsv", ".mbox", ".json"))
        ]
        account = sum(corpus.account.read.values()) + sum(entry.count for entry in corpus.account.unread.values())
        assert account == len(written), "every file is accounted for"
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == written, "nothing was written"


def test_a_reader_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from retriever.corpus.readers import process

    monkeypatch.setattr(process, "SECONDS", 0.001)
    (tmp_path / "a.html").write_text("<p>text")
    (item,) = Corpus([tmp_path])
    assert isinstance(item, Skipped) and item.reason.startswith("took longer than")
