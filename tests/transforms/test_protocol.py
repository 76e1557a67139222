"""One test class over every transform: invertibility, log-determinant, gradients, save and load, batch = single."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from retriever.errors import Damaged, Mismatch
from retriever.transforms import Flow, Transform, fit, load, parse
from retriever.transforms.affine import Affine
from retriever.transforms.bert_flow.bert_flow import BertFlow
from retriever.transforms.bert_flow.training import forward

SPECS = (
    "none",
    "center",
    "standardize",
    "whiten",
    "whiten:shrinkage=0",
    "whiten:shrinkage=0.3",
    "whiten:method=zca",
    "whiten:method=zca,soft=0.1",
    "whiten:gamma=0.5",
    "whiten:dimension=5",
    "whiten:dimension=5,gamma=0.25,soft=1",
    "flow",
    "flow:strength=1",
    "flow:strength=0.3",
    "flow:strength=0",
    "bert-flow",
    "bert-flow:levels=2,depth=2,width=8",
)
DIMENSION = 16


def cone(n: int, d: int = DIMENSION, seed: int = 0) -> np.ndarray:
    """Vectors as a BERT makes them: far from the origin, uneven, a little curved, correlated."""
    rng = np.random.default_rng(seed)
    mix = np.random.default_rng(99).normal(size=(d, d)) * np.geomspace(1, 0.05, d)
    x = rng.normal(size=(n, d))
    x[:, 1] += 0.5 * x[:, 0] ** 2
    return (x @ mix.T * 0.1 + 0.7).astype(np.float32)


@pytest.fixture(scope="module", params=SPECS)
def transform(request: pytest.FixtureRequest) -> Transform:
    spec = request.param
    if "flow" in spec:
        spec += ("," if ":" in spec else ":") + "steps=200"
    fitted = fit(spec, cone(1500), seed=3)
    assert fitted.spec == str(parse(spec)) and fitted.notes == ()
    return fitted


def in_torch(transform: Transform, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """z and log-determinant by torch, in double precision, from the stored tensors."""
    tensors = {name: torch.from_numpy(t.astype(np.float64)) for name, t in transform.state.tensors.items()}
    if isinstance(transform, BertFlow):
        return forward(transform.glow, tensors, x)
    if isinstance(transform, Flow):
        return flow_in_torch(transform.describe(), tensors, x)
    assert isinstance(transform, Affine)
    jacobian = torch.autograd.functional.jacobian(lambda row: in_torch_z(tensors, row), x[:1].clone()).reshape(
        transform.dimension_out, transform.dimension_in
    )
    return in_torch_z(tensors, x), 0.5 * torch.linalg.slogdet(jacobian @ jacobian.T)[1]


def flow_in_torch(told: dict, tensors: dict[str, torch.Tensor], x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Our flow written again: whiten, bend, couple, temper; the determinant step by step."""
    white = (x - tensors["mean"]) @ tensors["matrix"]
    length, d = white.norm(dim=1), x.shape[1]
    z = white * (told["factor"] * length ** (told["power"] - 1))[:, None]
    bend = d * math.log(told["factor"]) + d * (told["power"] - 1) * length.log() + math.log(told["power"])
    top, rest = z[:, : told["top"]], z[:, told["top"] :]
    for number in range(told["rounds"]):
        for side in ("down", "up"):
            a, b, c, e = (
                tensors[f"round{number}.{side}.{layer}.{part}"]
                for layer in ("first", "last")
                for part in ("weight", "bias")
            )
            move = told["strength"] ** 4 * (torch.tanh((top if side == "down" else rest) @ a + b) @ c + e)
            top, rest = (top, rest + move) if side == "down" else (top + move, rest)
    spectrum = tensors["spectrum"]
    temper = (spectrum / (told["strength"] * spectrum + 1 - told["strength"])).sqrt()
    z = torch.cat([top, rest], dim=1) * temper
    return z, torch.linalg.slogdet(tensors["matrix"])[1] + bend + temper.log().sum()


def in_torch_z(tensors: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    z = x - tensors.get("mean", torch.zeros(()))
    z = z * tensors.get("scale", torch.ones(()))
    return z @ tensors["matrix"] if "matrix" in tensors else z


def test_shapes_and_types(transform: Transform) -> None:
    x = cone(7, seed=1)
    z = transform.apply(x)
    assert z.dtype == np.float32 and z.shape == (7, transform.dimension_out)
    assert transform.inverse(z).dtype == np.float32 and transform.inverse(z).shape == x.shape
    assert transform.log_likelihood(x).dtype == np.float64 and transform.log_likelihood(x).shape == (7,)
    assert transform.log_det(x).dtype == np.float64 and transform.log_det(x).shape == (7,)
    assert transform.fitted_on == 1500 and transform.dimension_in == DIMENSION
    assert transform.apply(x[:0]).shape == (0, transform.dimension_out)
    assert transform.log_likelihood(x[:0]).shape == (0,)


def test_input_is_left_alone(transform: Transform) -> None:
    x = cone(7, seed=1)
    before = x.copy()
    z = transform.apply(x)
    z += 1
    transform.inverse(z)
    transform.log_likelihood(x)
    assert np.array_equal(x, before)


def test_invertible(transform: Transform) -> None:
    x = cone(300, seed=1)
    z = transform.apply(x)
    back = transform.inverse(z)
    if transform.dimension_out == transform.dimension_in:
        np.testing.assert_allclose(back, x, atol=2e-5)
    # Both ways round; for a reduced dimension this is all there is.
    np.testing.assert_allclose(transform.apply(back), z, atol=2e-4)


def test_reduced_inverse_is_the_least_squares_reconstruction() -> None:
    x = cone(400)
    transform = fit("whiten:dimension=5", x)
    centred = x.astype(np.float64) - x.mean(axis=0, dtype=np.float64)
    u, s, v = np.linalg.svd(centred, full_matrices=False)
    best = (u[:, :5] * s[:5]) @ v[:5] + x.mean(axis=0, dtype=np.float64)
    np.testing.assert_allclose(transform.inverse(transform.apply(x)), best, atol=1e-4)


def test_numpy_agrees_with_torch(transform: Transform) -> None:
    x = cone(50, seed=1)
    z, log_det = in_torch(transform, torch.from_numpy(x.astype(np.float64)))
    np.testing.assert_allclose(transform.apply(x), z.numpy(), atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose(transform.log_det(x), np.broadcast_to(log_det.numpy(), 50), rtol=1e-9, atol=1e-6)


def test_log_determinant_is_that_of_autograd(transform: Transform) -> None:
    for row in cone(3, seed=2).astype(np.float64):
        jacobian = torch.autograd.functional.jacobian(
            lambda x: in_torch(transform, x[None])[0][0], torch.from_numpy(row)
        )
        expected = 0.5 * torch.linalg.slogdet(jacobian @ jacobian.T)[1]
        np.testing.assert_allclose(transform.log_det(row[None]), float(expected), rtol=1e-6, atol=1e-6)


def test_gradient_of_the_likelihood(transform: Transform) -> None:
    """Finite differences of numpy's likelihood against autograd's gradient."""
    row = cone(1, seed=4).astype(np.float64)
    x = torch.from_numpy(row).requires_grad_()
    full = transform.at_strength("flow:strength=1") if isinstance(transform, Flow) else transform
    z, log_det = in_torch(full, x)
    value = log_det.sum() - 0.5 * (z**2).sum() - 0.5 * transform.dimension_out * math.log(2 * math.pi)
    value.backward()
    assert x.grad is not None
    np.testing.assert_allclose(transform.log_likelihood(row), float(value.detach()), rtol=1e-9)
    step = 1e-7 * np.eye(DIMENSION)
    numeric = (transform.log_likelihood(row + step) - transform.log_likelihood(row - step)) / 2e-7
    np.testing.assert_allclose(numeric, x.grad[0].numpy(), rtol=1e-3, atol=1e-3 * np.abs(numeric).max())


def test_batch_equals_single(transform: Transform) -> None:
    x = cone(40, seed=5)
    singly = np.concatenate([transform.apply(row[None]) for row in x])
    np.testing.assert_allclose(transform.apply(x), singly, atol=1e-4, rtol=1e-4)
    likelihoods = np.concatenate([transform.log_likelihood(row[None]) for row in x])
    np.testing.assert_allclose(transform.log_likelihood(x), likelihoods, rtol=1e-9)


def test_chunks_are_joined_without_a_seam(transform: Transform) -> None:
    x = np.tile(cone(100, seed=5), (90, 1))
    z = transform.apply(x)
    np.testing.assert_allclose(z, np.tile(transform.apply(x[:100]), (90, 1)), atol=1e-4, rtol=1e-4)
    assert transform.log_likelihood(x).shape == (9000,)


def test_save_and_load(transform: Transform, tmp_path: Path) -> None:
    names = transform.save(tmp_path / "new")
    assert sorted(names) == sorted(path.name for path in (tmp_path / "new").iterdir())
    again = load(tmp_path / "new")
    x = cone(20, seed=6)
    assert np.array_equal(again.apply(x), transform.apply(x))
    assert np.array_equal(again.log_likelihood(x), transform.log_likelihood(x))
    assert np.array_equal(again.inverse(again.apply(x)), transform.inverse(transform.apply(x)))
    for name in ("family", "spec", "notes", "fitted_on", "dimension_in", "dimension_out", "fingerprint"):
        assert getattr(again, name) == getattr(transform, name)
    assert again.describe() == transform.describe()
    again.save(tmp_path / "twice")
    for name in names:
        assert (tmp_path / "new" / name).read_bytes() == (tmp_path / "twice" / name).read_bytes()


def test_description_is_json(transform: Transform) -> None:
    told = json.loads(json.dumps(transform.describe(), allow_nan=False))
    assert told["family"] == transform.family and told["spec"] == transform.spec and told["fitted_on"] == 1500


@pytest.mark.heavy
def test_fit_again_gives_the_same_bytes(transform: Transform) -> None:
    assert fit(transform.spec, cone(1500), seed=3).fingerprint == transform.fingerprint


def test_every_damage_is_found(transform: Transform, tmp_path: Path) -> None:
    names = transform.save(tmp_path)
    rng = np.random.default_rng(0)
    for name in names:
        path = tmp_path / name
        good = path.read_bytes()
        for length in (0, 1, len(good) // 2, len(good) - 2):
            path.write_bytes(good[:length])
            with pytest.raises(Damaged, match=r"transform\.|changed"):
                load(tmp_path)
        for place in rng.integers(0, len(good) - 1, 15):
            bad = bytearray(good)
            bad[place] ^= 1 << int(rng.integers(0, 8))
            path.write_bytes(bytes(bad))
            if name == "transform.json" and harmless(good, bytes(bad)):
                continue
            with pytest.raises(Damaged):
                load(tmp_path)
        path.unlink()
        with pytest.raises(Damaged, match=name):
            load(tmp_path)
        path.write_bytes(good)
    assert load(tmp_path).fingerprint == transform.fingerprint


def harmless(good: bytes, bad: bytes) -> bool:
    """A flip in white space or in the last digit of a number may leave the JSON's meaning as it was."""
    try:
        return bool(json.loads(good) == json.loads(bad))
    except ValueError:
        return False


def test_wrong_width_names_both_numbers(transform: Transform) -> None:
    with pytest.raises(Mismatch, match=r"16.*\(3, 15\)"):
        transform.apply(np.zeros((3, 15), dtype=np.float32))
    with pytest.raises(Mismatch):
        transform.apply(np.zeros(16, dtype=np.float32))


@pytest.mark.heavy
def test_scale_of_the_vectors_does_not_matter(transform: Transform) -> None:
    """Vectors of norm 0.02 or 400 give the same directions as those of norm 3."""
    x = cone(1500)
    for factor in (1 / 128, 128.0):
        scaled = fit(transform.spec, x * np.float32(factor), seed=3)
        assert scaled.family == transform.family
        there, here = scaled.apply(x[:50] * np.float32(factor)), transform.apply(x[:50])
        cosine = (there * here).sum(1) / np.linalg.norm(there, axis=1) / np.linalg.norm(here, axis=1)
        assert cosine.min() > 0.9999


def test_half_precision_input_is_welcome(transform: Transform) -> None:
    x = cone(1500)
    rounded = fit(transform.spec, x.astype(np.float16), seed=3)
    assert rounded.family == transform.family
    np.testing.assert_array_equal(
        rounded.apply(x[:5].astype(np.float16)), rounded.apply(x[:5].astype(np.float16).astype(np.float32))
    )


@pytest.mark.heavy
def test_loading_and_applying_needs_no_torch(transform: Transform, tmp_path: Path) -> None:
    transform.save(tmp_path)
    np.save(tmp_path / "x.npy", cone(4))
    code = (
        "import sys, numpy as np; from pathlib import Path; from retriever.transforms import load;"
        f"f = Path({str(tmp_path)!r}); x = np.load(f / 'x.npy'); t = load(f);"
        "t.inverse(t.apply(x)); t.log_likelihood(x); t.describe(); t.save(f);"
        "assert 'torch' not in sys.modules, 'torch was imported'"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
