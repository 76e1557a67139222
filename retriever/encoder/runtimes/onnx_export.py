"""Exports a torch encoder with its pooling to an ONNX graph, optimises the graph, and compares its vectors with torch.

A cache folder holds one encoder: the graph, the weights, the tokenizer, and facts about the export. The weights are in
a separate file, so that they can be mapped into memory. The folder is named by the hash of everything that affects the
vectors. Collections with the same encoder share the folder, so an encoder is exported once per machine.
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
from retriever.encoder.batches import load_tokenizer, padded
from retriever.encoder.model_files import EncoderIdentity, ModelFiles
from retriever.encoder.runtimes import onnx_runtime
from retriever.encoder.runtimes.int8 import quantize
from retriever.encoder.runtimes.torch_model import ExportModule, TorchModel
from retriever.errors import EncoderUnavailable, first_line
from retriever.files import atomic_write

OPSET = 17
# The smallest allowed cosine between the vectors of ONNX Runtime and torch, over the sentences below. The limit for
# int8 only finds broken exports. `retriever.ingest.encoder_choice` measures whether int8 is good enough for a corpus.
LEAST_COSINE = {"fp32": 0.9999, "int8": 0.9}
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
    """Raised if ONNX Runtime cannot run the encoder. The message gives the reason."""


def export(files: ModelFiles, identity: EncoderIdentity) -> Path:
    """Export this encoder, check the result and return its folder.

    If the export fails, the reason is stored, so that the next call raises `NotExportable` at once. If the cache cannot
    be written, the folder is temporary and only this process uses it.
    """
    folder = onnx_runtime.export_folder(identity)
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
        with TemporaryDirectory() as scratch, atomic_write(folder) as target:
            graph = _trace(model, Path(scratch) / "traced.onnx")
            if identity.precision == "int8" and not quantize(graph, _samples(model, graph)):
                raise NotExportable("it has no multiplication by a weight matrix that int8 could replace")
            target.mkdir()
            _optimise(graph, Path(scratch), target)
            load_tokenizer(files).save(str(target / onnx_runtime.TOKENIZER))
            cosine = _check(target, model, LEAST_COSINE[identity.precision])
            facts = {
                "format": onnx_runtime.FORMAT,
                "encoder": identity.to_json(),
                "worst_cosine_to_torch": cosine,
                "versions": _versions(),
                "files": {name: file_sha256(target / name) for name in onnx_runtime.FILES},
            }
            text = json.dumps(facts, indent=1, sort_keys=True) + "\n"
            (target / onnx_runtime.FACTS).write_text(text, encoding="utf-8")
    except EncoderUnavailable:
        raise
    except OSError as error:
        if not (
            folder / onnx_runtime.FACTS
        ).is_file():  # if the file exists, another process has just exported the encoder
            raise NotExportable(f"{folder} cannot be written: {error.strerror or error}") from error
    except MemoryError as error:  # not stored, because the next call may succeed
        raise NotExportable("there is too little memory to export it") from error
    except Exception as error:  # the exporter and ONNX Runtime raise many classes of errors
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


def _trace(model: TorchModel, path: Path) -> Any:
    """Let torch write the graph to a file, and load the file."""
    import onnx
    import torch

    batch = torch.ones((2, 5), dtype=torch.int64)
    with contextlib.suppress(AttributeError, ValueError):  # fused attention hides the shapes from the exporter
        model.model.set_attn_implementation("eager")
    dynamic = {0: "texts", 1: "tokens"}
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            ExportModule(model).eval(),  # torch restores the mode after the export
            (batch, batch),
            str(path),
            input_names=list(onnx_runtime.INPUTS),
            output_names=["vectors"],
            dynamic_axes=dict.fromkeys(onnx_runtime.INPUTS, dynamic) | {"vectors": {0: "texts"}},
            opset_version=OPSET,
            dynamo=False,
        )
    return onnx.load(path)


def _optimise(graph: Any, scratch: Path, folder: Path) -> None:
    """Let ONNX Runtime optimise the graph, and save the result with its weights in a separate file."""
    import onnx

    plain, fused = scratch / "plain.onnx", scratch / "fused.onnx"
    onnx.save(graph, plain)
    # A higher level would make the graph specific to one kind of CPU.
    level = onnx_runtime.import_onnxruntime().GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    onnx_runtime.open_session(str(plain), graph_optimization_level=level, optimized_model_filepath=str(fused))
    onnx.save(
        onnx.load(fused),
        folder / onnx_runtime.GRAPH,
        save_as_external_data=True,
        all_tensors_to_one_file=True,
        location=onnx_runtime.WEIGHTS,
        size_threshold=1024,
    )


def _check(folder: Path, model: TorchModel, least: float) -> float:
    """Return the smallest cosine between the vectors of the graph and those of torch.

    Raise `NotExportable` if it is below `least`.
    """
    tokens = _tokens(model)
    exported = onnx_runtime.OnnxModel(folder)
    worst = 1.0
    for some in (tokens, tokens[1:2]):
        batch = padded(some, model.files.pad_id)
        ours, theirs = (runtime.vectors(*batch).astype(np.float64) for runtime in (exported, model))
        lengths = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
        worst = min(worst, float(((ours * theirs).sum(axis=1) / np.maximum(lengths, 1e-30)).min()))
    if not worst >= least:
        raise NotExportable(
            f"its vectors would differ from those of torch: the cosine is {worst:.5f}, but must be at least {least}"
        )
    return worst


def _tokens(model: TorchModel) -> list[list[int]]:
    tokenizer = load_tokenizer(model.files)
    tokenizer.enable_truncation(min(model.identity.max_length, 256))
    return [encoding.ids for encoding in tokenizer.encode_batch_fast(list(SENTENCES))]


def _samples(model: TorchModel, graph: Any) -> list[dict[str, Any]]:
    """Return one input of the graph for each of the sentences."""
    taken = {one.name for one in graph.graph.input}
    batches = (padded([own], model.files.pad_id) for own in _tokens(model))
    return [{k: v for k, v in zip(onnx_runtime.INPUTS, batch, strict=True) if k in taken} for batch in batches]


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("torch", "transformers", "onnx", "onnxruntime")}
