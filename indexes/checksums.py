"""Hashes and checksums that show whether a document, vector or setting was changed or damaged."""

import hashlib
import json
import re
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")


def is_unicode(text: str) -> bool:
    """Return whether a text can be stored and tokenised.

    A text with lone surrogates cannot. Python makes lone surrogates from command-line bytes that are not valid UTF-8.
    """
    return text.isascii() or not _SURROGATE.search(text)


_length = struct.Struct("<Q").pack
_encode_json = json.JSONEncoder(sort_keys=True, ensure_ascii=False).encode


def metadata_text(metadata: dict[str, Any]) -> str:
    """Return metadata as the JSON text that is stored and hashed."""
    return _encode_json(metadata) if metadata else "{}"


def content_hash(title: str, text: str, metadata: str) -> bytes:
    """Compute the SHA-256 of a document's title, text and metadata."""
    return _framed([title.encode(), text.encode(), metadata.encode()])


def document_seal(id_: str, content: bytes, source: str, passages: Iterable[tuple[int, int, bytes]]) -> bytes:
    """Compute the SHA-256 of a document's id, content hash, source and passages.

    A passage is given as its start, its end and the hash of its embedded text.
    """
    places = [b"%d %d " % (start, end) + text_hash for start, end, text_hash in passages]
    return _framed([id_.encode(), content, source.encode(), *places])


def file_sha256(path: Path) -> str:
    """Compute the SHA-256 of a file without holding it in memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def vector_checksum(text_hash: bytes, vector: bytes) -> int:
    """Compute one CRC-32 over the hash of a text and the stored vector of that text."""
    return zlib.crc32(text_hash + vector)


def setting_checksum(key: str, value: str) -> int:
    """Compute one CRC-32 over a setting's name and its JSON text."""
    return zlib.crc32(value.encode("utf-8", "surrogatepass"), zlib.crc32(key.encode("utf-8", "surrogatepass")))


def _framed(parts: Iterable[bytes]) -> bytes:
    """Hash parts, each preceded by its length, so that different splits of the same bytes have different hashes."""
    return hashlib.sha256(b"".join([piece for part in parts for piece in (_length(len(part)), part)])).digest()
