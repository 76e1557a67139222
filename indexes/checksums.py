"""Hashes and checksums that show whether a document, vector or setting was changed or damaged."""

import hashlib
import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def is_unicode(text: str) -> bool:
    """Return whether a text can be stored and tokenised.

    A text with lone surrogates cannot. Python makes lone surrogates from command-line bytes that are not valid UTF-8.
    """
    return not any("\ud800" <= character <= "\udfff" for character in text)


def metadata_text(metadata: dict[str, Any]) -> str:
    """Return metadata as the JSON text that is stored and hashed."""
    return json.dumps(metadata, sort_keys=True, ensure_ascii=False)


def content_hash(title: str, text: str, metadata: str) -> bytes:
    """Compute the SHA-256 of a document's title, text and metadata."""
    return _framed(part.encode("utf-8") for part in (title, text, metadata))


def document_seal(id_: str, content: bytes, source: str, passages: Iterable[tuple[int, int, bytes]]) -> bytes:
    """Compute the SHA-256 of a document's id, content hash, source and passages.

    A passage is given as its start, its end and the hash of its embedded text.
    """
    places = [b"%d %d " % (start, end) + text_hash for start, end, text_hash in passages]
    return _framed([id_.encode("utf-8"), content, source.encode("utf-8"), *places])


def file_sha256(path: Path) -> str:
    """Compute the SHA-256 of a file without holding it in memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def vector_checksum(text_hash: bytes, vector: bytes) -> int:
    """Compute one CRC-32 over the hash of a text and the stored vector of that text."""
    return zlib.crc32(vector, zlib.crc32(text_hash))


def setting_checksum(key: str, value: str) -> int:
    """Compute one CRC-32 over a setting's name and its JSON text."""
    return zlib.crc32(value.encode("utf-8", "surrogatepass"), zlib.crc32(key.encode("utf-8", "surrogatepass")))


def _framed(parts: Iterable[bytes]) -> bytes:
    """Hash parts, each preceded by its length, so that different splits of the same bytes have different hashes."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()
