"""The cache of raw vectors: nothing is embedded twice, an interrupted run goes on, damage is said."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from similarity import sentences

from retriever.encoder.encoder import Encoder
from retriever.errors import Damaged, Misuse
from retriever.evaluate.models.encoders import (
    SAVED_EVERY,
    Batches,
    TextEncoder,
    VectorCache,
    default_cache,
    open_encoders,
)


class Counting(TextEncoder):
    """Counts the texts it embeds; interrupted after some, if asked."""

    def __init__(self, name: str, pooling: str = "mean", stop_after: int | None = None) -> None:
        super().__init__(Encoder(name, pooling=pooling, device="cpu"), "counting")
        self.embedded, self.stop_after = 0, stop_after

    def encode_batches(self, texts: Sequence[str], queries: bool = False) -> Batches:
        for positions, vectors in super().encode_batches(texts, queries):
            yield positions, vectors
            self.embedded += len(positions)
            if self.stop_after and self.embedded >= self.stop_after:
                raise KeyboardInterrupt


def test_vectors_are_the_encoders_and_embedded_once(tmp_path: Path, tiny_bert: str) -> None:
    texts = sentences(90, 0)
    encoder = Counting(tiny_bert)
    cache = VectorCache(tmp_path / "cache")
    first = cache.vectors(encoder, texts[:60])
    again = VectorCache(tmp_path / "cache").vectors(encoder, [*texts[30:], texts[0], texts[0]])
    assert encoder.embedded == 90
    expected = Encoder(tiny_bert, pooling="mean", device="cpu").encode(texts)
    np.testing.assert_allclose(first, expected[:60], atol=1e-5)
    np.testing.assert_allclose(again, np.concatenate([expected[30:], expected[[0, 0]]]), atol=1e-5)


def test_an_interrupted_run_goes_on(tmp_path: Path, tiny_bert: str) -> None:
    texts = sentences(2 * SAVED_EVERY, 0)
    seen: list[tuple[int, int | None]] = []
    stopped = Counting(tiny_bert, stop_after=SAVED_EVERY + 40)
    with pytest.raises(KeyboardInterrupt):
        VectorCache(tmp_path).vectors(stopped, texts, progress=lambda _, done, total: seen.append((done, total)))
    assert seen[0] == (0, len(texts)) and seen[-1][0] >= SAVED_EVERY
    rest = Counting(tiny_bert)
    vectors = VectorCache(tmp_path).vectors(rest, texts)
    assert rest.embedded == len(texts) - stopped.embedded
    np.testing.assert_allclose(vectors, Encoder(tiny_bert, pooling="mean", device="cpu").encode(texts), atol=1e-5)


def test_another_pooling_length_or_model_never_shares_vectors(tiny_bert: str, other_bert: str) -> None:
    keys = {
        encoder.key
        for encoder in [
            *open_encoders([tiny_bert, other_bert], ["mean", "cls", "word"]),
            *open_encoders([tiny_bert], ["mean"], max_length=16),
        ]
    }
    assert len(keys) == 7


def test_a_damaged_cache_is_said(tmp_path: Path, tiny_bert: str) -> None:
    encoder = Counting(tiny_bert)
    path = tmp_path / f"{encoder.key}.sqlite"
    path.write_bytes(b"no database" * 500)
    with pytest.raises(Damaged, match="delete the file"):
        VectorCache(tmp_path).vectors(encoder, ["a b c"])
    with pytest.raises(Misuse, match="is a file; give a folder"):
        VectorCache(path).vectors(encoder, ["a b c"])


def test_the_users_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "flow-retriever" / "vectors"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_cache() == tmp_path / "home" / ".cache" / "flow-retriever" / "vectors"
