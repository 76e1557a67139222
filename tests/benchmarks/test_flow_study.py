"""The maps of the flow study are what they claim: the identity at the start, and of unchanged volume."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from samples import Run
from similarity import write_set

from benchmarks.studies.flow import VARIANTS, Variant

DIMENSION = 10

every_variant = pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)


@pytest.fixture
def double_precision() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


@every_variant
def test_starts_as_the_identity(variant: Variant, double_precision: None) -> None:
    z = torch.randn(20, DIMENSION)
    torch.testing.assert_close(variant.chain(DIMENSION)(z), z)


@every_variant
def test_volume_is_kept(variant: Variant, double_precision: None) -> None:
    chain = variant.chain(DIMENSION)
    with torch.no_grad():
        for parameter in chain.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    for row in 2 * torch.randn(3, DIMENSION):
        jacobian = torch.autograd.functional.jacobian(lambda z: chain(z[None])[0], row)
        torch.testing.assert_close(torch.linalg.slogdet(jacobian)[1], torch.tensor(0.0))


@pytest.mark.heavy
def test_the_command_shows_every_variant(run: Run, tmp_path: Path, tiny_bert: str) -> None:
    write_set(tmp_path, "stsb")
    shown = run("flow", "--data", tmp_path, "--encoder", tiny_bert, "--cache", tmp_path / "cache").output
    assert all(variant.name in shown for variant in VARIANTS) and "bits/dim" in shown
