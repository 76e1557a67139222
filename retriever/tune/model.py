"""The encoder as a sentence-transformers model: how it is loaded, run and saved."""

import contextlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

from retriever.encoder.encoder import Encoder
from retriever.encoder.model_files import TOKENIZER_FILES, UNTUNED_POOLING, ModelFiles
from retriever.encoder.runtimes.onnx_runtime import cores

TEXTS_AT_ONCE = 32


def load(encoder: Encoder) -> SentenceTransformer:
    """Load the model for tuning. Texts are cut to the maximum length of the encoder.

    An encoder with a pooling of its own keeps it. Any other BERT gets mean pooling of the last block.
    """
    files, device = encoder.files, encoder.device
    _ = encoder.torch_model.model  # checks the files, and refuses incomplete weights
    del encoder.torch_model
    if device == "cpu":
        torch.set_num_threads(cores())
    pooling = "mean" if files.own_pooling == UNTUNED_POOLING else files.own_pooling
    options = {"use_safetensors": True, "trust_remote_code": False, "dtype": torch.float32}
    with torch.random.fork_rng():
        torch.manual_seed(0)  # a pooler that is not in the files gets random weights, which are saved but not used
        transformer = Transformer(str(files.folder), model_kwargs=options)
    modules = [transformer, Pooling(files.dimension, pooling)]
    model = SentenceTransformer(modules=[*modules, *([Normalize()] if files.normalize else [])], device=device)
    model.max_seq_length = encoder.identity.max_length
    return model


def has_bfloat16(device: str) -> bool:
    """Return whether the device multiplies quickly in bfloat16."""
    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def autocast(device: str) -> contextlib.AbstractContextManager[Any]:
    return torch.autocast(device, torch.bfloat16, enabled=has_bfloat16(device))


def encode(model: SentenceTransformer, texts: Sequence[str]) -> NDArray[np.float32]:
    with autocast(model.device.type):
        vectors = model.encode(list(texts), batch_size=TEXTS_AT_ONCE, show_progress_bar=False, convert_to_tensor=True)
    found: NDArray[np.float32] = vectors.float().cpu().numpy()
    return found


def save(model: SentenceTransformer, folder: Path, original: ModelFiles) -> None:
    """Write an encoder folder, with the tokenizer files and the maximum length of the original encoder."""
    model.save_pretrained(str(folder), create_model_card=False)
    for pattern in TOKENIZER_FILES:
        for path in original.folder.glob(pattern):
            shutil.copyfile(path, folder / path.name)
    path = folder / "sentence_bert_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    settings["max_seq_length"] = original.own_max_length
    path.write_text(json.dumps(settings, indent=2), encoding="utf-8")
