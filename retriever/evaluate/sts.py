"""Measure how well cosine agrees with human scores on STS-B, SICK-R and STS12 to STS16, and with their wording.

    retriever bench sts --data DIR --encoder DIR --pooling first-last --transform whiten --out results/

For STS-B and SICK-R the test split is scored, for the other sets all pairs. A transform is fitted on the text that
`fit` names, never on a score. `target` means all sentences of the set. `target-short` adds a phrase cut from each
sentence, as for a collection. `target-train` means the train split. `nli` means sentences of natural language
inference, and one fit serves all sets.

    retriever bench lexical --data DIR --encoder DIR

Li et al. (2020) found that BERT's similarity falls far more steeply with the edit distance of two sentences than human
scores do, and that the flow removes most of this difference. For each transform we report Spearman's correlation
between cosine and edit distance, and how much of the gap between the raw vectors and the gold scores it closes. The
paper does not name its unit of edits. Words and punctuation marks come closer to its figure than characters.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from retriever.errors import Misuse
from retriever.evaluate.data.published import published_rows
from retriever.evaluate.data.sts_sets import DATASETS, Pair, distinct, fit_texts, read_nli, read_sets
from retriever.evaluate.measures.similarity import edit_distance, pair_cosines, pearson, spearman, spearman_wmean
from retriever.evaluate.results import RAW, Row, Run, average_rows, rows_of
from retriever.evaluate.runs import Experiment, Findings, Measured, Subject, Vectors, measure_all
from retriever.transforms import Transform

BENCH, LEXICAL = "sts", "lexical"
ALL, WMEAN, PEARSON = "spearman_all", "spearman_wmean", "pearson_all"
SPLIT = "test"
LEXICAL_SET = "stsb"
GOLD = "gold"
CORRELATION, SHARE = "edit_distance_spearman", "share_of_way_to_gold"


class PairScorer:
    def __init__(self, pairs: Sequence[Pair], *, by_subset: bool) -> None:
        self.texts = distinct(pairs)
        place = {text: number for number, text in enumerate(self.texts)}
        self.first = [place[pair.first] for pair in pairs]
        self.second = [place[pair.second] for pair in pairs]
        self.gold = np.array([pair.score for pair in pairs])
        self.subsets = [pair.source if by_subset else "" for pair in pairs]

    def __call__(self, transform: Transform, vectors: Vectors) -> Measured:
        similarity = pair_cosines(transform.apply(vectors), self.first, self.second)
        values = {ALL: spearman(similarity, self.gold), PEARSON: pearson(similarity, self.gold)}
        return Measured({**values, WMEAN: spearman_wmean(similarity, self.gold, self.subsets)})


def run(experiment: Experiment, data: Path, datasets: Sequence[str], fits: Sequence[str], nli_sample: int) -> Findings:
    """Measure every set in the folder. If all seven sets exist, also average over them."""
    reading = read_sets(data, list(dict.fromkeys(datasets)) or list(DATASETS))
    nli = read_nli(data, nli_sample) if "nli" in fits else []
    subjects = []
    for found in reading.sets:
        scorer = PairScorer(found.evaluated, by_subset=DATASETS[found.name].split is None)
        texts = fit_texts(fits, nli, found.sentences(), found.sentences("train"))
        subjects.append(Subject(found.name, SPLIT, scorer.texts, texts, found.sha256, scorer))
    experiment.results.put(published_rows(BENCH))
    findings = measure_all(experiment, subjects)
    averages = [row for row in average_rows(findings.rows, list(DATASETS)) if row.metric in (ALL, WMEAN)]
    experiment.results.put(averages)
    findings.runs += dict.fromkeys(row.run for row in averages)
    findings.problems += reading.problems
    for fit in dict.fromkeys(fits):
        if missing := [DATASETS[s.dataset].title for s in subjects if fit not in s.fit_texts]:
            why = f"these sets have no train split, so they are not measured with --fit {fit}"
            findings.problems.append(f"{why}: {', '.join(missing)}")
    return findings


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


def run_lexical(
    experiment: Experiment, data: Path, split: str, unit: str, fits: Sequence[str], nli_sample: int
) -> Findings:
    """Measure a split of STS-B. The raw vectors are always measured too."""
    reading = read_sets(data, [LEXICAL_SET], scored=False)
    found = reading.sets[0]
    pairs = found.of(split)
    if len(pairs) < 2:
        known = ", ".join(dict.fromkeys(pair.split for pair in found.pairs))
        raise Misuse(f"STS-B has {len(pairs)} pairs in the split {split!r}; set --split to one of: {known}.")
    scorer = LexicalScorer(pairs, unit)
    if math.isnan(scorer.gold_correlation):
        why = "all gold scores or all edit distances are equal"
        raise Misuse(f"the split {split!r} of STS-B has no correlation to measure: {why}.")
    nli = read_nli(data, nli_sample) if "nli" in fits else []
    texts = fit_texts(fits, nli, found.sentences(), found.sentences("train"))
    if missing := [fit for fit in fits if fit not in texts]:
        raise Misuse(
            f"--fit {', '.join(missing)} needs the train split of STS-B, which this data folder does not have."
        )
    experiment.transforms = [RAW, *(spec for spec in experiment.transforms if spec != RAW)]
    subject = Subject(LEXICAL_SET, split, scorer.texts, texts, f"{found.sha256} {unit}", scorer)
    gold = rows_of(Run(LEXICAL, LEXICAL_SET, split, GOLD, "", "", "", None), {CORRELATION: scorer.gold_correlation})
    findings = measure_all(experiment, [subject])
    findings.problems += reading.problems
    findings.runs += [row.run for row in gold]
    experiment.results.put([*gold, *published_rows(LEXICAL), *share_rows(findings.rows, scorer.gold_correlation)])
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
