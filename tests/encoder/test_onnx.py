"""Encoders run by ONNX Runtime, against torch; exported once, and made again when what was exported is damaged."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from samples import PETS, Run, make_bert, write_jsonl

from retriever.encoder.encoder import Encoder
from retriever.encoder.model_files import POOLINGS
from retriever.encoder.runtimes.onnx_runtime import FACTS, GRAPH, WEIGHTS, export_folder, is_exported
from retriever.encoder.runtimes.torch_model import TorchModel
from retriever.errors import EncoderUnavailable, Misuse
from retriever.files import cache_folder

TEXTS = [
    "Cats purr.",
    "Dogs bark at strangers and wag their tails for friends, and they like to fetch sticks from the river.",
    "x",
    "Goldfish swim round and round in a bowl. " * 8,
    "Ein Satz mit Umlauten: Übermut tut selten gut.",
    "金魚は鉢の中を泳ぐ。",
]


def cosines(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    return (ours * theirs).sum(axis=1) / (np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1))


def by_torch(encoder: Encoder, texts: list[str]) -> np.ndarray:
    return next(iter(encoder.encode_poolings(texts, [encoder.identity.pooling]).values()))


@pytest.mark.parametrize("pooling", POOLINGS)
def test_every_pooling_is_that_of_torch(tiny_bert: str, pooling: str) -> None:
    encoder = Encoder(tiny_bert, pooling=pooling, device="cpu", batch_tokens=64)
    ours, theirs = encoder.encode(TEXTS), by_torch(encoder, TEXTS)
    assert encoder.note == ""
    assert cosines(ours, theirs).min() > 0.9999
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["DistilBert", "Roberta", "MPNet", "Electra", "Albert"])
def test_other_architectures(tmp_path: Path, kind: str) -> None:
    import torch
    import transformers

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    if kind == "DistilBert":
        sizes = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}
    make_bert(tmp_path)  # for its tokenizer
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = getattr(transformers, f"{kind}Config")(
            vocab_size=30522, max_position_embeddings=130, pad_token_id=0, initializer_range=0.2, **sizes
        )
        getattr(transformers, f"{kind}Model")(config).save_pretrained(tmp_path)
    encoder = Encoder(str(tmp_path), pooling="mean", max_length=64, device="cpu")
    assert cosines(encoder.encode(TEXTS), by_torch(encoder, TEXTS)).min() > 0.9999
    assert encoder.note == "", "it was exported"


@pytest.mark.heavy
def test_integers_do_not_depend_on_the_company(tiny_bert: str) -> None:
    encoder = Encoder(tiny_bert, pooling="mean", precision="int8", device="cpu")
    together = encoder.encode(TEXTS * 20)[: len(TEXTS)]
    alone = np.concatenate([encoder.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)
    single = Encoder(tiny_bert, pooling="mean", device="cpu").encode(TEXTS)
    assert 0.98 < cosines(together, single).min() < 0.99999


def test_integer_products_are_those_of_the_formula() -> None:
    """One product against numpy: rows and columns scaled, rounded, multiplied as integers."""
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    from retriever.encoder.runtimes import int8

    rng = np.random.default_rng(0)
    weights = rng.standard_normal((6, 4)).astype(np.float32)
    rows = rng.standard_normal((5, 6)).astype(np.float32) * np.array([1, 1, 30, 1, 1, 0.1], np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 4])],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert int8.quantize(model, [{"x": rows}]) == 1
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found = session.run(None, {"x": rows})[0]
    smoothing = np.sqrt(np.abs(rows).max(axis=0) / np.abs(weights).max(axis=1))
    smoothing /= np.exp(np.log(smoothing).mean())
    smooth, scaled = rows / smoothing, weights * smoothing[:, None]
    row_scale = np.abs(smooth).max(axis=1, keepdims=True) / 127
    column_scale = np.abs(scaled).max(axis=0) / 63
    expected = np.round(smooth / row_scale) @ np.round(scaled / column_scale) * row_scale * column_scale
    np.testing.assert_allclose(found, expected, rtol=0.01, atol=0.05)
    assert np.abs(found - rows @ weights).max() < 0.05 * np.abs(rows @ weights).max()


@pytest.mark.heavy
def test_what_was_exported_is_checked_and_made_again(tmp_path: Path) -> None:
    folder = make_bert(tmp_path / "m", seed=7)
    encoder = Encoder(str(folder), device="cpu")
    before = encoder.encode(TEXTS)
    graph = export_folder(encoder.identity)
    facts = json.loads((graph / FACTS).read_text())
    assert facts["worst_cosine_to_torch"] > 0.9999 and facts["encoder"]["weights"] == encoder.identity.weights
    damaged = bytearray((graph / WEIGHTS).read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (graph / WEIGHTS).write_bytes(damaged)
    again = Encoder(str(folder), device="cpu")
    np.testing.assert_array_equal(again.encode(TEXTS), before)
    assert again.note == f"the exported encoder {graph} was damaged, so it was exported again"
    assert is_exported(graph)
    (graph / WEIGHTS).write_bytes((graph / WEIGHTS).read_bytes()[:100])
    assert not is_exported(graph)
    encoder.load()
    assert encoder.note == ""


@pytest.mark.heavy
def test_a_graph_of_another_version_is_made_again(tmp_path: Path) -> None:
    """The files are what was written, but this ONNX Runtime cannot read them."""
    folder = make_bert(tmp_path / "m", seed=9)
    encoder = Encoder(str(folder), device="cpu")
    before = encoder.encode(TEXTS)
    graph = export_folder(encoder.identity)
    (graph / GRAPH).write_bytes(b"of a version to come")
    facts = json.loads((graph / FACTS).read_text())
    facts["files"][GRAPH] = hashlib.sha256(b"of a version to come").hexdigest()
    (graph / FACTS).write_text(json.dumps(facts))
    assert is_exported(graph)
    again = Encoder(str(folder), device="cpu")
    np.testing.assert_array_equal(again.encode(TEXTS), before)
    assert "could not be read by this version of ONNX Runtime" in again.note and again.note.endswith("exported again")
    assert is_exported(graph) and (graph / GRAPH).read_bytes() != b"of a version to come"


@pytest.mark.heavy
@pytest.mark.parametrize("change", ["nothing is named", "a file is not named", "another file is named"])
def test_a_manifest_that_does_not_name_every_file_is_not_trusted(tmp_path: Path, change: str) -> None:
    encoder = Encoder(str(make_bert(tmp_path / "bert")), device="cpu")
    encoder.encode(TEXTS)
    folder = export_folder(encoder.identity)
    facts = json.loads((folder / FACTS).read_text())
    if change == "nothing is named":
        facts["files"] = {}
    elif change == "a file is not named":
        del facts["files"][WEIGHTS]
    else:
        facts["files"]["more.bin"] = facts["files"][WEIGHTS]
        (folder / "more.bin").write_bytes((folder / WEIGHTS).read_bytes())
    assert is_exported(folder)
    (folder / FACTS).write_text(json.dumps(facts))
    assert not is_exported(folder)
    assert not folder.exists()


def test_a_relative_cache_folder_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The XDG specification says so: it would be another folder in every working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    assert cache_folder() == tmp_path / "home" / ".cache" / "flow-retriever"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cache_folder() == tmp_path / "cache" / "flow-retriever"


def test_a_model_that_cannot_be_exported_runs_on_torch_and_says_why(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model whose way depends on the numbers, not on shapes alone: its graph is that of the example, and wrong."""
    import torch

    folder = make_bert(tmp_path / "m", seed=8)
    forward = TorchModel.poolings.__globals__["pool"]

    def odd(hidden: torch.Tensor, mask: torch.Tensor, pooling: str) -> torch.Tensor:
        pooled = forward(hidden, mask, pooling)
        return pooled if hidden.shape[1] <= 5 else pooled.flip(dims=[1])

    monkeypatch.setattr("retriever.encoder.runtimes.torch_model.pool", odd)
    encoder = Encoder(str(folder), device="cpu")
    np.testing.assert_allclose(encoder.encode(TEXTS), by_torch(encoder, TEXTS), rtol=1e-4, atol=1e-5)
    assert "runs on torch" in encoder.note and "cosine" in encoder.note
    with pytest.raises(EncoderUnavailable, match="int8 needs ONNX Runtime"):
        Encoder(str(folder), precision="int8", device="cpu").encode(TEXTS)
    source = write_jsonl(tmp_path / "pets.jsonl", PETS)
    told = run("index", source, "--index", tmp_path / "c", "--encoder", folder)
    assert told.output.count("the encoder runs on torch") == 1
    assert run("search", "cats", "--index", tmp_path / "c").output.count("the encoder runs on torch") == 1


def test_bad_precision(tiny_bert: str) -> None:
    with pytest.raises(Misuse, match="unknown precision 'int4'"):
        Encoder(tiny_bert, precision="int4")
    with pytest.raises(Misuse, match="only on CPUs"):
        Encoder(tiny_bert, precision="int8", device="cuda")
    with pytest.raises(Misuse, match="`batch_tokens` must be at least 1"):
        Encoder(tiny_bert, batch_tokens=0)


SEARCH = (
    "import sys\n"
    "sys.argv = ['retriever', *sys.argv[1:]]\n"
    "from retriever.cli.main import main\n"
    "try: main()\n"
    "except SystemExit as end: assert not end.code, end.code\n"
    "heavy = {'torch', 'transformers', 'scipy', 'pandas', 'pyarrow', 'sklearn', 'narwhals', 'onnx',\n"
    "    'py3langid', 'pathspec', 'yaml', 'jinja2', 'fastapi', 'mcp', 'matplotlib'} & set(sys.modules)\n"
    "assert not heavy, heavy"
)


@pytest.mark.heavy
@pytest.mark.parametrize("transform", ["none", "whiten", "flow:strength=0.5", "bert-flow:steps=20"])
@pytest.mark.parametrize("options", [(), ("--mode", "hybrid"), ("--json",)])
def test_a_search_imports_no_torch(
    tmp_path_factory: pytest.TempPathFactory, tiny_bert: str, run: Run, transform: str, options: tuple[str, ...]
) -> None:
    folder = tmp_path_factory.getbasetemp() / f"searched-{transform.replace(':', '-')}"
    if not folder.exists():
        records = [
            {"id": str(n), "text": f"Sentence {n} speaks of {n % 17} cats. And of {n} dogs."} for n in range(260)
        ]
        source = write_jsonl(tmp_path_factory.mktemp("source") / "s.jsonl", records)
        run("index", source, "--index", folder, "--encoder", tiny_bert, "--transform", transform)
    command = [sys.executable, "-c", SEARCH, "search", "seven cats", "--index", str(folder), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "cats" in done.stdout


def test_an_interrupted_encoding_keeps_nothing_alive() -> None:
    """Dropped without being closed, as by an interrupt between two lines, it must not keep the process from ending."""
    code = (
        "import numpy as np, time\n"
        "from retriever.encoder.batches import Encoding\n"
        "batches = ((np.array([n]), [[n]]) for n in range(1000))\n"
        "Encoding(batches, lambda tokens: np.zeros((1, 2), np.float32), workers=2)\n"
        "raise KeyboardInterrupt"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert b"KeyboardInterrupt" in done.stderr


@pytest.mark.heavy
def test_nothing_is_told_to_anybody(tmp_path: Path, tiny_bert: str) -> None:
    """ONNX Runtime's import would make the folder of its telemetry, save where CI is set."""
    code = "import sys; from retriever.encoder.encoder import Encoder; Encoder(sys.argv[1], device='cpu').encode(['a'])"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    environment.pop("ORT_DISABLE_TELEMETRY", None)
    environment.pop("CI", None)
    subprocess.run([sys.executable, "-c", code, tiny_bert], env=environment, check=True, capture_output=True)
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {"flow-retriever"}


@pytest.mark.heavy
def test_a_cache_that_cannot_be_written(tmp_path: Path, tiny_bert: str) -> None:
    code = (
        "import sys; from retriever.encoder.encoder import Encoder\n"
        "encoder = Encoder(sys.argv[1], pooling='mean', precision='int8', device='cpu')\n"
        "print(encoder.encode(['a']).shape, encoder.note)"
    )
    (tmp_path / "file").write_text("in the way")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "file"), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", code, tiny_bert]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert "(1, 32)" in done.stdout and "exported for this run alone" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["file"], "nothing is left behind"
