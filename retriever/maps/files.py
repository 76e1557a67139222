"""Maps on disk: one .npz file without pickles per generation, in the cache folder.

A file that is damaged or has another format is treated as missing, because a map can always be made again.
"""

import contextlib
import io
import json
import zipfile
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from retriever.files import atomic_write, cache_folder
from retriever.maps.map import Cluster, Map, Preserved

FORMAT = 1
MOST_CACHED = 50
ARRAYS = {"numbers": "<i8", "signatures": "<u8", "x": "<u2", "y": "<u2", "cluster": "|u1"}
UNREADABLE = (OSError, ValueError, KeyError, TypeError, IndexError, EOFError, RecursionError, MemoryError)
BROKEN_ARCHIVE = (zipfile.BadZipFile, zlib.error, NotImplementedError, SyntaxError)


def save(made: Map, path: Path) -> None:
    """Write a map atomically."""
    facts = {
        "format": FORMAT,
        "generation": made.generation,
        "clusters": [asdict(one) for one in made.clusters],
        "kept": asdict(made.kept),
        "placed": made.placed,
    }
    arrays: dict[str, Any] = {name: getattr(made, name).astype(kind) for name, kind in ARRAYS.items()}
    data = io.BytesIO()
    np.savez_compressed(data, facts=np.frombuffer(json.dumps(facts).encode(), np.uint8), **arrays)
    with atomic_write(path) as temporary:
        temporary.write_bytes(data.getbuffer())


def load(path: Path) -> Map | None:
    """Read a map; return None if there is no usable one."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in ARRAYS}
            facts = json.loads(file["facts"].tobytes())
        clusters = tuple(
            Cluster(number=int(one["number"]), label=str(one["label"]), documents=int(one["documents"]))
            for one in facts["clusters"]
        )
        count = len(arrays["numbers"])
        valid = (
            facts["format"] == FORMAT
            and all(array.dtype == ARRAYS[name] and array.shape == (count,) for name, array in arrays.items())
            and (np.diff(arrays["numbers"]) > 0).all()
            and [one.number for one in clusters] == list(range(len(clusters)))
            and (arrays["cluster"] < max(len(clusters), 1)).all()
        )
        if not valid:
            return None
        return Map(
            generation=str(facts["generation"]),
            clusters=clusters,
            kept=Preserved(**{name: facts["kept"][name] for name in ("within_10", "within_50", "measured_on")}),
            placed=int(facts["placed"]),
            **arrays,
        )
    except (*UNREADABLE, *BROKEN_ARCHIVE):
        return None


def cached(generation: str) -> Map | None:
    """Read the map of a generation from the cache."""
    found = load(_cache_path(generation))
    return found if found is not None and found.generation == generation else None


def cache(made: Map) -> None:
    """Write a map to the cache, and delete the oldest maps if there are too many."""
    with contextlib.suppress(OSError):  # a cache that cannot be written only costs time
        path = _cache_path(made.generation)
        save(made, path)
        files = sorted(path.parent.glob("*.npz"), key=lambda file: file.stat().st_mtime)
        for old in files[:-MOST_CACHED]:
            old.unlink()


def _cache_path(generation: str) -> Path:
    return cache_folder() / "maps" / f"{generation}.npz"
