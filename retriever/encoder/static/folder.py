"""Write a word table as a StaticEmbedding folder of sentence-transformers, and find the folder of a collection.

The folder is an ordinary encoder: `retriever index --encoder DIR` and `SentenceTransformer(DIR)` both load it.
"""

import contextlib
import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from retriever.encoder.encoder import Encoder
from retriever.encoder.model_files import LEARNED, EncoderIdentity, ModelFiles, public_name
from retriever.errors import EncoderUnavailable, Mismatch, Misuse
from retriever.files import cache_folder, sync_all
from retriever.progress import Progress, silent

if TYPE_CHECKING:
    from retriever.encoder.static.words import WordTable

# With 384 instead of 768 dimensions, nDCG@10 differs by less than 0.5 on Cranfield and SciFact.
DIMENSION = 384
MODULES = ("StaticEmbedding", "Normalize")
MODULE_PACKAGE = "sentence_transformers.models"


def learn_folder(
    texts: Sequence[str], encoder: Encoder, folder: Path, *, seed: int = 0, progress: Progress = silent
) -> dict[str, Any]:
    """Learn a word table from the texts of documents and write it to `folder`. Return the facts about the learning.

    A word table in `folder` is replaced. Any other files there are refused.
    """
    from retriever.encoder.static.learning import STAGE, learn, reduced
    from retriever.encoder.static.words import word_table

    if folder.is_dir() and any(folder.iterdir()) and not _is_learned(folder):
        raise Misuse(f"{folder} holds other files, and the word table would replace them; index into another folder.")
    progress(STAGE, 0, None)
    table, learning = learn(word_table(texts, encoder, seed), texts, seed, progress)
    # The time that learning took is left out, so that the same table always has the same identity.
    # A table that is learned again from a table still comes from the same BERT.
    base = encoder.files.config.get("learned_from") or {
        "name": public_name(encoder.identity.name),
        "weights": encoder.identity.weights,
    }
    # The name is fixed, so that the next run recognises and removes what a killed process left there.
    temporary = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        write_table(reduced(table, texts, DIMENSION), temporary, {"learned_from": base, "seed": seed})
        sync_all(temporary)
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return learning.to_json()


def _is_learned(folder: Path) -> bool:
    try:
        return "learned_from" in ModelFiles(str(folder)).config
    except EncoderUnavailable:
        return False


def write_table(table: "WordTable", folder: Path, facts: dict[str, Any]) -> None:
    """Write the files of a table into an existing folder."""
    from safetensors.numpy import save

    rows = table.rows / max(float(np.abs(table.rows).max()), 1e-12)
    # The library's own function for files would let nobody else read the file, unlike those beside it.
    (folder / "model.safetensors").write_bytes(save({"embedding.weight": rows.astype(np.float32)}))
    table.tokenizer.save(str(folder / "tokenizer.json"))
    config = {"model_type": "static-embedding", "hidden_size": int(rows.shape[1]), "vocab_size": len(rows), **facts}
    write_json(folder / "config.json", config)
    write_modules(folder, MODULES)


def write_modules(folder: Path, kinds: Sequence[str], prompts: Mapping[str, str] = MappingProxyType({})) -> None:
    """Write the list of modules, from which sentence-transformers loads a model, and its general settings.

    `prompts` are the prompts of queries and documents.

    The files of the first module are in the folder itself. A further module that has files has a subfolder.
    """
    modules = [
        {"idx": number, "name": str(number), "path": module_path(number, kind), "type": f"{MODULE_PACKAGE}.{kind}"}
        for number, kind in enumerate(kinds)
    ]
    write_json(folder / "modules.json", modules)
    general: dict[str, Any] = {"prompts": dict(prompts), "default_prompt_name": None, "similarity_fn_name": "cosine"}
    write_json(folder / "config_sentence_transformers.json", general)


def module_path(number: int, kind: str) -> str:
    """Return the subfolder of a module in a sentence-transformers folder."""
    return f"{number}_{kind}" if number else ""


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def cached_folder(identity: EncoderIdentity) -> Path:
    """Return the folder of a learned table that is not stored in the folder of its collection."""
    files = f"{identity.weights} {identity.tokenizer} {identity.config}"
    return cache_folder() / "learned" / hashlib.sha256(files.encode()).hexdigest()[:32]


def find_folder(stored: EncoderIdentity, own: Path | None, given: str | None, where: object) -> str:
    """Return the folder of the table that a collection was made with.

    `own` is the place of the table in the folder of the collection. `given` is the encoder that the user gave: the
    table itself, or the BERT that the table was made from.
    """
    files = None if given is None else ModelFiles(given)
    if files and files.static:
        return files.name
    for folder in (_finished(stored, own), own, cached_folder(stored)):
        if folder is not None and folder.is_dir():
            base = ModelFiles(str(folder)).config.get("learned_from", {})
            if files and files.weights_sha256 != base.get("weights"):
                raise Mismatch(
                    f"{where} was made with a word table that was learned from {stored.name}, and the given encoder "
                    f"{given} has other weights. Leave the encoder out, or index into another folder."
                )
            return str(folder)
    raise EncoderUnavailable(
        f"{where} was made with a word table, and its folder {own or cached_folder(stored)} is missing. Copy it from "
        "the machine that made the collection, or give its location as `encoder`."
    )


def next_folder(own: Path) -> Path:
    """Return the temporary folder of a table that was learned again and will replace the old one."""
    return own.with_name(f"{own.name}.next")


def _finished(stored: EncoderIdentity, own: Path | None) -> Path | None:
    """Return the next table if the collection uses it already, because a process was killed before it was moved."""
    if own is None or not (following := next_folder(own)).is_dir():
        return None
    with contextlib.suppress(EncoderUnavailable):
        return following if ModelFiles(str(following)).weights_sha256 == stored.weights else None
    return None


def replace_table(stored: EncoderIdentity, own: Path) -> None:
    """Replace the old table by the next one if the collection uses the next one. Otherwise remove the next one."""
    following = next_folder(own)
    if _finished(stored, own):
        shutil.rmtree(own, ignore_errors=True)
        following.rename(own)
    shutil.rmtree(following, ignore_errors=True)


def copy_folder(
    stored: EncoderIdentity, own: Path | None, target: Path | None, where: object, given: str | None = None
) -> None:
    """Copy the table of a collection, if it has one, to another collection. `target` is the folder there.

    The other arguments are those of `find_folder`.
    """
    if stored.pooling == LEARNED:
        source = find_folder(stored, own, given, where)
        shutil.copytree(source, target or cached_folder(stored), dirs_exist_ok=True)
