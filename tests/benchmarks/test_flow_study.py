"""The maps of the flow study are what they claim: the identity at the start, and of unchanged volume."""

from pathlib import Path

import numpy as np
import pytest
from samples import Run
from similarity import write_set

from benchmarks.studies.flow import VARIANTS, Variant
from retriever.transforms.flow.training import initial

DIMENSION = 10
STEP = 1e-6

every_variant = pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)


@every_variant
def test_starts_as_the_identity(variant: Variant) -> None:
    rng, couplings = np.random.default_rng(0), variant.couplings(DIMENSION)
    z = rng.standard_normal((20, DIMENSION))
    np.testing.assert_array_equal(couplings.forward(initial(couplings, rng), z), z)


@every_variant
def test_volume_is_kept(variant: Variant) -> None:
    rng, couplings = np.random.default_rng(0), variant.couplings(DIMENSION)
    parameters = {
        name: value + 0.3 * rng.standard_normal(value.shape) for name, value in initial(couplings, rng).items()
    }
    assert len(parameters) == 8 * variant.rounds
    for row in 2 * rng.standard_normal((3, DIMENSION)):
        around = STEP * np.eye(DIMENSION)
        jacobian = (couplings.forward(parameters, row + around) - couplings.forward(parameters, row - around)) / (
            2 * STEP
        )
        assert np.linalg.slogdet(jacobian)[1] == pytest.approx(0, abs=1e-6)


@pytest.mark.heavy
def test_the_command_shows_every_variant(run: Run, tmp_path: Path, tiny_bert: str) -> None:
    write_set(tmp_path, "stsb")
    shown = run("flow", "--data", tmp_path, "--encoder", tiny_bert, "--cache", tmp_path / "cache").output
    assert all(variant.name in shown for variant in VARIANTS) and "bits/dim" in shown
