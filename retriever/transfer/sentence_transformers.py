"""Write the encoder and the transform of a collection as a folder that sentence-transformers can load.

This package is not needed to load the folder. The folder uses only modules of sentence-transformers itself, because
since version 6, sentence-transformers imports other modules only with trust_remote_code. The modules are:

    Transformer ──▶ [WeightedLayerPooling] ──▶ Pooling ──▶ [Normalize] ──▶ Dense … ──▶ Normalize

A word table is a StaticEmbedding in place of the modules up to Pooling.

The model returns the vectors of the index, scaled to length one. Their cosine and dot product therefore equal the score
of a search. The names of modules and settings work with versions 3.1 to 6. Version 3.0 reads Dense only from pickles.
"""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.encoder.encoder import Encoder
from retriever.encoder.model_files import POOLING_NAMES
from retriever.encoder.runtimes.torch_model import LAYERS
from retriever.encoder.static.folder import module_path, write_json, write_modules
from retriever.errors import EncoderUnavailable
from retriever.settings import made_by
from retriever.transfer.layers import Dense, layers_of
from retriever.transforms import Transform
from retriever.transforms.moments import Array

# The names that sentence-transformers used for poolings before version 5. Later versions still read them.
POOLING_MODES = ("cls_token", "mean_tokens", "max_tokens")
SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
# Keys of the encoder's config that do not apply to the exported model: location, precision and custom code.
LEFT_OUT = ("_name_or_path", "torch_dtype", "dtype", "auto_map")


def write_sentence_folder(folder: Path, encoder: Encoder, transform: Transform) -> list[str]:
    """Write the model into an empty folder. Return the names of the files."""
    modules = _Modules(folder)
    if encoder.files.static:
        modules.add("StaticEmbedding")
        _write_table(folder, encoder)
    else:
        _add_bert(modules, encoder)
    layers = layers_of(transform)
    if encoder.identity.normalize and layers:
        modules.add("Normalize")
    for layer in layers:
        if isinstance(layer, Dense):
            modules.add("Dense", *_dense(layer))
        else:
            modules.add("Normalize")
    modules.add("Normalize")
    identity = encoder.identity
    named = {"query": identity.query_prompt, "document": identity.document_prompt}
    write_modules(folder, modules.kinds, named if any(named.values()) else {})
    (folder / "README.md").write_text(_card(encoder, transform), encoding="utf-8")
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


class _Modules:
    """Writes the settings and tensors of each module, and remembers the kinds of the modules."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kinds: list[str] = []

    def add(
        self, kind: str, config: dict[str, Any] | None = None, tensors: dict[str, NDArray[np.float32]] | None = None
    ) -> None:
        path = module_path(len(self.kinds), kind)
        self.kinds.append(kind)
        if config is not None:
            (self.folder / path).mkdir()
            write_json(self.folder / path / "config.json", config)
        if tensors is not None:
            _write_tensors(self.folder / path / "model.safetensors", tensors)


def _add_bert(modules: _Modules, encoder: Encoder) -> None:
    identity, pooling = encoder.identity, encoder.identity.pooling
    modules.add("Transformer")
    if pooling == "word":
        _write_word_model(modules.folder, encoder)
    else:
        _write_model(modules.folder, encoder)
    _write_tokenizer(modules.folder, encoder)
    if pooling in LAYERS:
        blocks = int(encoder.torch_model.model.config.num_hidden_layers)
        weights = np.zeros(blocks + 1, np.float32)
        for number in LAYERS[pooling]:
            weights[number] += 1
        config = {"word_embedding_dimension": identity.dimension, "layer_start": 0, "num_hidden_layers": blocks}
        modules.add("WeightedLayerPooling", config, {"layer_weights": weights})
    modules.add("Pooling", _pooling_config(identity.dimension, pooling))


def _write_table(folder: Path, encoder: Encoder) -> None:
    (weights,) = encoder.files.weight_files()
    shutil.copyfile(weights, folder / "model.safetensors")
    (folder / "tokenizer.json").write_text(encoder.tokenizer.to_str(), encoding="utf-8")
    write_json(folder / "config.json", encoder.files.config)


def _write_model(folder: Path, encoder: Encoder) -> None:
    """Copy the weights of the encoder, and write its config with float32 as precision."""
    source = encoder.files.folder
    for path in sorted([*source.glob("*.safetensors"), *source.glob("*.safetensors.index.json")]):
        shutil.copyfile(path, folder / path.name)
    config = {key: value for key, value in encoder.files.config.items() if key not in LEFT_OUT}
    config["dtype"] = "float32"
    if encoder.identity.pooling in LAYERS:
        config["output_hidden_states"] = True
    write_json(folder / "config.json", config)


def _write_word_model(folder: Path, encoder: Encoder) -> None:
    """Write only the input embeddings, as a GPT model with zero blocks.

    GPT is used because with zero blocks it adds nothing to the embeddings but positions, which are zero here.
    """
    vectors = encoder.input_embeddings()
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
    write_json(folder / "config.json", config)
    positions = np.zeros((length, vectors.shape[1]), np.float32)
    _write_tensors(folder / "model.safetensors", {"tokens_embed.weight": vectors, "positions_embed.weight": positions})


def _write_tokenizer(folder: Path, encoder: Encoder) -> None:
    """Write the tokenizer with a generic tokenizer class.

    With the tokenizer class of the model, transformers may rebuild the tokenizer from tokenizer_config.json, and the
    rebuilt tokenizer may treat upper case differently.
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
    write_json(folder / "tokenizer_config.json", config)
    write_json(
        folder / "sentence_bert_config.json", {"max_seq_length": encoder.identity.max_length, "do_lower_case": False}
    )


def _text_of(token: Any) -> str | None:
    """Return the text of a special token. In tokenizer_config.json, a token is a string or an object."""
    found = token.get("content") if isinstance(token, dict) else token
    return found if isinstance(found, str) else None


def _pooling_config(dimension: int, pooling: str) -> dict[str, Any]:
    """Return the config of the pooling module.

    `first`, `first-last`, `last2` and `word` are written as the mean; they differ in the layers it is taken over.
    """
    own = pooling if pooling in ("cls", "max") else "mean"
    modes = {f"pooling_mode_{mode}": POOLING_NAMES[mode] == own for mode in POOLING_MODES}
    return {"word_embedding_dimension": dimension} | modes


def _dense(layer: Dense) -> tuple[dict[str, Any], dict[str, NDArray[np.float32]]]:
    inputs, outputs = layer.weight.shape
    biased = bool(layer.bias.any())
    module = "linear" if layer.activation == "Identity" else "activation"
    config = {
        "in_features": inputs,
        "out_features": outputs,
        "bias": biased,
        "activation_function": f"torch.nn.modules.{module}.{layer.activation}",
    }
    tensors = {"linear.weight": _single(layer.weight.T)}
    return config, tensors | {"linear.bias": _single(layer.bias)} if biased else tensors


def _single(numbers: Array) -> NDArray[np.float32]:
    return np.ascontiguousarray(numbers, dtype=np.float32)


def _write_tensors(path: Path, tensors: dict[str, NDArray[np.float32]]) -> None:
    from safetensors.numpy import save

    path.write_bytes(save(dict(sorted(tensors.items())), metadata={"format": "pt"}))


def _card(encoder: Encoder, transform: Transform) -> str:
    identity = encoder.identity
    name = Path(identity.name).name
    prompts = identity.query_prompt or identity.document_prompt
    encode = 'model.encode_document(["a text", "another"])' if prompts else 'model.encode(["a text", "another"])'
    return f"""---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags:
- sentence-transformers
- sentence-similarity
---

# {name}, {identity.pooling}, {transform.spec}

This model makes sentence vectors with {transform.dimension_out} dimensions. It consists of the encoder {name} and a
transform. The transform was fitted without labels to the vectors of one collection, and works best for similar texts.

    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer("this folder")
    vectors = {encode}

sentence-transformers 3.1 or newer loads the model without further packages and without running code from this folder.
The vectors have length one, so their dot product equals their cosine.

| | |
|---|---|
| encoder | {name}, SHA-256 of its weights {identity.weights} |
| pooling | {identity.pooling}{", scaled to length one before the transform" if identity.normalize else ""} |
| longest input | {identity.max_length} tokens |
| transform | {transform.spec}, fitted on {transform.fitted_on:,} vectors, fingerprint {transform.fingerprint} |
| made by | {made_by()} |

The licence and the limits of the encoder apply to this model too.
"""
