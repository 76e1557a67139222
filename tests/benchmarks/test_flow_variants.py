"""The maps of the flow study are what they claim: the identity at the start, rising, with the right volume."""

from collections.abc import Iterator

import pytest
import torch

from benchmarks.studies.flow_variants import BINS, BOUND, Chain, Ranks, Variant, spline, variants

DIMENSION = 10

every_variant = pytest.mark.parametrize("variant", variants(), ids=lambda variant: variant.name)


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


@every_variant
def test_starts_as_the_identity(variant: Variant) -> None:
    z = torch.randn(20, DIMENSION)
    moved, log_det = Chain(variant.build(DIMENSION))(z)
    torch.testing.assert_close(moved, z)
    torch.testing.assert_close(log_det, torch.zeros(20))


@every_variant
def test_log_determinant_is_that_of_the_jacobian(variant: Variant) -> None:
    chain = Chain(variant.build(DIMENSION))
    for part in chain.modules():
        if isinstance(part, Ranks):
            part.fit(torch.randn(500, DIMENSION) ** 3)
    with torch.no_grad():
        for parameter in chain.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    for row in 2 * torch.randn(3, DIMENSION):
        jacobian = torch.autograd.functional.jacobian(lambda z: chain(z[None])[0][0], row)
        torch.testing.assert_close(chain(row[None])[1][0], torch.linalg.slogdet(jacobian)[1])


def test_a_spline_rises_and_is_the_identity_far_out() -> None:
    z = torch.linspace(-1.5 * BOUND, 1.5 * BOUND, 500)[:, None]
    moved, _ = spline(z, 2 * torch.randn(1, 3 * BINS - 1))
    assert (moved.diff(dim=0) > 0).all()
    outside = z.abs() > BOUND
    assert torch.equal(moved[outside], z[outside])


def test_ranks_make_a_direction_gaussian() -> None:
    rows = torch.randn(4000, DIMENSION).exp()
    ranks = Ranks(DIMENSION, 50)
    ranks.fit(rows)
    moved, _ = ranks(rows)
    places = torch.tensor([0.1, 0.3, 0.5, 0.7, 0.9])
    expected = torch.special.ndtri(places)[:, None].expand(-1, DIMENSION)
    torch.testing.assert_close(torch.quantile(moved, places, dim=0), expected, atol=0.03, rtol=0)
