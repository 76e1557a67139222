"""Describe a collection: as plain values for JSON, and in sentences for the command line and the card."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from indexes.protocol import AnyCollection
from retriever.encoder.functions import is_brought
from retriever.encoder.model_files import public_name
from retriever.search.fusion import weight_of_meaning
from retriever.terminal import one_line, plural
from retriever.transforms.novelty import Drift, unknown


@dataclass(frozen=True)
class Summary:
    """The facts about a collection that its users may see. They contain no path of this machine."""

    title: str | None
    description: str | None
    documents: int
    passages: int
    encoder: str
    transform: str
    generation: int | None


def summary(collection: AnyCollection) -> Summary:
    store, generation = collection.store, collection.generation()
    return Summary(
        title=store.setting("title"),
        description=store.setting("description"),
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
        "title": store.setting("title"),
        "description": store.setting("description"),
        "documents": store.count("documents"),
        "passages": store.count("passages"),
        "vectors": store.count("vectors"),
        "dimension": collection.dimension,
        "encoder": collection.encoder,
        "transform": transform,
        "fitted_on": manifest.get("fitted_on", {}),
        "choice": store.setting("choice"),
        "pooling_choice": store.setting("pooling_choice"),
        "pieces_per_word": store.setting("pieces_per_word"),
        "precision_choice": store.setting("precision_choice"),
        "learning": store.setting("learning"),
        "weight_of_meaning": weight_of_meaning(collection),
        "language": store.setting("language"),
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


# ---- sentences -------------------------------------------------------------------------------------------


def describe_drift(drift: dict[str, Any]) -> str:
    """Describe how much passages that were added later differ from those that the transform was fitted on."""
    if not drift.get("added"):
        return str(drift["verdict"])
    of = "them" if drift["scored"] == drift["added"] else f"{drift['scored']:,} measured ones"
    return (
        f"{drift['verdict']}; {plural(drift['added'], 'passage')} added since the fit; {drift['share']:.1%} of {of} "
        f"are more unusual than 99 % of the fitted text; mean shift {drift['shift']:+.3f} bits per dimension"
    )


def describe_encoder(encoder: Mapping[str, Any]) -> str:
    """Describe an encoder in one line. An encoder that is not a model has no pooling, precision or weights."""
    facts = f"{encoder['name']}, {encoder['dimension']} dimensions"
    if is_brought(encoder):
        return f"none; the documents brought vectors of {encoder['dimension']} dimensions"
    if not encoder["weights"]:
        return f"{facts}, at most {encoder['max_length']} tokens"
    return (
        f"{facts}, {encoder['pooling']} pooling, at most {encoder['max_length']} tokens, "
        f"{encoder.get('precision', 'fp32')}, weights {encoder['weights'][:12]}"
    )


def describe_prompts(encoder: Mapping[str, Any]) -> str:
    """Describe the prompts of an encoder. The text is empty if it has none."""
    query, document = encoder["query_prompt"], encoder["document_prompt"]
    return f"{query!r} before queries, {document!r} before passages" if query or document else ""


def notes(info: dict[str, Any]) -> list[str]:
    """Return the notes of the transform and the index. They report where the result differs from the request."""
    return [*info["transform"].get("notes", []), *filter(None, [info["index"]["note"]])]


def is_exact(index: Mapping[str, Any]) -> bool:
    return bool((index["measured"] or {}).get("exact") or index["factory"] == "Flat")


def describe_recall(exact: bool, recall: float | None, measured: Mapping[str, Any]) -> str:
    """Describe recall@10 with its 95 % interval, and the queries that measured it."""
    if exact:
        return "exact"
    if recall is None:
        return "recall not measured"
    interval = "{0:.3f} [{low:.3f}, {high:.3f}]".format(recall, **measured)
    queries = "1 query" if measured["queries"] == 1 else f"{measured['queries']:,} queries"
    return f"recall@10 {interval} against exact search, {queries} ({measured['queries_were']})"


def describe_index(index: dict[str, Any]) -> str:
    """Describe an index in one line: its factory string, recall, size, speed and settings."""
    measured = index["measured"] or {}
    parts = [describe_recall(is_exact(index), measured.get("recall"), measured)]
    if "bytes_per_vector" in measured:
        parts.append(f"{measured['bytes_per_vector']:,.0f} bytes per vector")
    if "cpu_ms" in measured:
        parts.append(f"{measured['cpu_ms']:.2g} ms per query")
    if measured.get("settings"):
        parts.append(", ".join(f"{name} {value:,}" for name, value in measured["settings"].items()))
    return f"{one_line(str(index['factory']))}: {'; '.join(parts)}"


def transform_name(transform: Mapping[str, Any]) -> str:
    """Return the spec of a transform. For a spec such as `auto`, return the family that was chosen."""
    return str(transform["spec"] if transform["spec"].startswith(transform["family"]) else transform["family"])


def describe_fit(counts: Mapping[str, int]) -> str:
    """Describe the numbers of passages and short texts that a transform was fitted on."""
    short = f" and {plural(counts['short_texts'], 'short text')} cut from them" if counts.get("short_texts") else ""
    return f"{plural(counts['passages'], 'passage')}{short}"


def describe_transform(transform: dict[str, Any], counts: dict[str, int]) -> str:
    """Describe a transform in one line: its name, the texts it was fitted on (`counts`), and the training of a flow."""
    if "family" not in transform:
        return f"{transform['spec']} (not fitted yet)"
    line = f"{transform_name(transform)}, fitted on {describe_fit(counts)}"
    if "held_out_bits_at_best" in transform:
        line += (
            f", {transform['parameters']:,} parameters, best at step {transform['best_step']} of "
            f"{transform['steps']}, held-out bits per dimension {transform['held_out_bits_at_start']:.3f} → "
            f"{transform['held_out_bits_at_best']:.3f}"
        )
    if transform["dimension_out"] != transform["dimension_in"]:
        line += f", {transform['dimension_in']} → {transform['dimension_out']} dimensions"
    return f"{line}, fingerprint {transform['fingerprint'][:12]}"
