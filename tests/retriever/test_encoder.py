"""The encoder against independent computations of the same vectors, and what a bad model gets."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from retriever.encoder import Encoder
from retriever.errors import EncoderUnavailable, Misuse
from retriever.models import EMBEDDED_SHA256, ModelFiles

SENTENCES = [
    "A cat.",
    "The quick brown fox jumps over the lazy dog, again and again, until the sun goes down behind the hills.",
    "Naïve café, 東京, emoji 🦊 and a very-long-hyphenated-compound.",
    "word " * 600,
    "?",
    "Zwei Sätze. Noch einer!",
]


def test_minilm_agrees_with_sentence_transformers() -> None:
    from sentence_transformers import SentenceTransformer

    encoder = Encoder("all-MiniLM-L6-v2", device="cpu")
    assert encoder.identity.weights == EMBEDDED_SHA256
    expected = SentenceTransformer(str(encoder.files.folder), device="cpu").encode(SENTENCES)
    np.testing.assert_allclose(encoder.encode(SENTENCES), expected, atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "cls", "first-last", "last2", "max"])
def test_poolings_as_defined_one_text_at_a_time(tiny_bert: str, pooling: str) -> None:
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(tiny_bert), AutoModel.from_pretrained(tiny_bert).eval()
    rows = []
    for text in SENTENCES:
        with torch.no_grad():
            inputs = tokenizer(text, truncation=True, max_length=128, return_tensors="pt")
            layers = [layer[0] for layer in model(**inputs, output_hidden_states=True).hidden_states]
        tokens = {"first-last": (layers[1] + layers[-1]) / 2, "last2": (layers[-2] + layers[-1]) / 2}.get(
            pooling, layers[-1]
        )
        row = {"cls": tokens[0], "max": tokens.max(0).values}.get(pooling, tokens.mean(0))
        rows.append(row.numpy())
    encoder = Encoder(tiny_bert, pooling=pooling, device="cpu", batch_size=4)
    np.testing.assert_allclose(encoder.encode(SENTENCES), np.stack(rows), atol=1e-5)


def test_a_vector_does_not_depend_on_its_neighbours(tiny_bert: str) -> None:
    together = Encoder(tiny_bert, device="cpu", batch_size=64).encode(SENTENCES)
    alone = Encoder(tiny_bert, device="cpu", batch_size=1).encode(SENTENCES)
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_token_counts_are_those_of_the_encoder(tiny_bert: str) -> None:
    encoder = Encoder(tiny_bert, max_length=16)
    assert encoder.token_budget == 14
    assert encoder.count_tokens(["a cat", "word " * 600]) == [2, 600]


def test_defaults_come_from_the_model(tiny_bert: str) -> None:
    minilm = ModelFiles("sentence-transformers/all-MiniLM-L6-v2").identity()
    assert (minilm.pooling, minilm.max_length, minilm.normalize, minilm.dimension) == ("mean", 256, True, 384)
    tiny = ModelFiles(tiny_bert).identity()
    assert (tiny.pooling, tiny.max_length, tiny.normalize, tiny.dimension) == ("first-last", 128, False, 32)


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
    with pytest.raises(EncoderUnavailable, match="cannot load"):
        Encoder(str(broken), device="cpu").encode(["x"])
    with pytest.raises(Misuse, match="unknown pooling"):
        Encoder(tiny_bert, pooling="sum")
    with pytest.raises(Misuse, match="from 8 to 128"):
        Encoder(tiny_bert, max_length=4096)


def test_hub_names_offline() -> None:
    code = (
        "from retriever.encoder import Encoder\n"
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
