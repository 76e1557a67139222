"""Facts about a collection in words, for the terminal and for cards."""

from typing import Any

from retriever.terminal import one_line, plural


def describe_drift(drift: dict[str, Any]) -> str:
    """Describe how much the added passages differ from those the transform was fitted on."""
    if not drift.get("added"):
        return str(drift["verdict"])
    of = "" if drift["scored"] == drift["added"] else f" of {drift['scored']:,} measured"
    return (
        f"{drift['verdict']}; {plural(drift['added'], 'passage')} added since, {drift['share']:.1%}{of} beyond the "
        f"99th percentile of the fit, mean shift {drift['shift']:+.3f} bits per dimension"
    )


def notes(info: dict[str, Any]) -> list[str]:
    """Return notes about deviations from what was requested, by the fit of the transform or the build of the index."""
    return [*info["transform"].get("notes", []), *filter(None, [info["index"]["note"]])]


def describe_index(index: dict[str, Any]) -> str:
    """Describe an index in a line: its type, recall, size and speed."""
    measured = index["measured"] or {}
    if measured.get("exact") or index["factory"] == "Flat":
        parts = ["exact"]
    elif measured.get("recall") is None:
        parts = ["recall not measured"]
    else:
        parts = [
            "recall@{at} {recall:.3f} [{low:.3f}, {high:.3f}] against exact search".format(**measured)
            + f", {measured['queries']:,} queries ({measured['queries_were']})"
        ]
    if "bytes_per_vector" in measured:
        parts.append(f"{measured['bytes_per_vector']:,.0f} bytes per vector")
    if "cpu_ms" in measured:
        parts.append(f"{measured['cpu_ms']:.2g} ms per query")
    if measured.get("settings"):
        parts.append(", ".join(f"{name} {value:,}" for name, value in measured["settings"].items()))
    return f"{one_line(str(index['factory']))}: {'; '.join(parts)}"


def describe_transform(transform: dict[str, Any], counts: dict[str, int]) -> str:
    """Describe a transform in a line: its name, what it was fitted on (`counts`), and the training of a flow."""
    if "family" not in transform:
        return f"{transform['spec']} (not fitted yet)"
    name = transform["spec"] if transform["spec"].startswith(transform["family"]) else transform["family"]
    line = f"{name}, fitted on {plural(counts['passages'], 'passage')}"
    if counts.get("short_texts"):
        line += f" and {plural(counts['short_texts'], 'short text')} cut from them"
    if "held_out_bits_at_best" in transform:
        line += (
            f", {transform['parameters']:,} parameters, best at step {transform['best_step']} of "
            f"{transform['steps']}, held-out bits per dimension {transform['held_out_bits_at_start']:.3f} → "
            f"{transform['held_out_bits_at_best']:.3f}"
        )
    if transform["dimension_out"] != transform["dimension_in"]:
        line += f", {transform['dimension_in']} → {transform['dimension_out']} dimensions"
    return f"{line}, fingerprint {transform['fingerprint'][:12]}"
