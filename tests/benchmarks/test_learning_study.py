"""The closed form of the learning study finds what pairs share, and the aligned flow starts from it."""

from pathlib import Path

import numpy as np
import pytest
from beir_made_up import write_beir
from samples import Run

from benchmarks.studies.learning import ALIGNMENTS, _distance, fit_aligned_flow, fit_closed_forms, fit_linear_map
from benchmarks.studies.parts import Part, Rows, Vectors, read_part
from retriever.evaluate.data.beir import read_set

DIMENSION, SHARED = 12, 4


@pytest.fixture
def vectors(tmp_path: Path) -> Vectors:
    """Vectors whose last SHARED dimensions are the same in both parts of a pair. The others are larger, and noise."""
    rng = np.random.default_rng(0)
    scale = np.where(np.arange(DIMENSION) < DIMENSION - SHARED, 3.0, 1.0)

    def rows(count: int) -> Rows:
        return (rng.standard_normal((count, DIMENSION)) * scale).astype(np.float32)

    crops, rests = rows(2000), rows(2000)
    rests[:, -SHARED:] = crops[:, -SHARED:] + 0.1 * rests[:, -SHARED:]
    return Vectors(_part(tmp_path), rows(500), rows(100), crops, rests, rows(30), rows(8))


def _part(folder: Path) -> Part:
    return read_part(read_set(write_beir(folder / "made-up")), documents=60, pairs=100)


def test_a_part_keeps_relevant_documents_and_cuts_every_crop_out_of_one(tmp_path: Path) -> None:
    part = read_part(read_set(write_beir(tmp_path)), documents=20, pairs=30)
    relevant = {id_ for own in part.topics.judgements.values() for id_, grade in own.items() if grade}
    assert len(part.documents) == 20 and relevant <= set(part.ids)
    texts = [" ".join(text.split()) for text in part.documents]
    for crop, rest in zip(part.crops, part.rests, strict=True):
        own = [text for text in texts if crop in text]
        assert any(sorted(f"{crop} {rest}".split()) == sorted(text.split()) for text in own)


def test_the_closed_form_puts_shared_directions_first(vectors: Vectors) -> None:
    found = fit_closed_forms(vectors)["closed form, shrinkage 0.1, power 1"]
    strength = np.abs(found.matrix[-SHARED:]).sum(axis=0)
    assert set(np.argsort(-strength)[:SHARED]) == set(range(SHARED))
    assert (found.weights[:SHARED] > 0.8).all() and (found.weights[SHARED:] < 0.2).all()


def test_power_0_whitens(vectors: Vectors) -> None:
    found = fit_closed_forms(vectors)["closed form, shrinkage 0.1, power 0"]
    covariance = np.cov(found(np.concatenate([vectors.documents, vectors.crops])).T)
    assert np.abs(covariance - np.diag(np.diag(covariance))).max() < 0.1
    assert (np.diag(covariance) < 1).all() and (np.diag(covariance) > 0.5).all()


def test_trained_maps_are_the_same_for_a_seed(vectors: Vectors) -> None:
    start = fit_closed_forms(vectors)["closed form, shrinkage 1, power 0.5"]
    for trained in (
        [fit_aligned_flow(vectors, start, ALIGNMENTS[-1], 0, _distance)(vectors.queries) for _ in range(2)],
        [fit_linear_map(vectors, start, 0)(vectors.queries) for _ in range(2)],
    ):
        assert (trained[0] == trained[1]).all() and np.isfinite(trained[0]).all()


@pytest.mark.slow
@pytest.mark.heavy
def test_the_command_shows_every_variant(run: Run, tmp_path: Path, tiny_bert: str) -> None:
    write_beir(tmp_path / "made-up")
    options = ("--encoder", tiny_bert, "--seeds", 2, "--cache", tmp_path / "cache")
    shown = run("learning", "--data", tmp_path / "made-up", *options).output
    for variant in ("whiten:soft=0.3", "closed form", "aligned flow, contrast 1", "linear map", "word table, learned"):
        assert variant in shown
