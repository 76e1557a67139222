"""A collection's encoder and transform as a folder that sentence-transformers loads, without anything of ours.

It is made of sentence-transformers' own modules alone, because since version 6 it imports no others unless it is told
to trust remote code:

    Transformer ──▶ [WeightedLayerPooling] ──▶ Pooling ──▶ [Normalize] ──▶ Dense … ──▶ Normalize

Its vectors are those of the index: scaled to length one, so that cosine and dot product are a search's scores.
Modules go by the names, and their settings by the keys, that versions 3.1 to 6 know; 3.0 reads Dense from pickles only.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.encoder.encoder import Encoder
from retriever.encoder.model_files import POOLING_NAMES
from retriever.encoder.runtimes.torch_model import LAYERS
from retriever.errors import EncoderUnavailable
from retriever.transforms import Transform
from retriever.transforms.base import Array
from retriever.transforms.layers import Dense, layers_of

__all__ = ["write_sentence_folder"]

ACTIVATIONS = {
    "Identity": "torch.nn.modules.linear.Identity",
    "ReLU": "torch.nn.modules.activation.ReLU",
    "Tanh": "torch.nn.modules.activation.Tanh",
    "Hardtanh": "torch.nn.modules.activation.Hardtanh",
    "GLU": "torch.nn.modules.activation.GLU",
}
# As sentence-transformers before version 5 calls the poolings, and since then reads them still.
POOLING_MODES = ("cls_token", "mean_tokens", "max_tokens")
SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
# What the checkpoint says of itself that is not so here: where it was, its precision, code of its own.
LEFT_OUT = ("_name_or_path", "torch_dtype", "dtype", "auto_map")


def write_sentence_folder(folder: Path, encoder: Encoder, transform: Transform, made_by: str) -> list[str]:
    """Write the model into an empty folder. Returns the names of its files."""
    modules = _Modules(folder)
    identity = encoder.identity
    pooling = identity.pooling
    modules.add("Transformer")
    if pooling == "word":
        _write_word_model(folder, encoder)
    else:
        _write_model(folder, encoder)
    _write_tokenizer(folder, encoder)
    if pooling in LAYERS:
        blocks = int(encoder.torch_model.model.config.num_hidden_layers)
        weights = np.zeros(blocks + 1, np.float32)
        for number in LAYERS[pooling]:
            weights[number] += 1
        config = {
            "word_embedding_dimension": identity.dimension,
            "layer_start": 0,
            "num_hidden_layers": blocks,
        }
        modules.add("WeightedLayerPooling", config, {"layer_weights": weights})
    modules.add("Pooling", _pooling_config(identity.dimension, pooling))
    layers = layers_of(transform)
    if identity.normalize and layers:
        modules.add("Normalize")
    for layer in layers:
        if isinstance(layer, Dense):
            modules.add("Dense", *_dense(layer))
        else:
            modules.add("Normalize")
    modules.add("Normalize")
    _write_json(folder / "modules.json", modules.listed)
    _write_json(
        folder / "config_sentence_transformers.json",
        {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"},
    )
    (folder / "README.md").write_text(_card(encoder, transform, made_by), encoding="utf-8")
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


class _Modules:
    """The modules as they are written, each in a folder of its own but the first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.listed: list[dict[str, Any]] = []

    def add(
        self, kind: str, config: dict[str, Any] | None = None, tensors: dict[str, NDArray[np.float32]] | None = None
    ) -> None:
        number = len(self.listed)
        path = f"{number}_{kind}" if number else ""
        self.listed.append(
            {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        )
        if config is not None:
            (self.folder / path).mkdir()
            _write_json(self.folder / path / "config.json", config)
        if tensors is not None:
            _write_tensors(self.folder / path / "model.safetensors", tensors)


def _write_model(folder: Path, encoder: Encoder) -> None:
    """The encoder's weights as they are, and its config as we use it."""
    source = encoder.files.folder
    for path in sorted([*source.glob("*.safetensors"), *source.glob("*.safetensors.index.json")]):
        shutil.copyfile(path, folder / path.name)
    config = {key: value for key, value in encoder.files.config.items() if key not in LEFT_OUT}
    config["dtype"] = "float32"
    if encoder.identity.pooling in LAYERS:
        config["output_hidden_states"] = True
    _write_json(folder / "config.json", config)


def _write_word_model(folder: Path, encoder: Encoder) -> None:
    """The input embeddings alone, as a GPT of no blocks: of all models it is the one that adds nothing to them."""
    import torch

    table = encoder.torch_model.model.get_input_embeddings()
    with torch.inference_mode():
        vectors = table(torch.arange(table.num_embeddings, device=encoder.device)).cpu().numpy()
    length = encoder.identity.max_length
    config = {
        "model_type": "openai-gpt",
        "architectures": ["OpenAIGPTModel"],
        "vocab_size": len(vectors),
        "n_embd": vectors.shape[1],
        "hidden_size": vectors.shape[1],
        "n_positions": length,
        "max_position_embeddings": length,
        "n_layer": 0,
        "n_head": 1,
        "pad_token_id": encoder.files.pad_id,
        "dtype": "float32",
    }
    _write_json(folder / "config.json", config)
    positions = np.zeros((length, vectors.shape[1]), np.float32)
    _write_tensors(folder / "model.safetensors", {"tokens_embed.weight": vectors, "positions_embed.weight": positions})


def _write_tokenizer(folder: Path, encoder: Encoder) -> None:
    """The tokenizer that makes the collection's vectors, under a class that takes it as it is.

    Under the model's own class transformers may rebuild it from tokenizer_config.json, with other lower-casing.
    """
    given = encoder.files.json_object("tokenizer_config.json")
    specials = {name: _text_of(given.get(name)) for name in SPECIAL_TOKENS}
    padding = encoder.tokenizer.id_to_token(encoder.files.pad_id)
    if padding is None:
        raise EncoderUnavailable(
            f"the tokenizer in {encoder.files.folder} has no token {encoder.files.pad_id} for padding, which "
            "sentence-transformers needs."
        )
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": encoder.identity.max_length,
        "model_input_names": ["input_ids", "attention_mask"],
        "padding_side": "right",
        "truncation_side": "right",
        "clean_up_tokenization_spaces": False,
    }
    config |= {name: token for name, token in specials.items() if token is not None} | {"pad_token": padding}
    (folder / "tokenizer.json").write_text(encoder.tokenizer.to_str(pretty=True), encoding="utf-8")
    _write_json(folder / "tokenizer_config.json", config)
    _write_json(
        folder / "sentence_bert_config.json", {"max_seq_length": encoder.identity.max_length, "do_lower_case": False}
    )


def _text_of(token: Any) -> str | None:
    """A special token as tokenizer_config.json has it: its text, or an object that says it."""
    found = token.get("content") if isinstance(token, dict) else token
    return found if isinstance(found, str) else None


def _pooling_config(dimension: int, pooling: str) -> dict[str, Any]:
    """`first`, `first-last`, `last2` and `word` are means, of other token vectors than the last block's."""
    own = pooling if pooling in ("cls", "max") else "mean"
    modes = {f"pooling_mode_{mode}": POOLING_NAMES[mode] == own for mode in POOLING_MODES}
    return {"word_embedding_dimension": dimension} | modes


def _dense(layer: Dense) -> tuple[dict[str, Any], dict[str, NDArray[np.float32]]]:
    inputs, outputs = layer.weight.shape
    biased = bool(layer.bias.any())
    config = {
        "in_features": inputs,
        "out_features": outputs,
        "bias": biased,
        "activation_function": ACTIVATIONS[layer.activation],
    }
    tensors = {"linear.weight": _single(layer.weight.T)}
    return config, tensors | {"linear.bias": _single(layer.bias)} if biased else tensors


def _single(numbers: Array) -> NDArray[np.float32]:
    return np.ascontiguousarray(numbers, dtype=np.float32)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_tensors(path: Path, tensors: dict[str, NDArray[np.float32]]) -> None:
    from safetensors.numpy import save

    path.write_bytes(save(dict(sorted(tensors.items())), metadata={"format": "pt"}))


def _card(encoder: Encoder, transform: Transform, made_by: str) -> str:
    """The model card: what it is, what made it, how to load it."""
    identity = encoder.identity
    name = Path(identity.name).name
    return f"""---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags:
- sentence-transformers
- sentence-similarity
---

# {name}, {identity.pooling}, {transform.spec}

Sentence vectors of {transform.dimension_out} dimensions: the encoder {name} and a transform that was fitted to the
vectors of one collection of texts, without labels. It suits texts like those.

    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer("this folder")
    vectors = model.encode(["a text", "another"])

sentence-transformers 3.1 or newer loads it as it is: every module is its own, nothing else is needed and no code is
run. Vectors have length one, so dot product and cosine are the same.

| | |
|---|---|
| encoder | {name}, SHA-256 of its weights {identity.weights} |
| pooling | {identity.pooling}{", scaled to length one before the transform" if identity.normalize else ""} |
| longest input | {identity.max_length} tokens |
| transform | {transform.spec}, fitted on {transform.fitted_on:,} vectors, fingerprint {transform.fingerprint} |
| made by | {made_by} |

The encoder's own licence and limits hold for this model too.
"""
