"""Collects the intact settings and transforms of a damaged collection from its tables and generation folders."""

import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from indexes.folder.generation import GENERATIONS
from indexes.generation import INDEX_FILES, MANIFEST, is_encoder, settings_of
from indexes.pages.carved import Carved
from retriever.encoder.model_files import EncoderIdentity
from retriever.errors import RetrieverError
from retriever.settings import INDEX_KEYS, IndexSettings

TransformCopy = tuple[Mapping[str, bytes], dict[str, int] | None]
"""The files of a transform, and the counts of what it was fitted on, if they are known."""


@dataclass
class Survivors:
    """The intact settings and transforms."""

    identity: EncoderIdentity | None
    index: IndexSettings
    transforms: list[TransformCopy]
    """The copies of transforms, in the order in which to try them."""


@dataclass(frozen=True)
class _Manifest:
    folder: Path
    content: dict[str, Any]
    proven: bool
    """True if the database holds the hash of the manifest, or if all listed files match their hashes."""


def survivors(index: Path, carved: Carved) -> Survivors:
    """Collect the intact settings and transforms. Confirmed manifests take precedence over the settings table."""
    manifests = sorted(_manifests(index, carved), key=lambda m: (m.proven, m.folder.name), reverse=True)
    known: dict[str, Any] = settings_of(manifests[0].content) if manifests and manifests[0].proven else {}
    identity = _identity(known.get("encoder")) or _identity(carved.setting("encoder"))
    settings = _index_settings({key: known.get(key, carved.setting(key)) for key in INDEX_KEYS})
    return Survivors(identity, settings, _transforms(manifests, carved))


def _manifests(index: Path, carved: Carved) -> list[_Manifest]:
    named, found = carved.manifest_hashes(), []
    for path in (index / GENERATIONS).glob(f"*/{MANIFEST}"):
        with contextlib.suppress(OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
            if path.is_symlink() or path.parent.is_symlink() or not path.is_file():
                continue
            data = path.read_bytes()
            content = json.loads(data)
            if path.parent.suffix or not isinstance(content["files"], dict):  # unfinished, or not a manifest
                continue
            proven = hashlib.sha256(data).hexdigest() in named or _agree(path.parent, content["files"])
            found.append(_Manifest(path.parent, content, proven))
    return found


def _agree(folder: Path, files: Mapping[str, Mapping[str, Any]]) -> bool:
    return bool(files) and all(
        hashlib.sha256((folder / name).read_bytes()).hexdigest() == facts["sha256"] for name, facts in files.items()
    )


def _identity(value: Any) -> EncoderIdentity | None:
    if is_encoder(value) and value["dimension"] > 0:
        with contextlib.suppress(KeyError, TypeError, ValueError, RetrieverError):
            return EncoderIdentity.from_json(value)
    return None


def _index_settings(settings: Mapping[str, Any]) -> IndexSettings:
    try:
        return IndexSettings.from_json(settings)
    except (RetrieverError, TypeError, ValueError, AttributeError):
        return IndexSettings()


def _transforms(manifests: list[_Manifest], carved: Carved) -> list[TransformCopy]:
    """List the copies of transforms.

    The sets of files that a manifest confirms come first. Then come the copies in the database table, which are checked
    only when they are loaded.
    """
    kept = carved.transform_files()
    found: list[TransformCopy] = []
    for manifest in manifests:
        with contextlib.suppress(OSError, KeyError, TypeError, AttributeError, StopIteration):
            wanted = {
                name: facts["sha256"] for name, facts in manifest.content["files"].items() if name not in INDEX_FILES
            }
            files = {}
            for name, sha256 in wanted.items():
                copies = [data for kept_name, data in kept if kept_name == name]
                if (manifest.folder / name).is_file() and not (manifest.folder / name).is_symlink():
                    copies.append((manifest.folder / name).read_bytes())
                files[name] = next(data for data in copies if hashlib.sha256(data).hexdigest() == sha256)
            found.append((files, manifest.content.get("fitted_on")))
    in_table = dict(reversed(kept))
    return [*found, (in_table, None)] if in_table else found
