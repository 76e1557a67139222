"""Figures published by others, shown beside ours; they are in published.tsv, in the columns of `Row`.

Li et al., "On the Sentence Embeddings from Pre-trained Language Models" (BERT-flow), EMNLP 2020: sts, lexical, qa and
isotropy; Su et al., "Whitening Sentence Representations for Better Semantics and Faster Retrieval", 2021: whiten; the
averages of "all" as re-run by Gao et al., "SimCSE", EMNLP 2021. All are of bert-base-uncased, on QNLI after tuning on
NLI, because for an un-tuned one none was published; first-last is the mean of the first and the last block.
"""

import csv
from pathlib import Path
from typing import Any

from retriever.evaluate.results import Row


def published_rows(bench: str) -> list[Row]:
    """The published figures of a benchmark, e.g. "sts"."""
    with (Path(__file__).parent / "published.tsv").open(encoding="utf-8", newline="") as file:
        lines = [line for line in csv.DictReader(file, delimiter="\t") if line["bench"] == bench]
    rows: list[dict[str, Any]] = [{**line, "seed": None, "value": float(line["value"])} for line in lines]
    return [Row(**row) for row in rows]
