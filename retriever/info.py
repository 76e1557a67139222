"""Describe a collection as plain values for JSON, the command line and the card."""

from dataclasses import dataclass
from typing import Any

from indexes.protocol import AnyCollection
from retriever.encoder.model_files import public_name
from retriever.settings import trust
from retriever.transforms.drift import Drift, unknown


@dataclass(frozen=True)
class Summary:
    """The facts about a collection that its users may see. They contain no path of this machine."""

    documents: int
    passages: int
    encoder: str
    transform: str
    generation: int | None


def summary(collection: AnyCollection) -> Summary:
    store, generation = collection.store, collection.generation()
    return Summary(
        documents=store.count("documents"),
        passages=store.count("passages"),
        encoder=public_name(str(collection.encoder["name"])),
        transform=str(generation.manifest["transform"]["spec"] if generation else store.setting("transform")),
        generation=generation.number if generation else None,
    )


def describe(collection: AnyCollection, drift: Drift | None) -> dict[str, Any]:
    """Return the counts, the settings, facts about the index, and the sizes. `drift` is None if it was not measured."""
    store, generation = collection.store, collection.generation()
    manifest: dict[str, Any] = generation.manifest if generation else {}
    transform = manifest.get("transform", {"spec": store.setting("transform")})
    newer, unused = collection.backlog()
    return {
        "folder": collection.name,
        "documents": store.count("documents"),
        "passages": store.count("passages"),
        "vectors": store.count("vectors"),
        "dimension": collection.dimension,
        "encoder": collection.encoder,
        "transform": transform,
        "fitted_on": manifest.get("fitted_on", {}),
        "choice": store.setting("choice"),
        "pooling_choice": store.setting("pooling_choice"),
        "precision_choice": store.setting("precision_choice"),
        "hybrid_trust": trust(store.setting("choice"), transform.get("family", "none")),
        "drift": drift.to_json() if drift else unknown(generation),
        "index": {
            "type": store.setting("index_type"),
            "factory": manifest.get("factory"),
            "recall": store.setting("recall"),
            "memory": store.setting("memory"),
            "note": manifest.get("index_note", ""),
            "measured": generation.measured if generation else None,
            "generation": generation.number if generation else None,
            "vectors": generation.count if generation else 0,
            "not_yet_in_it": newer,
            "no_longer_used": unused,
            "created": manifest.get("created"),
            "made_by": manifest.get("made_by"),
        },
        "quarantined": store.count("quarantine"),
        "bytes": collection.sizes(),
        "created": store.setting("created"),
        "made_by": store.setting("made_by"),
    }
