"""What a model's safetensors files really hold, by their headers alone, and whether its config.json can be true of it.

A config is a small text that may claim anything: a billion blocks, vectors of a billion numbers. transformers would
begin to build what it says. It is held against the weights first, which cannot claim more than a file has bytes.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retriever.encoder.model_files import ModelFiles
from retriever.errors import EncoderUnavailable

LARGEST_HEADER = 16 << 20
BYTES = {
    **dict.fromkeys(("F64", "I64", "U64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2"), 1),
}
# A model may share one block's weights among many, and have what its files lack: a pooler, a new head.
MOST_SHARED = 100
MOST_ANEW = 1_000_000
# Of numbers that are no size of any tensor, such as positions that are computed.
MOST_UNSTORED = 10_000_000
# The keys of how many parts of a kind there are; each is built, whether or not there are weights for it.
COUNTS = ("layer", "group", "expert", "block")
KERNELS = ("attn_implementation", "_attn_implementation", "experts_implementation", "_experts_implementation")


@dataclass(frozen=True)
class Held:
    """What all files of a model hold together."""

    tensors: int
    numbers: int
    largest_side: int


def checked(files: ModelFiles) -> Held:
    """What the model's files hold, refused where they or config.json cannot be what they say."""
    if (files.folder / "adapter_config.json").exists():
        raise EncoderUnavailable(
            f"{files.folder} is an adapter of another model (it has an adapter_config.json); merge the two and give "
            "the folder of what comes out."
        )
    _check_index(files.folder / "model.safetensors.index.json")
    shapes = [shape for path in files.weight_files() for shape in _shapes(path)]
    sides = [side for shape in shapes for side in shape]
    held = Held(len(shapes), sum(math.prod(shape) for shape in shapes), max(sides, default=0))
    for key, value in _items(files.config):
        _check_setting(files.folder / "config.json", key, value, held)
    return held


def refuse_larger(files: ModelFiles, held: Held, numbers: int) -> None:
    """Refuse a model that by its config has far more numbers than its files; they are counted before any is made."""
    if numbers > 2 * held.numbers + MOST_ANEW:
        raise EncoderUnavailable(
            f"{files.folder / 'config.json'} describes a model of {numbers:,} numbers, and its weights are "
            f"{held.numbers:,}: one of the two is not this model's. Get the model again."
        )


def _check_index(path: Path) -> None:
    """The file that says which weights lie in which file, where there are several."""
    if not path.is_file():
        return
    try:
        names = set(json.loads(_start(path, LARGEST_HEADER)).get("weight_map", {}).values())
        outside = sorted(name for name in names if Path(name).name != name)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise EncoderUnavailable(f"{path} cannot be read: {error}") from error
    if outside:
        raise EncoderUnavailable(f"{path} names weights outside of its folder: {outside[0][:200]!r}.")


def _start(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise EncoderUnavailable(f"{path} has more than {most:,} bytes.")
    return data


def _shapes(path: Path) -> Iterator[list[int]]:
    """The shape of every tensor in a file, whose header must account for every byte of it."""

    def refuse(what: str) -> EncoderUnavailable:
        return EncoderUnavailable(f"{path} is no sound safetensors file: {what}. Get the model again.")

    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise refuse(f"it says that its header has {length:,} bytes, and the file has {size:,}")
        if length > LARGEST_HEADER:
            raise refuse(f"its header has {length:,} bytes, and at most {LARGEST_HEADER:,} are read")
        data = file.read(length)
    try:
        header = json.loads(data, object_pairs_hook=_without_doubles)
        header.pop("__metadata__", None)
        tensors = [(*tensor["data_offsets"], tensor["dtype"], tensor["shape"], name) for name, tensor in header.items()]
        end = 0
        for first, last, kind, shape, name in sorted(tensors, key=lambda tensor: tensor[:2]):
            if not all(type(number) is int and number >= 0 for number in (first, last, *shape)):
                raise refuse(f"the sizes of {name[:100]!r} are no whole numbers")
            if first != end or last - first != math.prod(shape) * BYTES[kind]:
                raise refuse(f"{name[:100]!r} of the shape {shape} is said to lie at the bytes {first:,} to {last:,}")
            end = last
            yield shape
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise refuse(f"its header cannot be read ({type(error).__name__}: {str(error)[:200]})") from error
    if end != size - 8 - length:
        raise refuse(f"its tensors have {end:,} bytes, and the file has {size - 8 - length:,} for them")


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands in it twice")
    return found


def _items(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every number and text of a config, with the key it stands under."""
    waiting = [(key, value)]
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.items()
        elif isinstance(value, list):
            waiting += [(key, item) for item in value]
        else:
            yield key, value


def _check_setting(path: Path, key: str, value: Any, held: Held) -> None:
    if isinstance(value, str) and key in KERNELS and ("/" in value or ":" in value):
        raise EncoderUnavailable(
            f"{path}: {key!r} asks for code from the hub, {value[:100]!r}, and no model's code is ever run. Remove it."
        )
    if not isinstance(value, int) or isinstance(value, bool):
        return
    most = max(held.largest_side, MOST_UNSTORED)
    if any(part in key for part in COUNTS):
        most = max(held.tensors, MOST_SHARED, 4096 if "size" in key else 0)
    elif key == "num_labels":
        most = held.largest_side
    if value > most:
        raise EncoderUnavailable(
            f"{path}: {key!r} is {value}, and by its weights ({held.tensors:,} tensors, the longest side "
            f"{held.largest_side:,}) it can be at most {most:,}. Get the model again."
        )
