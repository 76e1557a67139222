"""Maps on disk: arrays and names in one .npz file without pickles, in the cache folder under the generation's hash.

What is damaged, or of another version, counts as not there: a map can always be made again.
"""

import contextlib
import io
import json
import zipfile
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from retriever.files import atomic_write, cache_folder

if TYPE_CHECKING:
    from retriever.maps.mapping import Map

FORMAT = 1
MOST_KEPT = 50
ARRAYS = {"numbers": "<i8", "signatures": "<u8", "x": "<u2", "y": "<u2", "cluster": "|u1"}
UNREADABLE = (OSError, ValueError, KeyError, TypeError, IndexError, EOFError, RecursionError, MemoryError)
BROKEN_ARCHIVE = (zipfile.BadZipFile, zlib.error, NotImplementedError, SyntaxError)


def save(found: "Map", path: Path) -> None:
    """Write a map, whole or not at all."""
    facts = {
        "format": FORMAT,
        "generation": found.generation,
        "clusters": [asdict(one) for one in found.clusters],
        "kept": asdict(found.kept),
        "placed": found.placed,
    }
    arrays: dict[str, Any] = {name: getattr(found, name).astype(kind) for name, kind in ARRAYS.items()}
    data = io.BytesIO()
    np.savez_compressed(data, facts=np.frombuffer(json.dumps(facts).encode(), np.uint8), **arrays)
    with atomic_write(path) as aside:
        aside.write_bytes(data.getbuffer())


def load(path: Path) -> "Map | None":
    """The map in a file; None where there is none that could be used."""
    from retriever.maps.mapping import Cluster, Kept, Map

    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in ARRAYS}
            facts = json.loads(file["facts"].tobytes())
        clusters = tuple(
            Cluster(number=int(one["number"]), label=str(one["label"]), documents=int(one["documents"]))
            for one in facts["clusters"]
        )
        count = len(arrays["numbers"])
        sound = (
            facts["format"] == FORMAT
            and all(array.dtype == ARRAYS[name] and array.shape == (count,) for name, array in arrays.items())
            and (np.diff(arrays["numbers"]) > 0).all()
            and [one.number for one in clusters] == list(range(len(clusters)))
            and (arrays["cluster"] < max(len(clusters), 1)).all()
        )
        if not sound:
            return None
        return Map(
            generation=str(facts["generation"]),
            clusters=clusters,
            kept=Kept(**{name: facts["kept"][name] for name in ("within_10", "within_50", "measured_on")}),
            placed=int(facts["placed"]),
            **arrays,
        )
    except (*UNREADABLE, *BROKEN_ARCHIVE):
        return None


def cached(generation: str) -> "Map | None":
    """The map that was kept of a generation."""
    found = load(_place(generation))
    return found if found is not None and found.generation == generation else None


def keep(found: "Map") -> None:
    """Keep a map for the next time, and let go of those that nobody asked for the longest."""
    with contextlib.suppress(OSError):  # a home that cannot be written costs time and nothing else
        save(found, _place(found.generation))
        files = sorted(_place("").parent.glob("*.npz"), key=lambda path: path.stat().st_mtime)
        for path in files[:-MOST_KEPT]:
            path.unlink()


def _place(generation: str) -> Path:
    return cache_folder() / "maps" / f"{generation}.npz"
