"""Download the benchmark sets from the Hugging Face hub into the layout of our benchmarks.

A set that is complete is not downloaded again, so an interrupted download continues with the next set. The numbers of
rows are compared with the known numbers.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from retriever.errors import Misuse, RetrieverError, first_line
from retriever.evaluate.data.conversion import KNOWN, WRITERS, Counts, Fetch, Record, Source

PROBE_SECONDS = 15


@dataclass(frozen=True)
class Wanted:
    """A set: its files, its known numbers of rows, its revision, and what the hub's copy lacks."""

    files: Sequence[str]
    known: Mapping[str, int]
    revision: str | None = None
    lost: str = ""


SETS = {name: Wanted(**KNOWN[name]) for name in WRITERS}
BY_HAND = {
    "cranfield": "no reliable copy of Cranfield is known on the hub. It is at "
    "http://ir.dcs.gla.ac.uk/resources/test_collections/cran/ and in the package ir_datasets; write it as a BEIR "
    "folder cranfield/: corpus.jsonl with _id, title and text (1,400 documents), queries.jsonl with _id and text, the "
    "225 queries numbered from 1 in the order of the file, and qrels/test.tsv with query-id, corpus-id and score "
    "(1,837 judgements; its codes 1 to 4 become the scores 4 to 1, -1 becomes 0)."
}


@dataclass(frozen=True)
class Outcome:
    """The number of rows of each kind, and notes. There are no numbers if the set existed already."""

    name: str
    counts: Counts
    notes: tuple[str, ...] = ()


class Unreachable(RetrieverError):
    """The hub cannot be reached."""


def download(folder: Path, names: Sequence[str] = (), fetch: Fetch | None = None) -> Iterator[Outcome]:
    """Download each missing set in turn. Failures of single sets are raised at the end, an unreachable hub at once."""
    if folder.exists() and not folder.is_dir():
        raise Misuse(f"{folder} is a file; give a folder for the sets.")
    rows_of, failures = fetch or from_hub, []
    names = list(dict.fromkeys(names or (*SETS, *BY_HAND)))
    for name in names:
        files = SETS[name].files if name in SETS else [f"{name}/corpus.jsonl"]
        there = all((folder / file).is_file() for file in files)
        if there or name in BY_HAND:
            yield Outcome(name, {}, () if there else (BY_HAND[name],))
            continue
        try:
            counts = _write(name, rows_of, folder)
        except Unreachable as error:
            raise Unreachable(f"{error} {by_hand(folder, names)}") from error
        except ValueError as error:
            failures.append(f"{name}: {error}")
            continue
        yield Outcome(name, counts, tuple(_notes(SETS[name], counts)))
    if failures:
        lines = ["some sets could not be downloaded; the others are complete.", *failures, by_hand(folder, names)]
        raise RetrieverError("\n".join(lines))


def _write(name: str, fetch: Fetch, folder: Path) -> Counts:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as aside:
        counts = WRITERS[name](fetch, Path(aside))
        for file in SETS[name].files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            Path(aside, file).replace(folder / file)
    return counts


def _notes(wanted: Wanted, counts: Counts) -> Iterator[str]:
    for kind, known in wanted.known.items():
        if (found := counts.get(kind, 0)) != known:
            yield f"{found:,} {kind} where {known:,} are expected: figures on this copy cannot be compared"
    if wanted.lost:
        yield wanted.lost


def from_hub(source: Source) -> Iterable[Record]:
    """Return the rows of a source, read with `datasets`. Raise ValueError if the hub does not have the source."""
    from datasets import load_dataset
    from huggingface_hub import constants

    if not constants.HF_HUB_OFFLINE:
        probe(source.hub)
    try:
        found: Iterable[Record] = load_dataset(source.hub, source.config, split=source.split, revision=source.revision)
    except Exception as error:  # the library raises many different classes
        if constants.HF_HUB_OFFLINE:
            raise ValueError(f"{source.hub} is not in the local cache, and HF_HUB_OFFLINE is set") from error
        raise ValueError(f"{source.hub} cannot be downloaded ({type(error).__name__}: {first_line(error)})") from error
    return found


def probe(hub: str) -> None:
    """Ask the hub for the data set once. Without this check, `datasets` would retry for half a minute."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        HfApi().dataset_info(hub, timeout=PROBE_SECONDS)
    except HfHubHTTPError as error:
        raise ValueError(f"{hub} cannot be downloaded ({first_line(error)})") from error
    except Exception as error:  # connection errors have many different classes
        why = f"the Hugging Face hub cannot be reached for {hub} ({type(error).__name__}: {first_line(error)})"
        advice = "Run the same command again to continue. Behind a proxy or mirror, set HTTPS_PROXY or HF_ENDPOINT."
        raise Unreachable(f"{why}. {advice}") from error


def by_hand(folder: Path, names: Sequence[str]) -> str:
    """Return a sentence that lists the files that the user can put into the folder by hand."""
    files = [file for name in names if name in SETS for file in SETS[name].files]
    missing = ", ".join(file for file in files if not (folder / file).is_file())
    return f"Alternatively, put these files into {folder} yourself: {missing}. docs/evaluation.md describes them."
