"""The contents of a card, collected from a collection as values that JSON can represent."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from indexes.folder.collection import DATABASE, Collection
from indexes.folder.generation import GENERATIONS
from retriever.card.space import IsotropyReport, isotropy_report
from retriever.encoder.model_files import public_name
from retriever.search.facets import facets
from retriever.transforms import Transform

HASH_SHOWN = 12
FIELDS = 20
VALUES = 5


@dataclass(frozen=True)
class Card:
    """A collection on one page."""

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
    """None if there are too few vectors, or no transform yet."""
    drift: dict[str, Any]
    fields: list[dict[str, Any]]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def collect_card(collection: Collection, info: Mapping[str, Any], transform: Transform | None) -> Card:
    """Collect the card of a collection from its `info` and the published transform, if there is one."""
    index = info["index"]
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
        bytes=_bytes(info["bytes"]),
        encoder=_encoder(info["encoder"]),
        transform=_transform(info["transform"], info["fitted_on"]),
        choice=_choice(info["choice"], ("spec",)),
        pooling_choice=_choice(info["pooling_choice"], ("pooling", "transform")),
        precision_choice=_precision(info["precision_choice"]),
        index=_index(index),
        space=isotropy_report(collection, transform) if transform else None,
        drift=dict(info["drift"]),
        fields=_fields(collection),
    )


def _bytes(files: Mapping[str, int]) -> dict[str, int]:
    def of(beginning: str) -> int:
        return sum(size for name, size in files.items() if name.startswith(beginning))

    return {"all": sum(files.values()), "database": of(DATABASE), "index": of(f"{GENERATIONS}/")}


def _encoder(encoder: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": public_name(str(encoder["name"])),
        "pooling": encoder["pooling"],
        "precision": encoder.get("precision", "fp32"),
        "dimension": encoder["dimension"],
        "max_length": encoder["max_length"],
        **{part: str(encoder[part])[:HASH_SHOWN] for part in ("weights", "tokenizer", "config")},
    }


def _transform(transform: Mapping[str, Any], fitted_on: Mapping[str, int]) -> dict[str, Any]:
    if "family" not in transform:
        return {"spec": transform["spec"], "family": None, "notes": []}
    named = transform["spec"].startswith(transform["family"])
    known = ("held_out_bits_at_start", "held_out_bits_at_best", "parameters", "steps", "best_step")
    return {
        "spec": transform["spec"] if named else transform["family"],
        "family": transform["family"],
        "fitted_on": dict(fitted_on),
        "dimension_in": transform["dimension_in"],
        "dimension_out": transform["dimension_out"],
        "fingerprint": str(transform["fingerprint"])[:HASH_SHOWN],
        "notes": [str(note) for note in transform.get("notes", [])],
        **{key: transform[key] for key in known if key in transform},
    }


def _choice(choice: Mapping[str, Any] | None, names: Sequence[str]) -> dict[str, Any] | None:
    """Return the evidence for a choice by agreement with BM25, with the best candidates first."""
    if not choice:
        return None
    keys = (*names, "agreement", "gain", "low", "high")
    candidates = [{key: one[key] for key in keys} for one in choice["candidates"]]
    rival = choice.get("own", "none")
    return {
        **{key: choice[key] for key in ("chosen", "reason", "queries", "passages", "margin", "seconds")},
        "rival": rival,
        "candidates": sorted(candidates, key=lambda one: -one["agreement"]),
    }


def _precision(choice: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if not choice:
        return None
    keys = ("chosen", "reason", "overlap", "overlap_transformed", "correlation", "queries", "passages")
    return {key: choice.get(key) for key in keys}


def _index(index: Mapping[str, Any]) -> dict[str, Any]:
    measured = index["measured"] or {}
    exact = bool(measured.get("exact") or index["factory"] == "Flat")
    return {
        "type": index["type"],
        "factory": index["factory"],
        "generation": index["generation"],
        "vectors": index["vectors"],
        "exact": exact,
        "recall_at_10": 1.0 if exact else measured.get("recall"),
        "low": measured.get("low"),
        "high": measured.get("high"),
        "queries": measured.get("queries"),
        "queries_were": measured.get("queries_were"),
        "ms": measured.get("cpu_ms"),
        "bytes_per_vector": measured.get("bytes_per_vector"),
        "settings": dict(measured.get("settings") or {}),
        "note": index["note"],
        "created": index["created"],
    }


def _fields(collection: Collection) -> list[dict[str, Any]]:
    """Return the most frequent metadata fields with their most frequent values."""
    return [
        {
            "name": facet.name,
            "documents": facet.documents,
            "values": [{"value": value, "count": count} for value, count in facet.values[:VALUES]],
            "more": facet.more or len(facet.values) > VALUES,
        }
        for facet in facets(collection.store.db.conn)[:FIELDS]
    ]
