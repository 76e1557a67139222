"""Loads the weights of a model with torch and transformers, after checks of its files.

A config.json can claim any size, e.g. a billion blocks, and transformers would try to build such a model. The headers
of the safetensors files are therefore checked first. The sizes of the stored tensors limit what a valid config.json can
claim. torch and transformers are imported only when they are needed.
"""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retriever.encoder.model_files import ModelFiles, Role
from retriever.errors import EncoderUnavailable
from retriever.files import keep_torch_files

LARGEST_HEADER = 16 << 20
BYTES = {
    **dict.fromkeys(("F64", "I64", "U64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2"), 1),
}
# Many blocks may share the weights of a single block. This is the maximum number of blocks that may do so.
MOST_SHARED = 100
# Maximum number of parameters that the files may lack, e.g. those of a pooler or a new head.
MOST_NEW = 1_000_000
# Maximum value of a setting that is not the size of a stored tensor, such as the number of computed positions.
MOST_UNSTORED = 10_000_000
# A setting whose name contains one of these words is a number of parts. Each part is built, even without stored
# weights.
COUNTS = ("layer", "group", "expert", "block")
KERNELS = ("attn_implementation", "_attn_implementation", "experts_implementation", "_experts_implementation")


@dataclass(frozen=True)
class StoredWeights:
    """The number of tensors and of parameters in a model's files, and the largest dimension of a tensor."""

    tensors: int
    numbers: int
    largest_side: int


def load_model(files: ModelFiles, role: Role) -> tuple[Any, list[str]]:
    """Return the model in single precision, and the names of the weights that are missing in the files.

    Missing weights have random values.
    """
    keep_torch_files()
    import torch
    import transformers
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    stored = check_weights(files)
    loader = getattr(transformers, role.loader)
    try:
        config = transformers.AutoConfig.from_pretrained(files.folder, trust_remote_code=False)
        with torch.device("meta"):  # creates tensors with shapes and without values
            shapes = loader.from_config(config, trust_remote_code=False)
        numbers = sum(tensor.numel() for tensor in (*shapes.parameters(), *shapes.buffers()))
        check_size(files, stored, numbers)
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


def check_weights(files: ModelFiles) -> StoredWeights:
    """Count the tensors and parameters in the model's files.

    Refuse files that are invalid, and a config.json that contradicts them.
    """
    if (files.folder / "adapter_config.json").exists():
        raise EncoderUnavailable(
            f"{files.folder} is an adapter for another model (it has an adapter_config.json). Merge the adapter into "
            "that model, and give the folder of the merged model."
        )
    _check_index(files.folder / "model.safetensors.index.json")
    shapes = [shape for path in files.weight_files() for shape in _shapes(path)]
    sides = [side for shape in shapes for side in shape]
    stored = StoredWeights(len(shapes), sum(math.prod(shape) for shape in shapes), max(sides, default=0))
    for key, value in _items(files.config):
        _check_setting(files.folder / "config.json", key, value, stored)
    return stored


def check_size(files: ModelFiles, stored: StoredWeights, numbers: int) -> None:
    """Refuse a model whose config.json describes far more parameters than its files hold."""
    if numbers > 2 * stored.numbers + MOST_NEW:
        raise EncoderUnavailable(
            f"{files.folder / 'config.json'} describes a model with {numbers:,} parameters, but the weights "
            f"hold {stored.numbers:,}. The configuration or the weights belong to another model. Download the model "
            "again."
        )


def _check_index(path: Path) -> None:
    """Check that the index of a model with several weight files names only files in its own folder."""
    if not path.is_file():
        return
    try:
        names = set(json.loads(_read(path, LARGEST_HEADER)).get("weight_map", {}).values())
        outside = sorted(name for name in names if Path(name).name != name)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise EncoderUnavailable(f"{path} cannot be read: {error}") from error
    if outside:
        raise EncoderUnavailable(f"{path} names weights outside of its folder: {outside[0][:200]!r}.")


def _read(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise EncoderUnavailable(f"{path} has more than {most:,} bytes.")
    return data


def _shapes(path: Path) -> Iterator[list[int]]:
    """Yield the shape of every tensor in a file. Refuse a file whose header does not account for every byte."""

    def refuse(what: str) -> EncoderUnavailable:
        return EncoderUnavailable(f"{path} is not a valid safetensors file: {what}. Download the model again.")

    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise refuse(f"its first bytes announce a header of {length:,} bytes, but the file has {size:,}")
        if length > LARGEST_HEADER:
            raise refuse(f"its header has {length:,} bytes; at most {LARGEST_HEADER:,} are allowed")
        data = file.read(length)
    try:
        header = json.loads(data, object_pairs_hook=_unique_keys)
        header.pop("__metadata__", None)
        tensors = [(*tensor["data_offsets"], tensor["dtype"], tensor["shape"], name) for name, tensor in header.items()]
        end = 0
        for first, last, kind, shape, name in sorted(tensors, key=lambda tensor: tensor[:2]):
            if not all(type(number) is int and number >= 0 for number in (first, last, *shape)):
                raise refuse(f"the sizes of {name[:100]!r} are not whole numbers")
            if first != end or last - first != math.prod(shape) * BYTES[kind]:
                raise refuse(f"the bytes {first:,} to {last:,} cannot hold {name[:100]!r} of the shape {shape}")
            end = last
            yield shape
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise refuse(f"its header cannot be read ({type(error).__name__}: {str(error)[:200]})") from error
    if end != size - 8 - length:
        raise refuse(f"its tensors have {end:,} bytes, but the file has {size - 8 - length:,} for them")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _items(config: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield every number and text of a config, with its key."""
    waiting: list[tuple[str, Any]] = [("", config)]
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.items()
        elif isinstance(value, list):
            waiting += [(key, item) for item in value]
        else:
            yield key, value


def _check_setting(path: Path, key: str, value: Any, stored: StoredWeights) -> None:
    if isinstance(value, str) and key in KERNELS and ("/" in value or ":" in value):
        raise EncoderUnavailable(
            f"{path}: {key!r} needs code from the hub ({value[:100]!r}). Code of a model is never run. Remove the key "
            f"{key!r}."
        )
    if not isinstance(value, int) or isinstance(value, bool):
        return
    most = max(stored.largest_side, MOST_UNSTORED)
    if any(part in key for part in COUNTS):
        most = max(stored.tensors, MOST_SHARED, 4096 if "size" in key else 0)
    elif key == "num_labels":
        most = stored.largest_side
    if value > most:
        raise EncoderUnavailable(
            f"{path}: {key!r} is {value}, but the weights allow at most {most:,} (they have {stored.tensors:,} "
            f"tensors; the largest tensor dimension is {stored.largest_side:,}). Download the model again."
        )
