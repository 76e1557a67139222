"""The encoder against independent computations of the same vectors, and what a bad model gets."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from samples import make_bert

from retriever.encoder.encoder import Encoder, require_same_encoder
from retriever.encoder.model_files import EMBEDDED_SHA256, POOLINGS, ModelFiles
from retriever.errors import EncoderUnavailable, Mismatch, Misuse, RetrieverError

SENTENCES = [
    "A cat.",
    "The quick brown fox jumps over the lazy dog, again and again, until the sun goes down behind the hills.",
    "Naïve café, 東京, emoji 🦊 and a very-long-hyphenated-compound.",
    "word " * 600,
    "?",
    "Zwei Sätze. Noch einer!",
]


@pytest.mark.heavy
def test_minilm_agrees_with_sentence_transformers() -> None:
    from sentence_transformers import SentenceTransformer

    encoder = Encoder("all-MiniLM-L6-v2", device="cpu")
    assert encoder.identity.weights == EMBEDDED_SHA256
    expected = SentenceTransformer(str(encoder.files.folder), device="cpu").encode(SENTENCES)
    np.testing.assert_allclose(encoder.encode(SENTENCES), expected, atol=1e-5)


@pytest.mark.heavy
@pytest.mark.parametrize("pooling", ["mean", "cls", "first-last", "last2", "max", "first", "word"])
def test_poolings_as_defined_one_text_at_a_time(tiny_bert: str, pooling: str) -> None:
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(tiny_bert), AutoModel.from_pretrained(tiny_bert).eval()
    rows = []
    for text in SENTENCES:
        with torch.no_grad():
            inputs = tokenizer(text, truncation=True, max_length=128, return_tensors="pt")
            layers = [layer[0] for layer in model(**inputs, output_hidden_states=True).hidden_states]
            words = model.embeddings.word_embeddings.weight[inputs["input_ids"][0]]
        tokens = {
            "first-last": (layers[1] + layers[-1]) / 2,
            "last2": (layers[-2] + layers[-1]) / 2,
            "first": layers[1],
            "word": words,
        }.get(pooling, layers[-1])
        row = {"cls": tokens[0], "max": tokens.max(0).values}.get(pooling, tokens.mean(0))
        rows.append(row.numpy())
    encoder = Encoder(tiny_bert, pooling=pooling, device="cpu", batch_tokens=40)
    np.testing.assert_allclose(encoder.encode(SENTENCES), np.stack(rows), atol=1e-5)


@pytest.mark.parametrize("name", ["tiny", pytest.param("all-MiniLM-L6-v2", marks=pytest.mark.slow)])
def test_several_poolings_in_one_pass_are_what_each_gives_alone(tiny_bert: str, name: str) -> None:
    name = tiny_bert if name == "tiny" else name
    told: list[tuple[int, int]] = []
    encoder = Encoder(name, device="cpu", batch_tokens=40)
    found = encoder.encode_poolings(SENTENCES, POOLINGS, lambda done, total: told.append((done, total)))
    assert tuple(found) == POOLINGS and told[-1] == (len(SENTENCES), len(SENTENCES))
    for pooling, vectors in found.items():
        alone = Encoder(name, pooling=pooling, device="cpu", batch_tokens=40).encode(SENTENCES)
        np.testing.assert_allclose(vectors, alone, atol=1e-5, err_msg=pooling)
    assert list(encoder.encode_poolings([], ["mean"])) == ["mean"]


def test_a_vector_does_not_depend_on_its_neighbours(tiny_bert: str) -> None:
    together = Encoder(tiny_bert, device="cpu", batch_tokens=4096).encode(SENTENCES)
    alone = Encoder(tiny_bert, device="cpu", batch_tokens=1).encode(SENTENCES)
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_token_counts_are_those_of_the_encoder(tiny_bert: str) -> None:
    encoder = Encoder(tiny_bert, max_length=16)
    assert encoder.token_budget == 14
    assert encoder.count_tokens(["a cat", "word " * 600]) == [2, 600]


def test_defaults_come_from_the_model(tiny_bert: str) -> None:
    minilm = ModelFiles("sentence-transformers/all-MiniLM-L6-v2").identity()
    assert (minilm.pooling, minilm.max_length, minilm.normalize, minilm.dimension) == ("mean", 256, True, 384)
    tiny = ModelFiles(tiny_bert).identity()
    assert (tiny.pooling, tiny.max_length, tiny.normalize, tiny.dimension) == ("mean", 128, False, 32)


def test_identity_tells_apart_what_gives_other_vectors(tiny_bert: str, other_bert: str, tmp_path: Path) -> None:
    own = ModelFiles(tiny_bert).identity()
    assert own.difference(ModelFiles(tiny_bert).identity()) == ""
    assert "weights" in own.difference(ModelFiles(other_bert).identity())
    assert "pooling" in own.difference(ModelFiles(tiny_bert).identity(pooling="cls"))
    assert "max_length" in own.difference(ModelFiles(tiny_bert).identity(max_length=64))
    shutil.copytree(tiny_bert, tmp_path / "copy")
    assert own.difference(ModelFiles(str(tmp_path / "copy")).identity()) == ""
    path = tmp_path / "copy" / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["normalizer"]["lowercase"] = False
    path.write_text(json.dumps(tokenizer))
    assert "tokenizer" in own.difference(ModelFiles(str(tmp_path / "copy")).identity())


def test_models_that_cannot_be_had(tiny_bert: str, tmp_path: Path) -> None:
    with pytest.raises(EncoderUnavailable, match=r"no config\.json"):
        Encoder(str(tmp_path))
    pickled = tmp_path / "pickled"
    shutil.copytree(tiny_bert, pickled)
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    with pytest.raises(EncoderUnavailable, match="never loaded"):
        Encoder(str(pickled))
    broken = tmp_path / "broken"
    shutil.copytree(tiny_bert, broken)
    (broken / "model.safetensors").write_bytes(b"\0" * 100)
    with pytest.raises(EncoderUnavailable, match="not a valid safetensors file"):
        Encoder(str(broken), device="cpu").encode(["x"])
    with pytest.raises(Misuse, match="unknown pooling"):
        Encoder(tiny_bert, pooling="sum")
    with pytest.raises(Misuse, match="from 8 to 128"):
        Encoder(tiny_bert, max_length=4096)


@pytest.fixture
def copied(tiny_bert: str, tmp_path: Path) -> Path:
    """A copy of the tiny BERT to spoil."""
    return Path(shutil.copytree(tiny_bert, tmp_path / "copied"))


def set_config(folder: Path, **settings: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))


def write_module(folder: Path, name: str, content: object) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))


def test_missing_weights_are_refused_and_not_made_up(copied: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(copied / "model.safetensors")
    gone = [name for name in weights if name.endswith("layer.1.output.dense.weight")]
    del weights[gone[0]]
    save_file(weights, copied / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(EncoderUnavailable, match=r"1 of them are missing .*layer\.1\.output\.dense\.weight"):
        Encoder(str(copied), device="cpu").encode(["x"])


def test_a_model_without_tokenizer_is_refused(copied: Path) -> None:
    (copied / "tokenizer.json").unlink()
    assert Encoder(str(copied), device="cpu").count_tokens(["a cat"]) == [2]
    (copied / "vocab.txt").unlink()
    with pytest.raises(EncoderUnavailable, match=r"no tokenizer: one of tokenizer\.json, vocab\.txt"):
        Encoder(str(copied))


@pytest.mark.parametrize("name", ["spiece.model", "special_tokens_map.json", "added_tokens.json"])
def test_every_file_of_the_tokenizer_is_in_the_identity(tiny_bert: str, copied: Path, name: str) -> None:
    (copied / name).write_text("{}")
    difference = ModelFiles(tiny_bert).identity().difference(ModelFiles(str(copied)).identity())
    assert difference.startswith("tokenizer ") and ";" not in difference


def test_what_config_says_about_the_vectors_is_in_the_identity(tiny_bert: str, copied: Path) -> None:
    own = ModelFiles(tiny_bert).identity()
    set_config(copied, transformers_version="0.0.1", _name_or_path="x", torch_dtype="float16", architectures=[])
    assert own.difference(ModelFiles(str(copied)).identity()) == ""
    set_config(copied, hidden_act="relu")
    other = ModelFiles(str(copied)).identity()
    assert own.difference(other) == f"config {other.config[:12]} instead of {own.config[:12]}"
    with pytest.raises(Mismatch, match="config"):
        require_same_encoder(own, other, "c")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", [1, 2]),
        ("modules.json", [1]),
        ("modules.json", {"a": 1}),
        ("1_Pooling/config.json", [1]),
        ("sentence_bert_config.json", {"max_seq_length": "x"}),
    ],
)
def test_malformed_files_are_named(copied: Path, name: str, content: object) -> None:
    write_module(copied, name, content)
    with pytest.raises(EncoderUnavailable, match=str(copied / name)):
        Encoder(str(copied))


@pytest.mark.parametrize("setting", [{"max_position_embeddings": "x"}, {"hidden_size": True}, {"hidden_size": -1}])
def test_settings_that_are_no_numbers_are_named(copied: Path, setting: dict[str, object]) -> None:
    set_config(copied, **setting)
    with pytest.raises(EncoderUnavailable, match=rf"config\.json: '{next(iter(setting))}' must be a whole number"):
        Encoder(str(copied))


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode": "max"}, "max"),
        ({"word_embedding_dimension": 32}, "mean"),
        ({"pooling_mode_lasttoken": True}, None),
        ({"pooling_mode_weightedmean_tokens": True}, None),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, None),
        ({"pooling_mode": "lasttoken"}, None),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, None),
    ],
)
def test_poolings_of_sentence_transformers(copied: Path, config: dict[str, object], pooling: str | None) -> None:
    write_module(copied, "1_Pooling/config.json", config)
    if pooling:
        assert Encoder(str(copied)).identity.pooling == pooling
        return
    with pytest.raises(EncoderUnavailable, match="not implemented.*give `pooling`"):
        Encoder(str(copied))
    assert Encoder(str(copied), pooling="mean").identity.pooling == "mean"


def test_modules_that_are_not_implemented_are_refused(copied: Path) -> None:
    modules = [{"type": f"sentence_transformers.models.{name}"} for name in ("Transformer", "Pooling", "Dense")]
    write_module(copied, "modules.json", modules)
    with pytest.raises(EncoderUnavailable, match="'Dense'.*without modules.json"):
        Encoder(str(copied), pooling="mean")


def test_the_models_positions_are_the_limit_and_512_only_the_default(copied: Path) -> None:
    set_config(copied, max_position_embeddings=2048)
    assert Encoder(str(copied)).identity.max_length == 512
    assert Encoder(str(copied), max_length=1024).identity.max_length == 1024
    with pytest.raises(Misuse, match="from 8 to 2048"):
        Encoder(str(copied), max_length=2049)


def test_stored_settings_are_another_models_and_no_misuse(tiny_bert: str) -> None:
    stored = ModelFiles("all-MiniLM-L6-v2").identity()
    given = Encoder(tiny_bert, stored=stored).identity
    assert (given.pooling, given.max_length) == (stored.pooling, stored.max_length) == ("mean", 256)
    with pytest.raises(Mismatch, match=rf"all-MiniLM-L6-v2, but the given encoder is {tiny_bert} "):
        require_same_encoder(stored, given, "c")
    assert Encoder(tiny_bert, max_length=64, stored=stored).identity.max_length == 64
    with pytest.raises(Misuse, match="from 8 to 128"):
        Encoder(tiny_bert, max_length=256, stored=stored)


def test_a_folder_that_is_gone() -> None:
    with pytest.raises(EncoderUnavailable, match="if it has moved, give --encoder DIR"):
        Encoder("/no/such/model")
    with pytest.raises(Misuse, match="empty"):
        Encoder(" ")


def test_hub_names_offline() -> None:
    code = (
        "from retriever.encoder.encoder import Encoder\n"
        "from retriever.errors import EncoderUnavailable\n"
        "try: Encoder('nobody/no-such-model')\n"
        "except EncoderUnavailable as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={"HF_HUB_OFFLINE": "1", "PATH": ""}, capture_output=True, text=True
    )
    assert "HF_HUB_OFFLINE is set" in done.stdout and "nobody/no-such-model" in done.stdout, done.stderr


def test_cuda_where_there_is_none(tiny_bert: str) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(Misuse, match="no CUDA GPU"):
        Encoder(tiny_bert, device="cuda").encode(["x"])
    assert Encoder(tiny_bert, device="auto").device == "cpu"


def test_cuda_gives_the_same_vectors(tiny_bert: str) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA GPU on this machine")
    on_gpu = Encoder(tiny_bert, device="cuda").encode(SENTENCES)
    np.testing.assert_allclose(on_gpu, Encoder(tiny_bert, device="cpu").encode(SENTENCES), atol=1e-3)


@pytest.mark.heavy
def test_a_vector_that_is_not_finite_names_the_text(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    folder = make_bert(tmp_path / "broken")
    weights = load_file(folder / "model.safetensors")
    name = next(key for key in weights if key.endswith("word_embeddings.weight"))
    encoder = Encoder(str(folder), device="cpu")
    cat = encoder.tokenizer.token_to_id("cat")
    weights[name][cat] = torch.nan
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    encoder = Encoder(str(folder), device="cpu")
    assert np.isfinite(encoder.encode(["the dog"])).all()
    with pytest.raises(RetrieverError, match="NaN or infinity for the text '.*cat.*remove this text"):
        encoder.encode(["the dog", "a cat sleeps"])
