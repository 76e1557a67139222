"""Measure the speed of encoders: ours, sentence-transformers and plain ONNX Runtime alternate over chunks of texts.

Plain ONNX Runtime does what fastembed does: it uses the model as torch exports it, batches of 32 texts in their order,
each padded to its longest text, and mean pooling in NumPy. (fastembed itself loads only the models of its own list.)
Models with another pooling are not measured with plain ONNX Runtime.
"""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.speed.process import measured
from benchmarks.speed.rivals import OURS
from benchmarks.speed.rivals.base import Matrix, SentenceTransformersEncoder
from retriever.encoder.encoder import Encoder
from retriever.encoder.model_files import ModelFiles

CHUNK = 256
BATCH = 32
WARM_UP = 64
SENTENCE_TRANSFORMERS = "sentence-transformers"
PLAIN_ONNX = "plain ONNX Runtime"

Encode = Callable[[Sequence[str]], Matrix]


def our_encoder(model: str, precision: str) -> Encode:
    return Encoder(model, precision=precision, device="cpu").encode


def encoder_names(model: str, precisions: Sequence[str]) -> list[str]:
    names = [f"{OURS} {precision}" for precision in precisions] + [SENTENCE_TRANSFORMERS]
    return names + [PLAIN_ONNX] * (find_spec("onnxruntime") is not None and ModelFiles(model).own_pooling == "mean")


def encode_in_turns(model: str, texts: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    """Return the seconds of each encoder.

    Also return the mean cosine of its vectors with those of sentence-transformers.
    """
    with TemporaryDirectory() as folder:
        encoders = {name: _encoder(name, model, Path(folder)) for name in names}
        for encode in encoders.values():
            encode(texts[:WARM_UP])
        costs = {name: {"wall_seconds": 0.0, "cpu_seconds": 0.0} for name in encoders}
        cosines = dict.fromkeys(names, 0.0)
        for turn, start in enumerate(range(0, len(texts), CHUNK)):
            chunk = texts[start : start + CHUNK]
            found = {}
            for name in rotated(names, turn):
                with measured() as cost:
                    found[name] = encoders[name](chunk)
                for key, value in cost.items():
                    costs[name][key] += value
            for name in encoders:
                cosines[name] += float(_cosines(found[name], found[SENTENCE_TRANSFORMERS]).sum())
    return {name: {**costs[name], "cosine": cosines[name] / len(texts), "sentences": len(texts)} for name in encoders}


def _encoder(name: str, model: str, folder: Path) -> Encode:
    if name == SENTENCE_TRANSFORMERS:
        return SentenceTransformersEncoder(model).encode
    if name == PLAIN_ONNX:
        return PlainOnnx(model, folder / "model.onnx").encode
    return our_encoder(model, name.removeprefix(f"{OURS} "))


def rotated(names: Sequence[str], turn: int) -> list[str]:
    """Return the names in rotated order, so that another name is first in each turn."""
    first = turn % max(len(names), 1)
    return [*names[first:], *names[:first]]


def _cosines(first: Matrix, second: Matrix) -> Matrix:
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return np.asarray((first * second).sum(axis=1) / np.maximum(lengths, 1e-12), np.float32)


class PlainOnnx:
    """An ONNX Runtime session with the default settings."""

    def __init__(self, model: str, path: Path) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        files = ModelFiles(model)
        export_plainly(files.folder, path)
        options = onnxruntime.SessionOptions()
        # Otherwise its threads would spin after each call, while another encoder is being measured.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._tokenizer = Tokenizer.from_file(str(files.folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(files.own_max_length)
        self._tokenizer.enable_padding(pad_id=files.pad_id)
        self._normalize = files.normalize

    def encode(self, texts: Sequence[str]) -> Matrix:
        return np.concatenate([self._batch(texts[start : start + BATCH]) for start in range(0, len(texts), BATCH)])

    def _batch(self, texts: Sequence[str]) -> Matrix:
        encodings = self._tokenizer.encode_batch(list(texts))
        ids = np.array([encoding.ids for encoding in encodings], np.int64)
        mask = np.array([encoding.attention_mask for encoding in encodings], np.int64)
        (hidden,) = self._session.run(None, {"input_ids": ids, "attention_mask": mask})
        weights = mask[:, :, None].astype(np.float32)
        pooled = (hidden * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1e-9)
        if self._normalize:
            pooled = pooled / np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), 1e-12)
        return np.asarray(pooled, np.float32)


def export_plainly(folder: Path, path: Path) -> None:
    """Export the model with torch, without any optimisation of ours."""
    import warnings

    import torch
    from transformers import AutoModel

    class TokenVectors(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = AutoModel.from_pretrained(folder, attn_implementation="eager")

        def forward(self, ids: Any, mask: Any) -> Any:
            return self.model(input_ids=ids, attention_mask=mask).last_hidden_state

    names, batch = ["input_ids", "attention_mask"], torch.ones((2, 5), dtype=torch.int64)
    dynamic = {name: {0: "texts", 1: "tokens"} for name in [*names, "vectors"]}
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            TokenVectors().eval(),
            (batch, batch),
            str(path),
            input_names=names,
            output_names=["vectors"],
            dynamic_axes=dynamic,
            opset_version=17,
            dynamo=False,
        )
