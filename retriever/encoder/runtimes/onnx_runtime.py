"""Runs an encoder with ONNX Runtime on the CPU, from a graph that `onnx_export` wrote. This does not need torch."""

import ctypes
import hashlib
import json
import os
import shutil
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.mapped import MappedFile
from retriever.encoder.model_files import PROMPTS, EncoderIdentity
from retriever.errors import first_line
from retriever.files import cache_folder, cached_sha256

FORMAT = 3
GRAPH, WEIGHTS, TOKENIZER, FACTS = "model.onnx", "weights.bin", "tokenizer.json", "facts.json"
FILES = (GRAPH, WEIGHTS, TOKENIZER)
INPUTS = ("input_ids", "attention_mask")
# Parts of the identity of an encoder that do not affect its graph.
NOT_IN_GRAPH = ("name", "max_length", "probe", *PROMPTS)


def export_folder(identity: EncoderIdentity) -> Path:
    """Return the cache folder for the graph of this encoder. The folder may not exist yet."""
    decides = {key: value for key, value in asdict(identity).items() if key not in NOT_IN_GRAPH}
    key = hashlib.sha256(json.dumps({"format": FORMAT, **decides}, sort_keys=True).encode()).hexdigest()
    return cache_folder() / "encoders" / key[:32]


def is_exported(folder: Path) -> bool:
    """Return whether the folder holds the undamaged graph of its encoder. A damaged or wrong folder is deleted."""
    if not folder.is_dir():
        return False
    try:
        facts = json.loads((folder / FACTS).read_bytes())
        own = export_folder(EncoderIdentity.from_json(facts["encoder"])).name == folder.name
        hashes = facts["files"]
        if own and set(hashes) == set(FILES) and all(cached_sha256(folder / name) == hashes[name] for name in FILES):
            return True
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    return False


def open_exported(folder: Path) -> "tuple[OnnxModel | None, str]":
    """Return the model and an empty text, or None and what is wrong with the folder.

    A folder that cannot be used is deleted. If there is no folder, the text is empty.
    """
    if not folder.is_dir():
        return None, ""
    if not is_exported(folder):
        return None, "was damaged"
    try:
        return OnnxModel(folder), ""
    except Exception as error:  # ONNX Runtime raises many classes of errors
        shutil.rmtree(folder, ignore_errors=True)
        return None, f"could not be read by this version of ONNX Runtime ({first_line(error)})"


class OnnxModel:
    """An ONNX Runtime session for the graph in a folder. Several threads can use it at once.

    Each call runs on one core. In a measurement, the throughput of two parallel calls, with one core for each, was 15 %
    higher than that of one call with two cores.
    """

    def __init__(self, folder: Path) -> None:
        onnxruntime = import_onnxruntime()
        self.workers = cores()
        self.mapped = [MappedFile(folder / name) for name in (GRAPH, WEIGHTS)]
        # The graph was optimised when it was exported.
        level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        self._session = open_session(
            str(folder / GRAPH), intra_op_num_threads=1, inter_op_num_threads=1, graph_optimization_level=level
        )
        # The pooling "word" reads the input embeddings alone and may need no mask.
        self._inputs = {one.name for one in self._session.get_inputs()}

    def vectors(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        given = {name: rows for name, rows in zip(INPUTS, (ids, mask), strict=True) if name in self._inputs}
        vectors: NDArray[np.float32] = self._session.run(None, given)[0]
        return vectors


def open_session(model: str | bytes, **settings: Any) -> Any:
    """Open a session on the CPU for a model file or a serialized model. `settings` are attributes of SessionOptions."""
    onnxruntime = import_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    for name, value in settings.items():
        setattr(options, name, value)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


@cache
def import_onnxruntime() -> Any:
    """Import ONNX Runtime without telemetry.

    `retriever/__init__.py` and the wheel's .pth file prevent that its telemetry starts. It runs nevertheless if the
    user enabled it, or imported ONNX Runtime first where the .pth file is not installed. Then it at least tells
    nothing about what we do, and forked children end.
    """
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_leave_without_destructors)
    return onnxruntime


def _leave_without_destructors() -> None:
    """Let a forked child end without the destructors of libraries that its parent has loaded.

    At the end of a process, ONNX Runtime destroys a condition variable of its telemetry. A thread of the parent waits
    for it. A child has no such thread, so it would wait forever. Children of `multiprocessing` never run destructors.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):  # glibc; elsewhere, destroying the variable does not wait
        libc.on_exit(libc._exit, None)
        libc.__cxa_atexit(libc.fflush, None, None)  # handlers run in reverse order, so files are written first


def cores() -> int:
    """Return the number of CPU cores that this process may use. In a container, this is the container's share."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1
