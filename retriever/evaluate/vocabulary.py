"""Measure whether frequent words are dense near the origin and rare words sparse and far from it.

Li et al. (2020) use this to explain why BERT's cosine is misleading. For the word embeddings of any BERT we measure the
mean l2 norm and the mean l2 distance to the 3 nearest neighbours, by frequency rank. The ranks come from a table
`bert_vocab/vocab_wordfreq.tsv` (id, token, is_word, wordfreq_rank, zipf). Tokens are matched by their text. Another
vocabulary can therefore be measured if it has most of the same words.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexes.checksums import file_sha256
from retriever.evaluate.models.encoders import TextEncoder
from retriever.evaluate.results import Row, Run
from retriever.evaluate.runs import Experiment

BENCH = "isotropy"
DATASET = "vocabulary"
TABLE = "bert_vocab/vocab_wordfreq.tsv"
COLUMNS = 5
RANK_BINS = ((0, 100), (100, 500), (500, 5_000), (5_000, 10_000))
NEIGHBOURS = 3
CHUNK = 512
FEWEST_KNOWN = 0.8
"""The share of the table's 10,000 most frequent words that a vocabulary must have."""


def measure_words(experiment: Experiment, data: Path) -> tuple[list[Row], list[str]]:
    """Return rows for each encoder of the experiment, and notes about encoders that cannot be measured."""
    path = next((base / TABLE for base in (data, data.parent) if (base / TABLE).is_file()), None)
    if path is None:
        return [], [f"{data / TABLE} does not exist: word embeddings are not measured by frequency"]
    ranks, problems = read_ranks(path)
    runs: list[Run] = []
    by_label = {encoder.label: encoder for encoder in experiment.encoders}
    for number, encoder in enumerate(by_label.values()):
        experiment.progress("word embeddings", number, len(by_label))
        inputs = {"encoder": encoder.revision, "data": file_sha256(path)}
        own = [
            Run(BENCH, DATASET, f"rank {low}-{high}", encoder.label, "word", "none", "", 0) for low, high in RANK_BINS
        ]
        if not all(experiment.results.known(run, inputs) for run in own):
            found = ranked_embeddings(encoder, ranks)
            if isinstance(found, str):
                problems.append(f"{encoder.label}: {found}; its word embeddings are not measured by frequency")
                continue
            for run, bin_ in zip(own, RANK_BINS, strict=True):
                experiment.results.add(run, bin_figures(*found, bin_), {"inputs": inputs})
        runs += own
    return experiment.results.rows(runs), problems


def read_ranks(path: Path) -> tuple[dict[str, int], list[str]]:
    """Return the frequency rank of every token that has one, counted from 1, and problems."""
    ranks, problems = {}, []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").split("\n")[1:], start=2):
        cells = line.split("\t")
        if len(cells) == COLUMNS and (not cells[3] or cells[3].isdigit()):
            if cells[3]:
                ranks[cells[1]] = int(cells[3])
        elif line:
            problems.append(
                f"{path}:{number}: the row is skipped, because it does not have {COLUMNS} columns or its rank is not a "
                "whole number"
            )
    return ranks, problems


def ranked_embeddings(
    encoder: TextEncoder, ranks: dict[str, int]
) -> tuple[NDArray[np.float32], NDArray[np.int64]] | str:
    """Return the embeddings of the ranked words and their ranks, or a note why there are none."""
    folder = encoder.encoder.files.folder
    vocabulary = read_vocabulary(folder)
    frequent = {token for token, rank in ranks.items() if rank <= RANK_BINS[-1][1]}
    known = len(frequent & vocabulary.keys())
    if not frequent or known < FEWEST_KNOWN * len(frequent):
        return f"its vocabulary is not BERT's (it holds {known:,} of the {len(frequent):,} most frequent words)"
    matrix = read_embeddings(folder, len(vocabulary))
    if matrix is None:
        return "its weights have no word_embeddings table that numpy can read"
    tokens = [(ids, ranks[token]) for token, ids in vocabulary.items() if token in ranks and ids < len(matrix)]
    return matrix[[ids for ids, _ in tokens]].astype(np.float32), np.array([rank for _, rank in tokens], np.int64)


def read_vocabulary(folder: Path) -> dict[str, int]:
    """Return the id of each token. Return an empty dict if the folder has no vocabulary file."""
    from tokenizers import Tokenizer

    if (folder / "tokenizer.json").is_file():
        return dict(Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab())
    if (folder / "vocab.txt").is_file():
        return {token: n for n, token in enumerate((folder / "vocab.txt").read_text(encoding="utf-8").split("\n"))}
    return {}


def read_embeddings(folder: Path, least_rows: int) -> NDArray[np.float32] | None:
    """Return the table of word embeddings from the model's weights, or None if it is unreadable or too small."""
    from safetensors import safe_open

    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="np") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - safe_open does not return a mapping
                if name.endswith("word_embeddings.weight"):
                    try:
                        table: NDArray[np.float32] = tensors.get_tensor(name)
                    except TypeError:  # bfloat16
                        return None
                    return table if len(table) >= least_rows else None
    return None


def bin_figures(vectors: NDArray[np.float32], ranks: NDArray[np.int64], bin_: Sequence[int]) -> dict[str, float]:
    """Return the mean norm and the mean distance to the nearest ranked words, for ranks from low + 1 to high."""
    low, high = bin_
    inside = np.flatnonzero((ranks > low) & (ranks <= high))
    if not len(inside):
        return {}
    return {
        "mean_norm": float(np.linalg.norm(vectors[inside], axis=1).mean()),
        f"mean_{NEIGHBOURS}nn_distance": float(neighbour_distances(vectors, inside).mean()),
    }


def neighbour_distances(vectors: NDArray[np.float32], which: NDArray[np.int64]) -> NDArray[np.float64]:
    """For each of these rows, return the mean l2 distance to its nearest other rows."""
    squares = np.einsum("ij,ij->i", vectors, vectors)
    out = np.empty(len(which))
    for start in range(0, len(which), CHUNK):
        rows = which[start : start + CHUNK]
        distances = squares[rows, None] + squares[None, :] - 2 * vectors[rows] @ vectors.T
        distances[np.arange(len(rows)), rows] = np.inf
        nearest = np.partition(distances, NEIGHBOURS - 1, axis=1)[:, :NEIGHBOURS]
        out[start : start + CHUNK] = np.sqrt(np.maximum(nearest, 0)).mean(axis=1)
    return out
