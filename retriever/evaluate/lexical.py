"""Measure whether similarity follows the meaning or the wording of sentences.

    retriever bench lexical --data DIR --encoder DIR

Li et al. (2020) found that BERT's similarity falls far more steeply with the edit distance of two sentences than human
scores do, and that the flow removes most of this difference. For each transform we report Spearman's correlation
between cosine and edit distance. We also report how much of the gap between the raw vectors' correlation and the gold
scores' correlation the transform closes. The paper does not say in which unit it counts edits. With words and
punctuation marks as units, our correlation between gold scores and edit distance is closer to the paper's than with
characters.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from retriever.errors import Misuse
from retriever.evaluate.data.published import published_rows
from retriever.evaluate.data.sts_sets import Pair, read_nli, read_sets
from retriever.evaluate.measures.correlation import edit_distance, pair_cosines, spearman
from retriever.evaluate.results import RAW, Row, Run, rows_of
from retriever.evaluate.runs import Experiment, Findings, Measured, Subject, Vectors, measure_all
from retriever.evaluate.sts import NLI_SAMPLE, PairScorer, fit_texts
from retriever.transforms import Transform

BENCH = "lexical"
DATASET = "stsb"
GOLD = "gold"
CORRELATION, SHARE = "edit_distance_spearman", "share_of_way_to_gold"


class LexicalScorer(PairScorer):
    def __init__(self, pairs: Sequence[Pair], unit: str) -> None:
        super().__init__(pairs, by_subset=False)
        self.distances = np.array([edit_distance(pair.first, pair.second, unit) for pair in pairs], np.float64)

    def __call__(self, transform: Transform, vectors: Vectors) -> Measured:
        similarity = pair_cosines(transform.apply(vectors), self.first, self.second)
        return Measured({CORRELATION: spearman(similarity, self.distances)})

    @property
    def gold_correlation(self) -> float:
        return spearman(self.gold, self.distances)


def run(
    experiment: Experiment,
    data: Path,
    *,
    split: str = "dev",
    unit: str = "word",
    fits: Sequence[str] = ("target",),
    nli_sample: int = NLI_SAMPLE,
) -> Findings:
    """Measure a split of STS-B. The raw vectors are always measured too."""
    reading = read_sets(data, [DATASET], scored=False)
    found = reading.sets[0]
    pairs = found.of(split)
    if len(pairs) < 2:
        known = ", ".join(dict.fromkeys(pair.split for pair in found.pairs))
        raise Misuse(f"STS-B has {len(pairs)} pairs in the split {split!r}; set --split to one of: {known}.")
    fits = list(dict.fromkeys(fits))
    scorer = LexicalScorer(pairs, unit)
    if math.isnan(scorer.gold_correlation):
        raise Misuse(
            f"in STS-B's split {split!r} all gold scores or all edit distances are equal, so there is no correlation."
        )
    texts = fit_texts(found, fits, read_nli(data, nli_sample) if "nli" in fits else [])
    if missing := [fit for fit in fits if fit not in texts]:
        raise Misuse(f"STS-B has no train split here, which --fit {', '.join(missing)} needs.")
    experiment.transforms = [RAW, *(spec for spec in experiment.transforms if spec != RAW)]
    subject = Subject(DATASET, split, scorer.texts, texts, f"{found.sha256} {unit}", scorer)
    gold = rows_of(Run(BENCH, DATASET, split, GOLD, "", "", "", None), {CORRELATION: scorer.gold_correlation})
    findings = measure_all(experiment, [subject])
    findings.problems += reading.problems
    findings.runs += [row.run for row in gold]
    experiment.results.put([*gold, *published_rows(BENCH), *share_rows(findings.rows, scorer.gold_correlation)])
    return findings


def share_rows(rows: Sequence[Row], gold: float) -> list[Row]:
    """Return how much of the gap between the raw vectors and the gold scores each transform closes, in percent."""
    ours = [row for row in rows if row.metric == CORRELATION and row.encoder != GOLD]
    raw = {(row.encoder, row.pooling, row.fit): row.value for row in ours if row.transform == RAW}
    shares = []
    for row in ours:
        start = raw.get((row.encoder, row.pooling, row.fit))
        if start is not None and start != gold:
            shares += rows_of(row.run, {SHARE: 100 * (row.value - start) / (gold - start)})
    return shares
