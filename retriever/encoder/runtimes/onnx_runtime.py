"""An encoder run by ONNX Runtime on the processor, from a graph that `export` made. No torch here."""

import hashlib
import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.encoder.model_files import EncoderIdentity
from retriever.files import cache_folder, cached_sha256

FORMAT = 2
GRAPH, WEIGHTS, TOKENIZER, FACTS = "model.onnx", "weights.bin", "tokenizer.json", "facts.json"
INPUTS = ("input_ids", "attention_mask")


def export_folder(identity: EncoderIdentity) -> Path:
    """Where the graph of this encoder lies, or would."""
    decides = {key: value for key, value in asdict(identity).items() if key not in ("name", "max_length")}
    key = hashlib.sha256(json.dumps({"format": FORMAT, **decides}, sort_keys=True).encode()).hexdigest()
    return cache_folder() / "encoders" / key[:32]


class OnnxModel:
    """A session of the encoder's graph. Several threads may use it at once, a core each."""

    def __init__(self, folder: Path) -> None:
        self.workers = cores()
        self._session = open_session(folder)

    def vectors(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        """One row a text."""
        return run(self._session, ids, mask)


def exported(folder: Path) -> bool:
    """Whether the folder holds its encoder's graph, whole; what is damaged or another's is deleted, to be made anew."""
    if not folder.is_dir():
        return False
    try:
        facts = json.loads((folder / FACTS).read_bytes())
        own = export_folder(EncoderIdentity.from_json(facts["encoder"])).name == folder.name
        if own and all(cached_sha256(folder / name) == sha256 for name, sha256 in facts["files"].items()):
            return True
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    return False


def open_session(folder: Path) -> Any:
    """A session on the graph in a folder, with one core for each call.

    Calls in parallel then share nothing: two of them on two cores did 15 % more than one call on both.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    # The graph was optimised when it was made.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(folder / GRAPH), options, providers=["CPUExecutionProvider"])


def run(session: Any, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
    """The sentence vectors of a batch."""
    taken = {one.name for one in session.get_inputs()}  # input embeddings alone need no mask of the blocks
    given = {name: rows for name, rows in zip(INPUTS, (ids, mask), strict=True) if name in taken}
    vectors: NDArray[np.float32] = session.run(None, given)[0]
    return vectors


def cores() -> int:
    """The processor cores that this process may use; a container's share counts, not the machine's."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1
