"""Loads the weights and the tokenizer of a model from its files, and chooses the device to run on.

torch and transformers are imported only when they are needed.
"""

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.encoder import safetensors_check
from retriever.encoder.model_files import TOKENIZER_FILES, ModelFiles, Role
from retriever.errors import EncoderUnavailable, Misuse

DEVICES = ("auto", "cpu", "cuda")
LARGEST_TOKENIZER = 256 << 20


def _disable_tokenizer_threads() -> None:
    """Make tokenizers run without threads in a forked child.

    A fork does not copy the threads of the parent, so the child would wait for them forever.
    """
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disable_tokenizer_threads)


def check_device(device: str) -> None:
    if device not in DEVICES:
        raise Misuse(f"unknown device {device!r}; known: {', '.join(DEVICES)}.")


def resolve_device(requested: str) -> str:
    """Return "cuda" or "cpu". "auto" becomes "cuda" if a CUDA GPU is available. "cuda" without a GPU is an error."""
    if requested == "cpu" or (requested == "auto" and not _cuda_driver()):
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if requested == "cuda":
        raise Misuse('`device="cuda"`: torch finds no CUDA GPU on this machine. Use `device="cpu"` or `device="auto"`.')
    return "cpu"


def _cuda_driver() -> bool:
    """Return whether NVIDIA's driver finds a GPU. This does not import torch, whose import takes seconds."""
    import ctypes

    count = ctypes.c_int(0)
    with contextlib.suppress(OSError, AttributeError):
        driver = ctypes.CDLL("libcuda.so.1" if os.name != "nt" else "nvcuda.dll")
        return bool(driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0)
    return False


def load_model(files: ModelFiles, role: Role) -> tuple[Any, list[str]]:
    """Return the model in single precision, and the names of the weights that are missing in the files.

    Missing weights have random values.
    """
    import torch
    import transformers
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    stored = safetensors_check.check_weights(files)
    loader = getattr(transformers, role.loader)
    try:
        config = transformers.AutoConfig.from_pretrained(files.folder, trust_remote_code=False)
        with torch.device("meta"):  # creates tensors with shapes and without values
            shapes = loader.from_config(config, trust_remote_code=False)
        numbers = sum(tensor.numel() for tensor in (*shapes.parameters(), *shapes.buffers()))
        safetensors_check.check_size(files, stored, numbers)
        model, loading = loader.from_pretrained(
            files.folder, use_safetensors=True, trust_remote_code=False, dtype=torch.float32, output_loading_info=True
        )
    except EncoderUnavailable:
        raise
    except Exception as error:  # transformers raises many classes of errors if it cannot load a folder
        raise EncoderUnavailable(f"transformers cannot load {files.folder}: {type(error).__name__}: {error}") from error
    return model, sorted(loading["missing_keys"])


def refuse_missing(files: ModelFiles, role: Role, names: Iterable[str]) -> None:
    """Refuse a model in which weights are missing."""
    missing = list(names)
    if missing:
        shown = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        raise EncoderUnavailable(
            f"the weights in {files.folder} are incomplete: {len(missing):,} of them are missing ({shown}). "
            f"Download the model again, or save it with {role.loader}(...).save_pretrained(DIR)."
        )


def load_tokenizer(files: ModelFiles, copy: Path | None = None) -> Any:
    """Return the model's fast tokenizer, without truncation and padding.

    If the model has no tokenizer.json, read `copy`, the file of an earlier conversion. If that does not exist either,
    transformers converts the tokenizer. The import of transformers takes seconds.
    """
    from tokenizers import Tokenizer

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    path = files.folder / "tokenizer.json"
    if copy is not None and copy.is_file() and not path.is_file():
        path = copy
    for given in (path, *(files.folder / name for name in TOKENIZER_FILES if "*" not in name)):
        if given.is_file() and given.stat().st_size > LARGEST_TOKENIZER:
            raise EncoderUnavailable(f"{given} has more than {LARGEST_TOKENIZER:,} bytes.")
    try:
        if path.is_file():
            tokenizer = Tokenizer.from_file(str(path))
        else:
            from transformers import AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(files.folder, trust_remote_code=False).backend_tokenizer
    except Exception as error:  # both libraries raise a bare Exception for an invalid file
        raise EncoderUnavailable(f"the tokenizer in {files.folder} cannot be loaded: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def padded(tokens: Sequence[Sequence[int]], pad_id: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a padded matrix of the token ids of several texts, and its attention mask."""
    lengths = np.array([len(own) for own in tokens])
    mask = np.arange(lengths.max()) < lengths[:, None]
    ids = np.full(mask.shape, pad_id, np.int64)
    ids[mask] = np.concatenate([np.asarray(own, np.int64) for own in tokens])
    return ids, mask.astype(np.int64)
