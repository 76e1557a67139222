"""`benchmarks.sentence_vectors`: many sentences embedded once, in a cache that an interrupted run goes on from."""

import gzip
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from similarity import sentences

from benchmarks import sentence_vectors as module
from benchmarks.sentence_vectors import sentence_files, sentence_vectors
from retriever.errors import BadSource, Damaged, Misuse
from retriever.evaluate.models.encoders import Batches, TextEncoder, open_encoders


class Counting(TextEncoder):
    """An encoder that says what it was asked for, and may be stopped."""

    def __init__(self, encoder: TextEncoder, stop_after: int | None = None) -> None:
        super().__init__(encoder.encoder, encoder.label)
        self._stop_after = stop_after
        self.asked: list[str] = []

    def encode_batches(self, texts: Sequence[str], queries: bool = False) -> Batches:
        if self._stop_after is not None and len(self.asked) >= self._stop_after:
            raise KeyboardInterrupt
        self.asked += texts
        return super().encode_batches(texts, queries)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Two shards, one gzipped, with a blank line between sentences."""
    every = sentences(90, 3)
    plain, packed = tmp_path / "a.txt", tmp_path / "b.txt.gz"
    plain.write_text("\n\n".join(every[:50]) + "\n", encoding="utf-8")
    with gzip.open(packed, "wt", encoding="utf-8") as file:
        file.write("\n".join(every[50:]))
    return [plain, packed]


@pytest.fixture
def encoder(tiny_bert: str) -> TextEncoder:
    return open_encoders([tiny_bert], device="cpu")[0]


def distinct(texts: list[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def test_vectors_are_the_encoders_and_embedded_once(files: list[Path], tmp_path: Path, encoder: TextEncoder) -> None:
    counting = Counting(encoder)
    texts, vectors = sentence_vectors(files, counting, 70, tmp_path / "cache")
    assert texts == sentences(90, 3)[:70] and vectors.dtype == np.float16
    for positions, expected in encoder.encode_batches(texts):
        np.testing.assert_allclose(vectors[positions], expected, atol=2e-3)
    again, same = sentence_vectors(files, counting, 70, tmp_path / "cache")
    assert again == texts and np.array_equal(same, vectors) and counting.asked == distinct(texts)


def test_more_of_them_embeds_only_what_is_missing(files: list[Path], tmp_path: Path, encoder: TextEncoder) -> None:
    counting = Counting(encoder)
    sentence_vectors(files, counting, 20, tmp_path / "cache")
    texts, vectors = sentence_vectors(files, counting, 1000, tmp_path / "cache")
    assert len(texts) == len(vectors) == 90 and counting.asked == distinct(texts)
    fewer, first = sentence_vectors(files, counting, 10, tmp_path / "cache")
    assert fewer == texts[:10] and np.array_equal(first, vectors[:10]) and len(counting.asked) == len(distinct(texts))


def test_an_interrupted_run_goes_on(
    files: list[Path], tmp_path: Path, encoder: TextEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TOGETHER", 16)
    with pytest.raises(KeyboardInterrupt):
        sentence_vectors(files, Counting(encoder, stop_after=32), 90, tmp_path / "cache")
    counting = Counting(encoder)
    texts, _ = sentence_vectors(files, counting, 90, tmp_path / "cache")
    assert counting.asked == [text for text in distinct(texts[32:]) if text not in texts[:32]]


def test_other_text_and_another_encoder_are_embedded(
    files: list[Path], tmp_path: Path, encoder: TextEncoder, other_bert: str
) -> None:
    _, first = sentence_vectors(files[:1], encoder, 20, tmp_path / "cache")
    other = Counting(open_encoders([other_bert], device="cpu")[0])
    texts, second = sentence_vectors(files[:1], other, 20, tmp_path / "cache")
    assert other.asked == distinct(texts) and not np.array_equal(first, second)
    files[0].write_text("another sentence\n", encoding="utf-8")
    counting = Counting(encoder)
    sentence_vectors(files[:1], counting, 20, tmp_path / "cache")
    assert counting.asked == ["another sentence"]


def test_bad_input(files: list[Path], tmp_path: Path, encoder: TextEncoder) -> None:
    cache = tmp_path / "cache"
    (tmp_path / "blank.txt").write_text("\n \n")
    with pytest.raises(Misuse, match="no sentences were found"):
        sentence_vectors([tmp_path / "blank.txt"], encoder, 5, cache)
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n")
    with pytest.raises(BadSource, match="not UTF-8"):
        sentence_vectors([tmp_path / "latin.txt"], encoder, 5, cache)
    (tmp_path / "broken.txt.gz").write_bytes(files[1].read_bytes()[:40])
    with pytest.raises(BadSource, match="cannot be read"):
        sentence_vectors([tmp_path / "broken.txt.gz"], encoder, 5, cache)
    with pytest.raises(Misuse, match="wiki_sentences"):
        sentence_files([], tmp_path)
    sentence_vectors(files, encoder, 5, cache)
    (stored,) = cache.glob("*.sqlite")
    stored.write_bytes(b"no database" * 500)
    with pytest.raises(Damaged, match="delete the file"):
        sentence_vectors(files, encoder, 5, cache)
    (tmp_path / "file").write_text("")
    with pytest.raises(Misuse, match="is a file; give a folder"):
        sentence_vectors(files, encoder, 5, tmp_path / "file")
