"""Read the sentence similarity sets STS-B, SICK-R and STS12 to STS16. All files have the same layout.

A file is UTF-8 TSV with the header `split source score sentence1 sentence2`, one pair per line, without quoting. A row
that cannot be read is skipped with a note.
"""

import gzip
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from retriever.corpus.short_texts import short_texts
from retriever.errors import Misuse
from retriever.evaluate.data.tsv import Reading, read_files, read_records

COLUMNS = ("split", "source", "score", "sentence1", "sentence2")
NLI_FILE = "nli/nli_sentences.txt.gz"


@dataclass(frozen=True)
class Dataset:
    """A known set. `split` is the split that is scored. If it is None, all rows are scored."""

    title: str
    split: str | None
    hub: str
    mteb_task: str


DATASETS = {
    "stsb": Dataset("STS-B", "test", "mteb/stsbenchmark-sts", "STSBenchmark"),
    "sickr": Dataset("SICK-R", "test", "mteb/sickr-sts", "SICK-R"),
    "sts12": Dataset("STS12", None, "mteb/sts12-sts", "STS12"),
    "sts13": Dataset("STS13", None, "mteb/sts13-sts", "STS13"),
    "sts14": Dataset("STS14", None, "mteb/sts14-sts", "STS14"),
    "sts15": Dataset("STS15", None, "mteb/sts15-sts", "STS15"),
    "sts16": Dataset("STS16", None, "mteb/sts16-sts", "STS16"),
}


@dataclass(frozen=True)
class Pair:
    split: str
    source: str
    score: float
    first: str
    second: str


@dataclass(frozen=True)
class StsSet:
    name: str
    pairs: tuple[Pair, ...]
    sha256: str

    @cached_property
    def evaluated(self) -> tuple[Pair, ...]:
        """Return the pairs that are scored: the test split of STS-B and SICK-R, all pairs of the other sets."""
        return self.of(DATASETS[self.name].split)

    def of(self, split: str | None) -> tuple[Pair, ...]:
        return self.pairs if split is None else tuple(pair for pair in self.pairs if pair.split == split)

    def sentences(self, split: str | None = None) -> list[str]:
        """Return every different sentence of one split, or of all splits, in the order of the file."""
        return distinct(self.of(split))


def distinct(pairs: Sequence[Pair]) -> list[str]:
    return list(dict.fromkeys(sentence for pair in pairs for sentence in (pair.first, pair.second)))


def fit_texts(
    fits: Sequence[str], nli: Sequence[str], target: Sequence[str], train: Sequence[str] = ()
) -> dict[str, Sequence[str]]:
    """Return the text of each kind of fit that is possible for a set. Only STS-B and SICK-R have a train split."""
    texts = {"target": target, "target-train": train, "nli": nli}
    if "target-short" in fits:
        texts["target-short"] = list(dict.fromkeys([*target, *short_texts(target, len(target), seed=1)]))
    return {fit: texts[fit] for fit in fits if texts[fit]}


def read_sets(data: Path, names: Sequence[str] = tuple(DATASETS), *, scored: bool = True) -> Reading[StsSet]:
    """Read the named sets from the folder or its subfolder `sts`. If `scored`, each set needs two pairs to score."""
    folder = data / "sts" if (data / "sts").is_dir() else data
    files = {name: (DATASETS[name].title, folder / f"{name}.tsv") for name in names}
    return read_files(files, partial(_read, scored=scored), how_to_get(folder, names))


def _read(name: str, path: Path, scored: bool) -> tuple[StsSet | None, Sequence[str]]:
    pairs, problems, sha256 = read_records(path, COLUMNS, _pair)
    found, split = None if pairs is None else StsSet(name, pairs, sha256), DATASETS[name].split
    if found is None or not scored or len(found.evaluated) >= 2:
        return found, problems
    what = f"rows of the split {split!r}" if split else "rows"
    return None, [*problems, f"{path} has {len(found.evaluated)} {what}, too few to rank: the set is left out"]


def _pair(cells: list[str]) -> Pair:
    split, source, given, first, second = cells
    try:
        score = float(given)
    except ValueError:
        raise ValueError(f"the score {given[:40]!r} is not a number") from None
    if not math.isfinite(score):
        raise ValueError(f"the score {given[:40]!r} is not a finite number")
    if not first.strip() or not second.strip():
        raise ValueError("a sentence is empty")
    return Pair(split, source, score, first, second)


def how_to_get(folder: Path, names: Sequence[str]) -> str:
    """Return the message for a folder without any set."""
    wanted = ", ".join(f"{name}.tsv" for name in names)
    hubs = ", ".join(DATASETS[name].hub for name in names)
    where = f"{folder} holds none of" if folder.is_dir() else f"there is no folder {folder}; it should hold"
    return (
        f"{where} {wanted}. Each is UTF-8 TSV with the header {' '.join(COLUMNS)!r} separated by tabs, without "
        "quoting. `retriever bench download DIR` fetches them into DIR/sts. "
        f"To write the files yourself, get the pairs from Hugging Face with datasets.load_dataset(NAME) for {hubs}. "
        "The column split is train, dev or test. The column source may hold any text, e.g. the name of the subset."
    )


def read_nli(data: Path, count: int, seed: int = 0) -> list[str]:
    """Return a seeded sample of natural language inference sentences. The fit `nli` uses them."""
    if count < 1:
        raise Misuse(f"`nli_sample` must be at least 1, not {count}.")
    path = next((base / NLI_FILE for base in (data, data.parent) if (base / NLI_FILE).is_file()), None)
    if path is None:
        raise Misuse(
            f'`fits="nli"` needs {data / NLI_FILE}: a gzipped file with one sentence per line, e.g. the premises and '
            "hypotheses of SNLI and MultiNLI (Hugging Face: stanfordnlp/snli, nyu-mll/multi_nli)."
        )
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
            sentences = list(dict.fromkeys(line.rstrip("\n") for line in file if line.strip()))
    except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        advice = 'download it again, or leave out `fits="nli"`'
        raise Misuse(f"{path} cannot be read as gzipped UTF-8 text ({error}); {advice}.") from error
    if len(sentences) <= count:
        return sentences
    return [sentences[n] for n in sorted(np.random.default_rng(seed).choice(len(sentences), count, replace=False))]
