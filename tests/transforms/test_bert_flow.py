"""BERT-flow: its architecture as published, its training, and the ways in which it gives up."""

import numpy as np
import pytest
import torch

from retriever.errors import FitWarning
from retriever.transforms import fit
from retriever.transforms.bert_flow import bert_flow as flow_module
from retriever.transforms.bert_flow.bert_flow import BertFlow
from retriever.transforms.bert_flow.glow import Glow, GlowWeights
from retriever.transforms.bert_flow.training import forward, initialise, train

pytestmark = pytest.mark.filterwarnings("error")


def curved(n: int, d: int = 16, seed: int = 0) -> np.ndarray:
    """Vectors that no affine map makes Gaussian."""
    x = np.random.default_rng(seed).normal(size=(n, d))
    x[:, d // 2 :] += np.abs(x[:, : d // 2]) * 1.5
    return (x * 0.1 + 0.5).astype(np.float32)


def tensors(parameters: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(value.astype(np.float64)) for name, value in parameters.items()}


def random_parameters(glow: Glow, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(0, 0.15, shape).astype(np.float32) for name, shape in glow.shapes().items()}


def test_size_is_that_of_the_published_flow() -> None:
    assert sum(int(np.prod(shape)) for shape in Glow(768).shapes().values()) == 151_488


def test_one_step_by_hand() -> None:
    """Actnorm, reversal, coupling, written out for four channels."""
    glow = Glow(4, levels=1, depth=1, width=2)
    p = random_parameters(glow)
    w = {name.removeprefix("level0.step0."): value.astype(np.float64) for name, value in p.items()}
    u = np.array([[0.3, -1.0, 2.0, 0.1]])
    x = (u + w["actnorm.bias"]) * np.exp(3 * w["actnorm.log_scale"])
    x = x[:, [3, 2, 1, 0]]
    hidden = x[:, :2]
    for layer in ("first", "second"):
        hidden = (hidden @ w[f"{layer}.weight"] + w[f"{layer}.bias"]) * np.exp(3 * w[f"{layer}.log_scale"])
        hidden = np.maximum(hidden, 0)
    shift = (hidden @ w["last.weight"] + w["last.bias"]) * np.exp(3 * w["last.log_scale"])
    expected = np.concatenate([x[:, :2], x[:, 2:] + shift], axis=1)
    np.testing.assert_allclose(GlowWeights(glow, p, np.dtype(np.float64)).forward(u), expected, rtol=1e-12)


def test_half_of_the_channels_leaves_after_each_level() -> None:
    """With every parameter zero only the reversals and the order of leaving are left to see."""
    glow = Glow(8, levels=3, depth=1, width=2)
    zero = {name: np.zeros(shape, dtype=np.float32) for name, shape in glow.shapes().items()}
    z = GlowWeights(glow, zero, np.dtype(np.float32)).forward(np.arange(8, dtype=np.float32)[None])
    # 76543210 -> 3210 leaves; 7654 -> 4567: 67 leaves; 45 -> 54.
    assert z[0].tolist() == [3, 2, 1, 0, 6, 7, 5, 4]


@pytest.mark.parametrize("glow", [Glow(8), Glow(24, 3, 3, 32), Glow(6, 1, 2, 5), Glow(20, 2, 1, 3)])
def test_numpy_torch_and_autograd_agree(glow: Glow) -> None:
    parameters = random_parameters(glow)
    x = torch.from_numpy(np.random.default_rng(1).normal(size=(5, glow.dimension)))
    z, log_det = forward(glow, tensors(parameters), x)
    numbers = GlowWeights(glow, parameters, np.dtype(np.float64))
    np.testing.assert_allclose(numbers.forward(x.numpy()), z.numpy(), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(numbers.backward(z.numpy()), x.numpy(), rtol=1e-6, atol=1e-6)
    jacobian = torch.autograd.functional.jacobian(lambda row: forward(glow, tensors(parameters), row[None])[0][0], x[0])
    assert float(torch.linalg.slogdet(jacobian)[1]) == pytest.approx(float(log_det), abs=1e-8)


def test_gradients_of_the_parameters() -> None:
    glow = Glow(4, levels=2, depth=1, width=3)
    names = list(glow.shapes())
    given = [t.requires_grad_() for t in tensors(random_parameters(glow, 5)).values()]
    x = torch.from_numpy(np.random.default_rng(1).normal(size=(3, 4)))

    def likelihood(*parameters: torch.Tensor) -> torch.Tensor:
        z, log_det = forward(glow, dict(zip(names, parameters, strict=True)), x)
        return log_det - 0.5 * (z * z).sum(dim=1)

    assert torch.autograd.gradcheck(likelihood, given)


def test_first_batch_leaves_with_mean_zero_and_variance_one() -> None:
    batch = curved(64)
    glow = Glow(16)
    parameters = initialise(glow, batch, np.random.default_rng(0))
    z = GlowWeights(glow, parameters, np.dtype(np.float64)).forward(batch.astype(np.float64))
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(z.std(axis=0), 1, atol=1e-3)
    assert not any(value.any() for name, value in parameters.items() if ".last." in name)
    weights = np.concatenate(
        [v.ravel() for n, v in parameters.items() if n.endswith(("first.weight", "second.weight"))]
    )
    assert weights.std() == pytest.approx(0.05, rel=0.05)


def test_learns_what_whitening_cannot() -> None:
    seen, unseen = curved(4000), curved(1000, seed=1)
    flow, whiten = fit("bert-flow", seen), fit("whiten", seen)
    told = flow.describe()
    assert isinstance(flow, BertFlow) and flow.family == "bert-flow" and flow.notes == ()
    assert flow.log_likelihood(unseen).mean() > whiten.log_likelihood(unseen).mean() + 0.2
    assert told["held_out_bits_at_best"] < told["held_out_bits_at_start"]
    assert told["architecture"] == "bert-flow" and 0 < told["best_step"] <= told["steps"] <= 600
    assert told["curve"][0] == [0, told["held_out_bits_at_start"]]
    bits = -flow.log_likelihood(unseen).mean() / 16 / np.log(2)
    assert told["held_out_bits_at_best"] == pytest.approx(bits, abs=0.1)


def test_stops_when_held_out_likelihood_falls() -> None:
    few = np.random.default_rng(0).normal(size=(300, 64)).astype(np.float32)
    training = train(Glow(64), few, steps=2000, seed=0)
    assert training.steps < 2000
    assert min(bits for _, bits in training.curve) == dict(training.curve)[training.best_step]


def test_seeds_differ_and_global_chance_is_left_alone() -> None:
    x = curved(800)
    torch.manual_seed(7)
    np.random.seed(7)
    expected = torch.rand(3), np.random.rand(3)
    torch.manual_seed(7)
    np.random.seed(7)
    threads = torch.get_num_threads()
    a, b = fit("bert-flow:steps=40", x, seed=1), fit("bert-flow:steps=40", x, seed=2)
    assert torch.equal(torch.rand(3), expected[0]) and np.array_equal(np.random.rand(3), expected[1])
    assert torch.get_num_threads() == threads
    assert a.fingerprint != b.fingerprint and a.fingerprint == fit("bert-flow:steps=40", x, seed=1).fingerprint


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    fit("bert-flow:steps=50", curved(800), progress=lambda done, total: told.append((done, total)))
    assert told[0] == (20, 50) and told[-1] == (50, 50) and sorted(told) == told


def test_dead_dimensions_as_in_minilm() -> None:
    """The published flow gives NaN where dimensions have a deviation of 1e-33 and 1e-9; see bert_flow_training."""
    x = curved(2000)
    noise = np.random.default_rng(1).normal(size=(2000, 3))
    x[:, [2, 7, 11]] = noise * [1e-33, 0, 1e-9] + [0, 0.2, 0]
    transform = fit("bert-flow:steps=300", x)
    assert transform.family == "bert-flow" and transform.notes[0].startswith("3 of 16 dimensions are constant")
    z = transform.apply(x)
    assert np.isfinite(z).all() and np.abs(z).max() < 50
    query = x[:1].copy()
    query[0, [2, 7, 11]] += 0.01
    assert np.abs(transform.apply(query) - z[:1]).max() < 1.0


def test_a_channel_that_is_constant_in_the_first_batch_only() -> None:
    x = curved(3000)
    x[:, 5] = 0
    x[::100, 5] = 1
    transform = fit("bert-flow:steps=200", x)
    assert transform.family == "bert-flow" and transform.notes == () and np.abs(transform.apply(x)).max() < 100


def test_duplicates_do_not_cross_the_split() -> None:
    told = fit("bert-flow:steps=40", np.repeat(curved(500), 4, axis=0)).describe()
    assert told["fitted_on"] == 2000 and told["trained_on"] + told["held_out"] == 500


def test_fewer_levels_where_the_dimension_does_not_halve() -> None:
    transform = fit("bert-flow:steps=40", curved(600, d=12))
    assert transform.describe()["levels"] == 2 and "12 dimensions can be halved 2 times" in transform.notes[0]


def fit_with_warning(spec: str, x: np.ndarray) -> str:
    with pytest.warns(FitWarning, match="whitening is used instead"):
        transform = fit(spec, x)
    assert transform.family == "whiten" and transform.spec == spec
    assert np.isfinite(transform.apply(x)).all()
    return transform.notes[0]


def test_odd_dimension_is_whitened() -> None:
    assert "even dimension, and the vectors have 15" in fit_with_warning("bert-flow", curved(600)[:, :15])


def test_few_vectors_are_whitened() -> None:
    assert "at least 200 distinct vectors, and there are 50" in fit_with_warning(
        "bert-flow", np.tile(curved(50), (9, 1))
    )


def test_likelihood_that_is_not_finite_is_whitened() -> None:
    x = curved(600)
    x[:3] = 3e25
    assert "finite" in fit_with_warning("bert-flow", x)


def test_a_start_that_is_never_beaten_is_whitened() -> None:
    x = np.random.default_rng(0).normal(size=(220, 256)).astype(np.float32)
    assert "never improved" in fit_with_warning("bert-flow", x)


def test_exploding_output_is_whitened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_module, "EXPLODED", 1e-3)
    assert "to a length of" in fit_with_warning("bert-flow:steps=40", curved(600))


def test_a_handful_of_vectors_is_left_alone() -> None:
    with pytest.warns(FitWarning, match="stay raw"):
        transform = fit("bert-flow", curved(20))
    assert transform.family == "none" and "at least 200 distinct vectors, and there are 20" in transform.notes[0]
