"""Our flow: likelier than whitening, stable, bounded outside what it saw, and its dial."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.optimize import brute

from retriever.errors import FitFailed, FitWarning
from retriever.transforms import Flow, fit
from retriever.transforms.flow.couplings import Couplings
from retriever.transforms.flow.radial import OUTSIDE, SHORTEST, Radial, fit_radial
from retriever.transforms.flow.training import forward

pytestmark = pytest.mark.filterwarnings("error")

# What the choice of the best step by few unseen vectors may cost on others, in bits per dimension.
CHANCE = 0.01


def cone(n: int, d: int = 32, seed: int = 0) -> np.ndarray:
    """Vectors as a BERT makes them: far from the origin, uneven, correlated, their lengths heavy-tailed."""
    rng, fixed = np.random.default_rng(seed), np.random.default_rng(99)
    mix = fixed.normal(size=(d, d)) / math.sqrt(d) * np.geomspace(1, 0.05, d)
    lengths = np.exp(rng.normal(0, 0.4, size=(n, 1)))
    return ((rng.normal(size=(n, d)) * lengths) @ mix.T * 0.1 + fixed.normal(size=d) * 0.5).astype(np.float32)


def curved(n: int, d: int = 16, seed: int = 0) -> np.ndarray:
    """Vectors that no affine map makes Gaussian."""
    x = np.random.default_rng(seed).normal(size=(n, d))
    x[:, d // 2 :] += np.abs(x[:, : d // 2]) * 1.5
    return (x * 0.1 + 0.5).astype(np.float32)


def gaussian(n: int, d: int = 24, seed: int = 0) -> np.ndarray:
    """Vectors that whitening alone makes as Gaussian as they can be."""
    axes = np.linalg.qr(np.random.default_rng(99).normal(size=(d, d)))[0] * np.geomspace(1, 0.3, d)
    return (np.random.default_rng(seed).normal(size=(n, d)) @ axes.T + 1).astype(np.float32)


def fit_flow(spec: str, x: np.ndarray, seed: int = 0) -> Flow:
    flow = fit(spec, x, seed=seed)
    assert isinstance(flow, Flow) and flow.family == "flow"
    return flow


def sound(flow: Flow, x: np.ndarray) -> None:
    """Finite and of ordinary length, likelihoods too, and there is a way back."""
    z = flow.apply(x)
    assert np.isfinite(z).all() and np.linalg.norm(z, axis=1).max() < 20 * math.sqrt(x.shape[1])
    assert np.isfinite(flow.log_likelihood(x)).all() and np.isfinite(flow.log_det(x)).all()
    np.testing.assert_allclose(flow.inverse(z), x, atol=1e-3 * np.abs(x).max())


def bits(flow: Flow, x: np.ndarray) -> float:
    return float(-flow.log_likelihood(x).mean() / x.shape[1] / math.log(2))


def eigenvalues(z: np.ndarray) -> np.ndarray:
    return np.linalg.eigvalsh(np.cov(z.T.astype(np.float64)))


def cosines(x: np.ndarray) -> np.ndarray:
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    return np.asarray(unit @ unit.T)


# ---- likelihood ------------------------------------------------------------------------------------------


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("make", "n", "d", "gain"),
    [
        (cone, 3000, 32, 0.15),
        (cone, 1500, 128, 0.2),
        (cone, 300, 128, 0.2),
        (curved, 4000, 16, 0.1),
        (gaussian, 3000, 24, -CHANCE),
        (gaussian, 250, 64, -CHANCE),
        (gaussian, 3000, 3, -CHANCE),
    ],
)
def test_unseen_vectors_are_at_least_as_likely_as_by_whitening(
    make: Callable[..., np.ndarray], n: int, d: int, gain: float
) -> None:
    seen, unseen = make(n, d), make(1000, d, seed=1)
    flow, whiten = fit_flow("flow", seen), fit("whiten", seen)
    gained = (flow.log_likelihood(unseen) - whiten.log_likelihood(unseen)).mean() / d / math.log(2)
    assert gained >= gain


@pytest.mark.parametrize("make", [cone, curved, gaussian])
@pytest.mark.parametrize("n", [200, 1000])
def test_no_step_makes_held_out_vectors_less_likely(make: Callable[..., np.ndarray], n: int) -> None:
    told = fit_flow("flow", make(n)).describe()
    assert told["held_out_bits_at_best"] <= told["held_out_bits_after_radial"] <= told["held_out_bits_at_start"]
    assert told["trained_on"] + 2 * told["held_out"] == n
    curve = dict(told["curve"])
    assert curve[0] == told["held_out_bits_after_radial"] and list(curve)[-1] == told["steps"]
    assert curve[told["best_step"]] == min(curve.values()) == told["held_out_bits_at_best"]


def test_couplings_learn_what_whitening_and_lengths_cannot() -> None:
    seen, unseen = curved(4000), curved(1000, seed=1)
    flow, without = fit_flow("flow", seen), fit_flow("flow:steps=0", seen)
    assert 0 < flow.describe()["best_step"] <= flow.describe()["steps"] <= 600 and flow.notes == ()
    assert bits(flow, unseen) < bits(without, unseen) - 0.1
    assert bits(flow, unseen) == pytest.approx(flow.describe()["held_out_bits_at_best"], abs=0.1)


def test_no_steps_leave_the_couplings_out() -> None:
    flow = fit_flow("flow:steps=0", curved(1000))
    told = flow.describe()
    assert set(flow.state.tensors) == {"mean", "matrix", "spectrum"} and told["rounds"] == 0
    assert told["steps"] == told["best_step"] == 0 and told["curve"] == []
    assert told["held_out_bits_at_best"] == told["held_out_bits_after_radial"]


def test_couplings_that_gain_nothing_are_left_out() -> None:
    flow = fit_flow("flow", gaussian(1000))
    assert flow.describe()["best_step"] == 0 and flow.describe()["steps"] > 0
    assert set(flow.state.tensors) == {"mean", "matrix", "spectrum"}


# ---- every encoder and scale -----------------------------------------------------------------------------


@pytest.mark.heavy
@pytest.mark.parametrize("d", [128, 384, 768, 1024])
def test_every_dimension_of_an_encoder(d: int) -> None:
    x = cone(700, d)
    flow = fit_flow("flow:steps=25", x)
    sound(flow, x)
    sound(flow, cone(50, d, seed=1))


@pytest.mark.parametrize("norm", [0.01, 1.0, 100.0])
def test_every_norm(norm: float) -> None:
    x = cone(1000, 48)
    scale = np.float32(norm / np.linalg.norm(x, axis=1).mean())
    flow = fit_flow("flow:steps=50", x * scale)
    sound(flow, x * scale)
    expected = cosines(fit_flow("flow:steps=50", x).apply(x[:100]))
    np.testing.assert_allclose(cosines(flow.apply(x[:100] * scale)), expected, atol=1e-2)


@pytest.mark.parametrize("n", [100, 2000])
@pytest.mark.parametrize("strength", [0.75, 1.0])
def test_constant_dimensions(n: int, strength: float) -> None:
    x = curved(n)
    x[:, [2, 7, 11]] = np.random.default_rng(1).normal(size=(n, 3)) * [1e-33, 0, 1e-9] + [0, 0.2, 0]
    flow = fit_flow(f"flow:strength={strength}", x)
    sound(flow, x)
    query = x[:1].copy()
    query[0, [2, 7, 11]] += 0.01
    assert np.abs(flow.apply(query) - flow.apply(x[:1])).max() < 5.0


@pytest.mark.heavy
def test_fewer_vectors_than_dimensions() -> None:
    x, unseen = cone(200, 384), cone(200, 384, seed=1)
    flow = fit_flow("flow", x)
    assert flow.notes == ()
    sound(flow, x)
    sound(flow, unseen)
    ratio = np.linalg.norm(flow.apply(unseen), axis=1).mean() / np.linalg.norm(flow.apply(x), axis=1).mean()
    assert 0.8 < ratio < 1.5


@pytest.mark.parametrize("d", [13, 128])
def test_with_sixty_vectors_nothing_is_learned_and_that_is_told(d: int) -> None:
    x = cone(60, d)
    flow = fit_flow("flow", x)
    assert flow.notes == (
        "there are only 60 distinct vectors: the flow is only whitening and a radial map, without learned couplings",
    )
    assert "held_out_bits_at_best" not in flow.describe() and flow.describe()["best_step"] == 0
    sound(flow, x)
    sound(flow, cone(60, d, seed=1))


@pytest.mark.parametrize("n", [2, 49])
def test_below_fifty_vectors_they_are_left_as_they_are(n: int) -> None:
    x = cone(n)
    with pytest.warns(FitWarning, match=f"at least 50 distinct vectors, and there are {n}.*the vectors stay raw"):
        transform = fit("flow", x)
    assert transform.family == "none" and transform.spec == "flow" and transform.fitted_on == n
    assert transform.notes[0].startswith("a flow needs at least 50 distinct vectors")
    assert np.array_equal(transform.apply(x), x)


def test_one_row_repeated_many_times() -> None:
    x = cone(400)
    flow = fit_flow("flow", np.concatenate([x, np.repeat(x[:1], 5000, axis=0)]))
    assert flow.fitted_on == 5400 and flow.describe()["trained_on"] + 2 * flow.describe()["held_out"] == 400
    sound(flow, x)


def test_copies_do_not_count_as_vectors() -> None:
    x = cone(60)
    flow = fit_flow("flow", np.tile(x, (500, 1)))
    assert flow.fitted_on == 30_000 and flow.notes[0].startswith("there are only 60 distinct vectors")
    sound(flow, x)
    with pytest.warns(FitWarning, match="there are 40"):
        assert fit("flow", np.tile(x[:40], (100, 1))).family == "none"


@pytest.mark.parametrize("d", [1, 2, 3, 13])
def test_odd_and_tiny_dimensions(d: int) -> None:
    for make in (cone, gaussian):
        x = make(1000, d)
        flow = fit_flow("flow:strength=1,steps=100", x)
        sound(flow, x)
        sound(flow, make(100, d, seed=1))


def test_a_single_dimension_is_told_of() -> None:
    note = fit_flow("flow", cone(1000, 1)).notes[0]
    assert (
        note == "the vectors have one dimension: the flow is only whitening and a radial map, without learned couplings"
    )


def test_equal_vectors_are_left_as_they_are() -> None:
    transform = fit("flow", np.full((1000, 32), 0.3, np.float32))
    assert transform.family == "none" and "all 1,000 vectors are the same" in transform.notes[0]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_refused(bad: float) -> None:
    x = cone(300)
    x[7, 3] = bad
    with pytest.raises(FitFailed, match="1 of 300 vectors hold NaN or infinity"):
        fit("flow", x)


# ---- chance ----------------------------------------------------------------------------------------------


def test_a_seed_gives_the_same_bytes_and_another_others() -> None:
    x = curved(1000)
    first, again, other = (fit_flow("flow:steps=100", x, seed) for seed in (1, 1, 2))
    assert first.describe()["best_step"] > 0 and first.fingerprint == again.fingerprint
    assert np.array_equal(first.apply(x), again.apply(x))
    assert other.fingerprint != first.fingerprint and not np.array_equal(other.apply(x), first.apply(x))


def test_global_chance_and_threads_are_left_alone_and_do_not_matter() -> None:
    x = curved(1000)
    threads = torch.get_num_threads()
    fingerprints = set()
    try:
        for seed, count in ((7, 1), (8, 2)):
            torch.manual_seed(seed)
            np.random.seed(seed)
            expected = torch.rand(3), np.random.rand(3)
            torch.manual_seed(seed)
            np.random.seed(seed)
            torch.set_num_threads(count)
            fingerprints.add(fit_flow("flow:steps=50", x).fingerprint)
            assert torch.get_num_threads() == count
            assert torch.equal(torch.rand(3), expected[0]) and np.array_equal(np.random.rand(3), expected[1])
    finally:
        torch.set_num_threads(threads)
    assert len(fingerprints) == 1


def test_threads_are_given_back_after_a_failure() -> None:
    threads = torch.get_num_threads()

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit("flow", curved(500), progress=interrupt)
    assert torch.get_num_threads() == threads


def test_progress_is_told_to_the_end() -> None:
    told: list[tuple[int, int]] = []
    fit("flow:steps=600", gaussian(500), progress=lambda done, total: told.append((done, total)))
    assert told[0] == (25, 600) and told[-1] == (600, 600) and sorted(told) == told


# ---- outside of what was seen ----------------------------------------------------------------------------


@pytest.mark.heavy
@pytest.mark.parametrize("make", [cone, curved, gaussian])
@pytest.mark.parametrize("times", [10, 100, 1e4])
def test_far_outside_lengths_stay_bounded(make: Callable[..., np.ndarray], times: float) -> None:
    x, unseen = make(2000, 128), make(200, 128, seed=1)
    flow = fit_flow("flow:strength=1,steps=100", x)
    mean = x.mean(axis=0)
    farthest = np.linalg.norm(x - mean, axis=1).max()
    way = unseen - mean
    outside = mean + way / np.linalg.norm(way, axis=1, keepdims=True) * farthest * np.float32(times)
    z = flow.apply(outside)
    assert np.isfinite(z).all() and np.isfinite(flow.log_likelihood(outside)).all()
    assert np.linalg.norm(z, axis=1).max() < 10 * np.linalg.norm(flow.apply(x), axis=1).max()
    assert flow.log_likelihood(outside).max() < np.median(flow.log_likelihood(x))


@pytest.mark.heavy
@pytest.mark.parametrize("make", [cone, curved])
def test_far_outside_couplings_move_no_further_than_inside(make: Callable[..., np.ndarray]) -> None:
    x = make(3000)
    flow = fit_flow("flow:strength=1", x)
    told, tensors = flow.describe(), flow.state.tensors
    assert told["rounds"] == 1
    couplings = Couplings(x.shape[1], told["top"], told["width"])
    inside = np.random.default_rng(0).normal(size=(2000, x.shape[1]))

    def moved(z: np.ndarray) -> float:
        return float(np.linalg.norm(couplings.forward(tensors, z) - z, axis=1).max())

    limits = [
        np.abs(tensors[f"round0.{side}.last.weight"]).sum(axis=0) + np.abs(tensors[f"round0.{side}.last.bias"])
        for side in ("up", "down")
    ]
    for times in (10, 100, 1e4, 1e8):
        assert moved(inside * times) <= np.linalg.norm(np.concatenate(limits))
        assert moved(inside * times) < 5 * moved(inside)


# ---- the dial --------------------------------------------------------------------------------------------


@pytest.mark.heavy
def test_strength_zero_leaves_the_cosines_of_the_centred_vectors() -> None:
    x, unseen = curved(2000), curved(200, seed=1)
    flow = fit_flow("flow:strength=0", x)
    assert flow.describe()["rounds"] == 1
    centred = unseen - flow.state.tensors["mean"]
    np.testing.assert_allclose(cosines(flow.apply(unseen)), cosines(centred), atol=1e-4)
    np.testing.assert_allclose(cosines(flow.apply(unseen)), cosines(fit("center", x).apply(unseen)), atol=0.05)


def test_full_strength_gives_unseen_vectors_unit_covariance() -> None:
    flow = fit_flow("flow:strength=1", gaussian(6000))
    z = flow.apply(gaussian(6000, seed=1))
    assert np.abs(z.mean(axis=0)).max() < 0.1
    assert eigenvalues(z).min() > 0.75 and eigenvalues(z).max() < 1.25


@pytest.mark.parametrize("make", [cone, gaussian])
def test_more_strength_flattens_the_spectrum(make: Callable[..., np.ndarray]) -> None:
    flow, unseen = fit_flow("flow", make(3000)), make(2000, seed=1)
    spread = []
    for strength in (0, 0.25, 0.5, 0.75, 0.9, 1):
        values = eigenvalues(flow.at_strength(f"flow:strength={strength}").apply(unseen))
        spread.append(float(np.log(values).std()))
    assert spread == sorted(spread, reverse=True) and spread[-1] < spread[0] / 2


@pytest.mark.heavy
@pytest.mark.parametrize("strength", [0, 0.3, 0.75, 1])
def test_turning_the_dial_equals_fitting_with_it(strength: float) -> None:
    x = curved(600)
    flow, spec = fit_flow("flow", x, seed=5), f"flow:strength={strength}"
    turned, fitted = flow.at_strength(spec), fit_flow(spec, x, seed=5)
    assert turned.strength == strength and turned.spec == fitted.spec
    assert turned.fingerprint == fitted.fingerprint and turned.describe() == fitted.describe()
    assert np.array_equal(turned.apply(x), fitted.apply(x))


@pytest.mark.heavy
def test_likelihood_is_that_of_the_full_flow_at_any_strength() -> None:
    x = curved(600)
    full = fit_flow("flow:strength=1", x)
    for strength in (0, 0.5, 0.9):
        assert np.array_equal(full.at_strength(f"flow:strength={strength}").log_likelihood(x), full.log_likelihood(x))


def test_default_strength_is_kept_with_the_flow() -> None:
    flow = fit_flow("flow:steps=0", curved(300))
    assert flow.strength == flow.describe()["strength"] == 0.5


# ---- its parts -------------------------------------------------------------------------------------------


def random_couplings(d: int, top: int, width: int, rounds: int) -> tuple[Couplings, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    couplings = Couplings(d, top, width, rounds)
    return couplings, {name: rng.normal(0, 0.2, shape).astype(np.float32) for name, shape in couplings.shapes().items()}


@pytest.mark.parametrize("sizes", [(16, 4, 8, 1), (13, 6, 5, 3), (2, 1, 3, 2), (9, 4, 7, 0), (96, 48, 128, 1)])
def test_couplings_in_torch_and_numpy_agree_and_can_be_undone(sizes: tuple[int, int, int, int]) -> None:
    couplings, parameters = random_couplings(*sizes)
    z = np.random.default_rng(1).normal(size=(20, sizes[0])).astype(np.float32)
    in_torch = forward(couplings, {n: torch.from_numpy(p) for n, p in parameters.items()}, torch.from_numpy(z))
    np.testing.assert_allclose(couplings.forward(parameters, z), in_torch.numpy(), atol=1e-5)
    wide = {name: value.astype(np.float64) for name, value in parameters.items()}
    for share in (0.0, 0.3, 1.0):
        moved = couplings.forward(wide, z.astype(np.float64), share)
        np.testing.assert_allclose(couplings.backward(wide, moved, share), z, atol=1e-9)
    assert np.array_equal(couplings.forward(parameters, z, 0.0), z)


def test_couplings_keep_volume() -> None:
    couplings, parameters = random_couplings(7, 3, 5, 2)
    tensors = {name: torch.from_numpy(value.astype(np.float64)) for name, value in parameters.items()}
    row = torch.from_numpy(np.random.default_rng(1).normal(size=7))
    jacobian = torch.autograd.functional.jacobian(lambda z: forward(couplings, tensors, z[None])[0], row)
    assert float(torch.linalg.slogdet(jacobian)[1]) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("d", [1, 3, 16])
@pytest.mark.parametrize(("power", "factor"), [(1.0, 1.0), (0.15, 4.0), (0.6, 0.5), (0.05, 9.0)])
@pytest.mark.parametrize("longest", [math.inf, 30.0])
def test_radial_map_by_autograd_and_back(d: int, power: float, factor: float, longest: float) -> None:
    radial = Radial(d, power, factor, longest)
    way = np.random.default_rng(0).normal(size=(5, d))
    way /= np.linalg.norm(way, axis=1, keepdims=True)
    shortest = SHORTEST * math.sqrt(d)

    def in_torch(z: torch.Tensor) -> torch.Tensor:
        length = z.norm().clamp(min=shortest)
        beyond = (length / longest).clamp(min=1.0) ** (min(power, OUTSIDE) - 1)
        return z * factor * length.clamp(max=longest) ** (power - 1) * beyond

    for length in (1e-9, 0.5 * shortest, 2 * shortest, 1.0, math.sqrt(d), 100.0):
        z = way * length
        jacobians = [torch.autograd.functional.jacobian(in_torch, torch.from_numpy(row)) for row in z]
        expected = [float(torch.linalg.slogdet(jacobian)[1]) for jacobian in jacobians]
        np.testing.assert_allclose(radial.log_det(z), expected, rtol=1e-9, atol=1e-9)
        bent = radial.forward(z)
        np.testing.assert_allclose(bent, torch.stack([in_torch(torch.from_numpy(row)) for row in z]), rtol=1e-12)
        np.testing.assert_allclose(radial.backward(bent), z, rtol=1e-6)
        np.testing.assert_allclose(cosines(bent), cosines(way), atol=1e-9)


def test_radial_map_leaves_the_mean_where_it_is() -> None:
    for z in (np.zeros((1, 8)), np.zeros((1, 8), np.float32)):
        radial = Radial(8, 0.15, 3.0)
        assert not radial.forward(z).any() and not radial.backward(z).any() and np.isfinite(radial.log_det(z)).all()


@pytest.mark.heavy
@pytest.mark.parametrize("d", [1, 5, 64])
@pytest.mark.parametrize("tail", [0.0, 0.3, 1.0])
def test_radial_fit_is_the_likeliest_by_brute_force(d: int, tail: float) -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(400, d)) * np.exp(rng.normal(0, tail, size=(400, 1)))

    def loss(power: float, log_factor: float) -> float:
        radial = Radial(d, power, math.exp(log_factor))
        return float((0.5 * (radial.forward(z) ** 2).sum(axis=1) - radial.log_det(z)).mean())

    found = fit_radial(z, math.inf)
    best = brute(lambda p: loss(*p), ((0.05, 1.0), (-1.0, 5.0)), Ns=60, finish=None, full_output=True)[1]
    assert 0.05 <= found.power <= 1
    assert loss(found.power, math.log(found.factor)) <= best + 1e-4


def test_radial_fit_brings_lengths_to_those_of_a_gaussian() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2000, 64)) * np.exp(rng.normal(0, 0.6, size=(2000, 1)))
    lengths = np.linalg.norm(fit_radial(z, math.inf).forward(z), axis=1)
    assert (lengths**2).mean() == pytest.approx(64, rel=1e-3)
    assert lengths.std() < 2 and np.linalg.norm(z, axis=1).std() > 5
