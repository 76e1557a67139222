"""Small hand-made similarity sets, in the layout that the benchmarks read."""

from pathlib import Path

import numpy as np

HEADER = "split\tsource\tscore\tsentence1\tsentence2\n"
NAMES = ("stsb", "sickr", "sts12", "sts13", "sts14", "sts15", "sts16")
WORDS = (
    "the a cat dog bird horse river mountain child woman man plays eats sees paints reads runs slowly quickly red old "
    "young small large song book meal letter garden house road under over near with without never always today"
).split()


def sentences(count: int, seed: int) -> list[str]:
    """Random sentences of 4 to 9 words, all different."""
    rng = np.random.default_rng(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        found[" ".join(rng.choice(WORDS, rng.integers(4, 10))) + "."] = None
    return list(found)


def write_set(folder: Path, name: str, pairs: int = 30) -> Path:
    """A set with a train, a dev and a test split (STS-B, SICK-R) or with three subsets of unequal size (the others)."""
    rng = np.random.default_rng(NAMES.index(name))
    lines = sentences(2 * pairs, NAMES.index(name) + 10)
    rows = []
    for number in range(pairs):
        split = ("train", "dev", "test")[number % 3] if name in ("stsb", "sickr") else "test"
        subset = "large" if number < pairs // 2 else "middle" if number < pairs * 5 // 6 else "small"
        score = f"{rng.uniform(0, 5):.2f}"
        rows.append("\t".join((split, subset, score, lines[2 * number], lines[2 * number + 1])) + "\n")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.tsv"
    path.write_text(HEADER + "".join(rows), encoding="utf-8")
    return path


def write_sets(folder: Path, pairs: int = 30) -> Path:
    """All seven."""
    for name in NAMES:
        write_set(folder, name, pairs)
    return folder
