"""From a torch encoder to an ONNX graph with its pooling, optimised once and checked against torch.

A folder of the cache holds one encoder: the graph, its weights beside it so that they are mapped and not read, its
tokenizer, and what made them. It is keyed by all that decides the vectors, so it belongs to no collection and is made
once a machine.
"""

import atexit
import contextlib
import json
import os
import shutil
import warnings
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import numpy as np

from indexes.checksums import file_sha256
from retriever.encoder.model_files import EncoderIdentity, ModelFiles
from retriever.encoder.model_loader import load_tokenizer, padded
from retriever.encoder.runtimes.int8 import quantize
from retriever.encoder.runtimes.onnx_runtime import (
    FACTS,
    FORMAT,
    GRAPH,
    INPUTS,
    TOKENIZER,
    WEIGHTS,
    export_folder,
    open_session,
    run,
)
from retriever.encoder.runtimes.torch_model import TorchModel, exportable
from retriever.errors import EncoderUnavailable, first_line
from retriever.files import atomic_write

OPSET = 17
# Of every sentence below, between ONNX Runtime's vector and torch's.
SAME = 0.9999
# What integers are worth is for the corpus to say; below this they are not the same encoder at all.
ALIKE = 0.9
SENTENCES = (
    "Cats purr.",
    "The committee approved the budget after a long debate about the cost of the new library.",
    "When was the first bridge across the river built, and who paid for it?",
    "def quicksort(items): return items if len(items) < 2 else quicksort([i for i in items[1:] if i < items[0]])",
    "Die Patientin klagte über Kopfschmerzen, Übelkeit und eine verschwommene Sicht auf dem linken Auge.",
    "In a shock tube the pressure behind the incident wave was measured with a quartz gauge; the results agree with "
    "the theory to within two per cent at Mach numbers from 1.5 to 4, but above that the boundary layer thickens, and "
    "the flow can no longer be taken as one-dimensional. Several corrections have been proposed, none of which holds "
    "over the whole range, and the authors conclude that a direct computation of the viscous flow is to be preferred.",
    "42",
    "東京は日本の首都であり、世界で最も人口の多い都市の一つです。",
)


class NotExportable(Exception):
    """Why an encoder cannot be run by ONNX Runtime."""


def export(files: ModelFiles, identity: EncoderIdentity) -> Path:
    """Make the graph of this encoder and check it; `NotExportable` says why it cannot be, now and when asked again.

    Where the cache cannot be written, the graph lies in a temporary folder and serves this process alone.
    """
    folder = export_folder(identity)
    if not _writable(folder.parent):
        folder = Path(mkdtemp(prefix="flow-retriever-")) / folder.name
        atexit.register(shutil.rmtree, folder.parent, ignore_errors=True)
    refusal = folder.with_suffix(".refused")
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        known = json.loads(refusal.read_bytes())
        if known["versions"] == _versions():
            raise NotExportable(known["reason"])
    single = replace(identity, precision="fp32")
    try:
        model = TorchModel(files, single, "cpu")
        with TemporaryDirectory() as scratch, atomic_write(folder) as aside:
            graph = _traced(model, Path(scratch) / "traced.onnx")
            if identity.precision == "int8" and not quantize(graph, _samples(model, graph)):
                raise NotExportable("it has no product with a matrix of weights that integers could take over")
            aside.mkdir()
            _optimised(graph, Path(scratch), aside)
            load_tokenizer(files).save(str(aside / TOKENIZER))
            cosine = _check(aside, model, ALIKE if identity.precision == "int8" else SAME)
            facts = {
                "format": FORMAT,
                "encoder": identity.to_json(),
                "worst_cosine_to_torch": cosine,
                "versions": _versions(),
                "files": {name: file_sha256(aside / name) for name in (GRAPH, WEIGHTS, TOKENIZER)},
            }
            (aside / FACTS).write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    except EncoderUnavailable:
        raise
    except OSError as error:
        if not (folder / FACTS).is_file():  # else another process has made it meanwhile
            raise NotExportable(f"{folder} cannot be written: {error.strerror or error}") from error
    except MemoryError as error:  # which may not be so the next time
        raise NotExportable("there is too little memory to export it") from error
    except Exception as error:  # the exporter and ONNX Runtime raise many classes for what they cannot do
        reason = str(error) if isinstance(error, NotExportable) else f"{type(error).__name__}: {first_line(error)}"
        with contextlib.suppress(OSError):
            refusal.write_text(json.dumps({"reason": reason, "versions": _versions()}), encoding="utf-8")
        raise NotExportable(reason) from error
    return folder


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _traced(model: TorchModel, path: Path) -> Any:
    """The graph as torch writes it."""
    import onnx
    import torch

    batch = torch.ones((2, 5), dtype=torch.int64)
    with contextlib.suppress(AttributeError, ValueError):  # fused attention hides the shapes from the exporter
        model.model.set_attn_implementation("eager")
    dynamic = {0: "texts", 1: "tokens"}
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            exportable(model),
            (batch, batch),
            str(path),
            input_names=list(INPUTS),
            output_names=["vectors"],
            dynamic_axes=dict.fromkeys(INPUTS, dynamic) | {"vectors": {0: "texts"}},
            opset_version=OPSET,
            dynamo=False,
        )
    return onnx.load(path)


def _optimised(graph: Any, scratch: Path, folder: Path) -> None:
    """Have ONNX Runtime fuse what it can, once, and keep the result with the weights in a file of their own."""
    import onnx
    import onnxruntime

    plain, fused = scratch / "plain.onnx", scratch / "fused.onnx"
    onnx.save(graph, plain)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Beyond this level a graph is made for one kind of processor.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(fused)
    onnxruntime.InferenceSession(str(plain), options, providers=["CPUExecutionProvider"])
    onnx.save(
        onnx.load(fused),
        folder / GRAPH,
        save_as_external_data=True,
        all_tensors_to_one_file=True,
        location=WEIGHTS,
        size_threshold=1024,
    )


def _check(folder: Path, model: TorchModel, least: float) -> float:
    """The smallest cosine between the graph's vectors and torch's, refused if it is too small."""
    tokens = _tokens(model)
    session = open_session(folder)
    worst = 1.0
    for some in (tokens, tokens[1:2]):
        ids, mask = padded(some, model.files.pad_id)
        ours, theirs = (rows.astype(np.float64) for rows in (run(session, ids, mask), model.vectors(ids, mask)))
        lengths = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
        worst = min(worst, float(((ours * theirs).sum(axis=1) / np.maximum(lengths, 1e-30)).min()))
    if not worst >= least:
        raise NotExportable(f"its vectors would not be those of torch: a cosine of {worst:.5f}, not {least}")
    return worst


def _tokens(model: TorchModel) -> list[list[int]]:
    tokenizer = load_tokenizer(model.files)
    tokenizer.enable_truncation(min(model.identity.max_length, 256))
    return [encoding.ids for encoding in tokenizer.encode_batch_fast(list(SENTENCES))]


def _samples(model: TorchModel, graph: Any) -> list[dict[str, Any]]:
    """The sentences one by one as the graph's inputs."""
    taken = {one.name for one in graph.graph.input}
    batches = (padded([own], model.files.pad_id) for own in _tokens(model))
    return [{k: v for k, v in zip(INPUTS, batch, strict=True) if k in taken} for batch in batches]


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("torch", "transformers", "onnx", "onnxruntime")}
