"""Descriptions of facts about a collection, for the terminal and for cards."""

from collections.abc import Mapping
from typing import Any

from retriever.terminal import one_line, plural


def describe_drift(drift: dict[str, Any]) -> str:
    """Describe how much passages that were added later differ from those that the transform was fitted on."""
    if not drift.get("added"):
        return str(drift["verdict"])
    of = "" if drift["scored"] == drift["added"] else f" of {drift['scored']:,} measured"
    return (
        f"{drift['verdict']}; {plural(drift['added'], 'passage')} added since, {drift['share']:.1%}{of} beyond the "
        f"99th percentile of the fit, mean shift {drift['shift']:+.3f} bits per dimension"
    )


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
    return f"recall@10 {interval} against exact search, {measured['queries']:,} queries ({measured['queries_were']})"


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
