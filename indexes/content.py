"""What a document says, as the one hash that tells whether it changed or was damaged."""

import hashlib
import json
from typing import Any


def metadata_text(metadata: dict[str, Any]) -> str:
    """Metadata as the one JSON text that is stored and hashed."""
    return json.dumps(metadata, sort_keys=True, ensure_ascii=False)


def content_hash(title: str, text: str, metadata: str) -> bytes:
    """SHA-256 over what a document says; each part is framed by its length, so no two splits collide."""
    digest = hashlib.sha256()
    for part in (title, text, metadata):
        data = part.encode("utf-8")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.digest()
