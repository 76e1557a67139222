"""Figures published by others, shown beside ours.

Li et al., "On the Sentence Embeddings from Pre-trained Language Models" (BERT-flow), EMNLP 2020; Su et al., "Whitening
Sentence Representations for Better Semantics and Faster Retrieval", 2021; the averages of "all" as re-run by Gao et
al., "SimCSE", EMNLP 2021. All are of bert-base-uncased, on QNLI after tuning on NLI; first-last is the mean of the
first and the last block.
"""

from retriever.evaluate.results import AVERAGE, PUBLISHED, Row

BERT_BASE = f"bert-base {PUBLISHED}"
SETS = ("stsb", "sickr", "sts12", "sts13", "sts14", "sts15", "sts16", AVERAGE)

WMEAN = {
    ("mean", "none", ""): (47.29, 58.21, 49.07, 55.92, 54.75, 62.75, 65.19, 56.17),
    ("first-last", "none", ""): (59.04, 63.75, 57.84, 61.95, 62.48, 70.95, 69.81, 63.69),
    ("first-last", "bert-flow", "nli"): (58.56, 65.44, 59.54, 64.69, 64.66, 72.92, 71.84, 65.38),
    ("first-last", "bert-flow", "target"): (70.72, 63.11, 63.48, 72.14, 68.42, 73.77, 75.37, 69.57),
    ("first-last", "whiten", "nli"): (68.19, 63.60, 61.69, 65.70, 66.02, 75.11, 73.11, 67.63),
    ("first-last", "whiten", "target"): (71.34, 60.60, 63.62, 73.02, 69.23, 74.52, 72.15, 69.21),
    ("first-last", "whiten:dimension=256", "target"): (71.43, 62.23, 63.90, 73.75, 69.09, 74.59, 74.42, 69.92),
}
ALL_AVERAGES = {
    ("first-last", "none", ""): 60.73,
    ("first-last", "bert-flow", "nli"): 66.55,
    ("first-last", "bert-flow", "target"): 66.31,
    ("first-last", "whiten", "nli"): 66.28,
    ("first-last", "whiten", "target"): 64.26,
}
# Spearman of similarity with the edit distance of the pair, STS-B dev.
EDIT_DISTANCE_GOLD = -24.61
EDIT_DISTANCE = {"none": -50.49, "bert-flow": -28.01}
# Area under ROC on QNLI dev, of a bert-base tuned on NLI; for an un-tuned one none was published.
QNLI_ENCODER = f"bert-base tuned on NLI {PUBLISHED}"
QNLI = {("none", ""): 70.30, ("bert-flow", "nli"): 72.52, ("bert-flow", "target"): 76.17}
# bert-base's word embeddings by frequency rank: mean l2 norm, and mean l2 distance to the 3 nearest.
RANK_BINS = ((0, 100), (100, 500), (500, 5_000), (5_000, 10_000))
WORD_NORMS = (0.95, 1.04, 1.22, 1.45)
WORD_DISTANCES = (0.77, 0.93, 1.16, 1.30)


def _row(bench: str, dataset: str, split: str, line: tuple[str, str, str, str], metric: str, value: float) -> Row:
    return Row(bench, dataset, split, *line, None, metric, value)


def sts_rows() -> list[Row]:
    sets = [
        _row("sts", dataset, "test", (BERT_BASE, *line), "spearman_wmean", value)
        for line, values in WMEAN.items()
        for dataset, value in zip(SETS, values, strict=True)
    ]
    averages = ALL_AVERAGES.items()
    return sets + [_row("sts", AVERAGE, "test", (BERT_BASE, *line), "spearman_all", v) for line, v in averages]


def lexical_rows() -> list[Row]:
    correlation, start = "edit_distance_spearman", EDIT_DISTANCE["none"]
    rows = [_row("lexical", "stsb", "dev", (f"gold {PUBLISHED}", "", "", ""), correlation, EDIT_DISTANCE_GOLD)]
    for transform, value in EDIT_DISTANCE.items():
        line, share = (BERT_BASE, "", transform, ""), 100 * (value - start) / (EDIT_DISTANCE_GOLD - start)
        rows.append(_row("lexical", "stsb", "dev", line, correlation, value))
        rows.append(_row("lexical", "stsb", "dev", line, "share_of_way_to_gold", share))
    return rows


def qa_rows() -> list[Row]:
    lines = {(QNLI_ENCODER, "first-last", *line): value for line, value in QNLI.items()}
    return [_row("qa", "qnli", "dev", line, "auc", value) for line, value in lines.items()]


def word_rows() -> list[Row]:
    return [
        _row("isotropy", "vocabulary", f"rank {low}-{high}", (BERT_BASE, "word", "none", ""), metric, value)
        for (low, high), *values in zip(RANK_BINS, WORD_NORMS, WORD_DISTANCES, strict=True)
        for metric, value in zip(("mean_norm", "mean_3nn_distance"), values, strict=True)
    ]
