"""Read figures published by others, which are shown beside ours. They are in published.tsv.

The columns of published.tsv are those of `Row`. The figures come from three papers. Li et al., "On the Sentence
Embeddings from Pre-trained Language Models" (BERT-flow), EMNLP 2020: sts, lexical, qa and isotropy. Su et al.,
"Whitening Sentence Representations for Better Semantics and Faster Retrieval", 2021: whiten. Gao et al., "SimCSE",
EMNLP 2021, who ran the methods again: the averages of "all". All figures are of bert-base-uncased. The QNLI figures are
of a bert-base-uncased that was tuned on NLI, because none was published for an un-tuned one. The pooling first-last is
the mean of the first and the last block.
"""

import csv
from pathlib import Path
from typing import Any

from retriever.evaluate.results import Row


def published_rows(bench: str) -> list[Row]:
    """Return the published figures of a benchmark, e.g. "sts"."""
    with (Path(__file__).parent / "published.tsv").open(encoding="utf-8", newline="") as file:
        lines: list[dict[str, Any]] = [line for line in csv.DictReader(file, delimiter="\t") if line["bench"] == bench]
    return [Row(**{**line, "seed": None, "value": float(line["value"])}) for line in lines]
