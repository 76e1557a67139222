"""The contents of a card, collected from a collection. All values can be written as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from indexes.folder.collection import DATABASE, Collection
from indexes.folder.generation import GENERATIONS
from retriever.card.space import IsotropyReport, isotropy_report
from retriever.encoder.model_files import public_name
from retriever.info import is_exact, transform_name
from retriever.search.facets import facets
from retriever.transforms import Transform

HASH_SHOWN = 12
HASHED = ("weights", "tokenizer", "config")
PRECISION = ("chosen", "reason", "overlap", "overlap_transformed", "correlation", "queries", "passages")
FIELDS = 20
VALUES = 5


@dataclass(frozen=True)
class Card:
    """The facts about a collection that a card shows."""

    name: str
    made: str
    """When the card was made."""
    created: str
    made_by: str
    counts: dict[str, int]
    bytes: dict[str, int]
    encoder: dict[str, Any]
    transform: dict[str, Any]
    choice: dict[str, Any] | None
    """The evidence for the automatic choice of the transform; None if the user chose it."""
    pooling_choice: dict[str, Any] | None
    precision_choice: dict[str, Any] | None
    index: dict[str, Any]
    space: IsotropyReport | None
    """The isotropy of the vectors; None if there are too few vectors, or no transform yet."""
    drift: dict[str, Any]
    fields: list[dict[str, Any]]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def collect_card(collection: Collection, info: Mapping[str, Any], transform: Transform | None) -> Card:
    """Collect the card of a collection from its `info` and its published transform (None if there is none)."""
    index, precision = info["index"], info["precision_choice"]
    return Card(
        name=Path(collection.folder).resolve().name,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        created=str(info["created"]),
        made_by=str(info["made_by"]),
        counts={
            "documents": info["documents"],
            "passages": info["passages"],
            "vectors": info["vectors"],
            "sharing_a_vector": max(0, info["passages"] - (info["vectors"] - index["no_longer_used"])),
            "not_yet_in_the_index": index["not_yet_in_it"],
            "no_longer_used": index["no_longer_used"],
            "quarantined": info["quarantined"],
        },
        bytes={
            "all": sum(info["bytes"].values()),
            "database": _bytes(info["bytes"], DATABASE),
            "index": _bytes(info["bytes"], f"{GENERATIONS}/"),
        },
        encoder=_encoder(info["encoder"]),
        transform=_transform(info["transform"], info["fitted_on"]),
        choice=_choice(info["choice"], ("spec",)),
        pooling_choice=_choice(info["pooling_choice"], ("pooling", "transform")),
        precision_choice=precision and {key: precision.get(key) for key in PRECISION},
        index=_index(index),
        space=isotropy_report(collection, transform) if transform else None,
        drift=dict(info["drift"]),
        fields=_fields(collection),
    )


def _bytes(files: Mapping[str, int], beginning: str) -> int:
    return sum(size for name, size in files.items() if name.startswith(beginning))


def _encoder(encoder: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": public_name(str(encoder["name"])),
        "pooling": encoder["pooling"],
        "precision": encoder.get("precision", "fp32"),
        "dimension": encoder["dimension"],
        "max_length": encoder["max_length"],
        "query_prompt": encoder["query_prompt"],
        "document_prompt": encoder["document_prompt"],
        **{part: str(encoder[part])[:HASH_SHOWN] for part in HASHED},
    }


def _transform(transform: Mapping[str, Any], fitted_on: Mapping[str, int]) -> dict[str, Any]:
    if "family" not in transform:
        return {"spec": transform["spec"], "family": None, "notes": []}
    known = ("held_out_bits_at_start", "held_out_bits_at_best", "parameters", "steps", "best_step")
    return {
        "spec": transform_name(transform),
        "family": transform["family"],
        "fitted_on": dict(fitted_on),
        "dimension_in": transform["dimension_in"],
        "dimension_out": transform["dimension_out"],
        "fingerprint": str(transform["fingerprint"])[:HASH_SHOWN],
        "notes": [str(note) for note in transform.get("notes", [])],
        **{key: transform[key] for key in known if key in transform},
    }


def _choice(choice: Mapping[str, Any] | None, names: Sequence[str]) -> dict[str, Any] | None:
    """Return the evidence for a choice that was made by agreement with BM25. The best candidates come first."""
    if not choice:
        return None
    keys = (*names, "agreement", "gain", "low", "high")
    candidates = [{key: one[key] for key in keys} for one in choice["candidates"]]
    return {
        **{key: choice[key] for key in ("chosen", "reason", "queries", "passages", "seconds", "verdict")},
        "rival": choice.get("own", "none"),
        "candidates": sorted(candidates, key=lambda one: -one["agreement"]),
    }


def _index(index: Mapping[str, Any]) -> dict[str, Any]:
    measured, exact = index["measured"] or {}, is_exact(index)
    return {
        **{key: index[key] for key in ("type", "factory", "generation", "vectors")},
        "exact": exact,
        "recall_at_10": 1.0 if exact else measured.get("recall"),
        **{key: measured.get(key) for key in ("low", "high", "queries", "queries_were")},
        "ms": measured.get("cpu_ms"),
        "bytes_per_vector": measured.get("bytes_per_vector"),
        "settings": dict(measured.get("settings") or {}),
        "note": index["note"],
        "created": index["created"],
    }


def _fields(collection: Collection) -> list[dict[str, Any]]:
    """Return the most frequent metadata fields with their most frequent values."""
    found = facets(collection.store)[:FIELDS]
    return [
        asdict(replace(one, values=one.values[:VALUES], more=one.more or len(one.values) > VALUES)) for one in found
    ]
