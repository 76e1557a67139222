"""A model's parts from its files: weights, tokenizer and the device to run on, with errors for people.

torch and transformers are imported when something is loaded, not before.
"""

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.encoder import safetensors_check as weights
from retriever.encoder.model_files import TOKENIZER_FILES, ModelFiles, Role
from retriever.errors import EncoderUnavailable, Misuse

DEVICES = ("auto", "cpu", "cuda")
LARGEST_TOKENIZER = 256 << 20


def _alone_in_a_child() -> None:
    """Have tokenizers work without threads in a forked child: those it had stayed with the parent, and it would wait
    for them forever."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_alone_in_a_child)


def resolve_device(asked: str) -> str:
    """ "cuda" where asked for or found, else "cpu"."""
    if asked == "cpu" or (asked == "auto" and not _cuda_driver()):
        return "cpu"
    import torch

    found = torch.cuda.is_available()
    if asked == "cuda" and not found:
        raise Misuse('`device="cuda"`: torch finds no CUDA GPU on this machine. Use `device="cpu"` or `device="auto"`.')
    return "cuda" if found else "cpu"


def _cuda_driver() -> bool:
    """Whether NVIDIA's driver finds a GPU, asked without torch, whose import takes seconds."""
    import ctypes

    count = ctypes.c_int(0)
    with contextlib.suppress(OSError, AttributeError):
        driver = ctypes.CDLL("libcuda.so.1" if os.name != "nt" else "nvcuda.dll")
        return bool(driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0)
    return False


def load_model(files: ModelFiles, role: Role) -> tuple[Any, list[str]]:
    """The model in single precision, and which of its weights the files lack: those hold random numbers now."""
    import torch
    import transformers
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    held = weights.checked(files)
    loader = getattr(transformers, role.loader)
    try:
        config = transformers.AutoConfig.from_pretrained(files.folder, trust_remote_code=False)
        with torch.device("meta"):  # shapes alone
            shapes = loader.from_config(config, trust_remote_code=False)
        weights.refuse_larger(files, held, sum(t.numel() for t in (*shapes.parameters(), *shapes.buffers())))
        model, loading = loader.from_pretrained(
            files.folder,
            use_safetensors=True,
            trust_remote_code=False,
            dtype=torch.float32,
            output_loading_info=True,
        )
    except EncoderUnavailable:
        raise
    except Exception as error:  # transformers raises many classes for a folder it cannot load
        raise EncoderUnavailable(f"transformers cannot load {files.folder}: {type(error).__name__}: {error}") from error
    return model, sorted(loading["missing_keys"])


def refuse_missing(files: ModelFiles, role: Role, names: Iterable[str]) -> None:
    """Refuse a model that lacks weights it needs."""
    missing = list(names)
    if missing:
        shown = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        raise EncoderUnavailable(
            f"the weights in {files.folder} are not whole: {len(missing):,} of them are missing ({shown}). "
            f"Get the model again, or save it with {role.loader}(...).save_pretrained(DIR)."
        )


def load_tokenizer(files: ModelFiles, copy: Path | None = None) -> Any:
    """The model's own fast tokenizer, without truncation or padding; `copy` is one made of it before, if it is there.

    A model with none in its folder has its own made by transformers, whose import takes seconds.
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
    except Exception as error:  # both libraries raise bare Exception for a bad file
        raise EncoderUnavailable(f"the tokenizer in {files.folder} cannot be loaded: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def padded(tokens: Sequence[Sequence[int]], pad_id: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Token ids of several texts as one matrix, and which of its places are theirs."""
    lengths = np.array([len(own) for own in tokens])
    mask = np.arange(lengths.max()) < lengths[:, None]
    ids = np.full(mask.shape, pad_id, np.int64)
    ids[mask] = np.concatenate([np.asarray(own, np.int64) for own in tokens])
    return ids, mask.astype(np.int64)
