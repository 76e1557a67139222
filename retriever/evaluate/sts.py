"""Measure how well cosine agrees with human similarity scores on STS-B, SICK-R and STS12 to STS16.

    retriever bench sts --data DIR --encoder DIR --pooling first-last --transform whiten --out results/

For STS-B and SICK-R the test split is scored, for the other sets all pairs. A transform is fitted for each set on the
text that `fit` names, with every sentence once, and never on a score. `target` is all sentences of the set.
`target-short` is these sentences and a phrase cut from each, as for a collection. `target-train` is the sentences of
the train split. `nli` is sentences of natural language inference. With `nli`, a transform is fitted once for all sets.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from retriever.evaluate.data.published import published_rows
from retriever.evaluate.data.sts_sets import DATASETS, Pair, StsSet, distinct, read_nli, read_sets, with_phrases
from retriever.evaluate.measures.correlation import pair_cosines, pearson, spearman, spearman_wmean
from retriever.evaluate.results import average_rows
from retriever.evaluate.runs import Experiment, Findings, Measured, Subject, Vectors, measure_all
from retriever.transforms import Transform

BENCH = "sts"
ALL, WMEAN, PEARSON = "spearman_all", "spearman_wmean", "pearson_all"
AGGREGATIONS = (ALL, WMEAN)
NLI_SAMPLE = 10_000
SPLIT = "test"


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
        return Measured(
            {
                ALL: spearman(similarity, self.gold),
                WMEAN: spearman_wmean(similarity, self.gold, self.subsets),
                PEARSON: pearson(similarity, self.gold),
            }
        )


def fit_texts(found: StsSet, fits: Sequence[str], nli: Sequence[str]) -> dict[str, Sequence[str]]:
    """Return the text of each kind of fit that is possible for a set. Only STS-B and SICK-R have a train split."""
    texts: dict[str, Sequence[str]] = {}
    for fit in fits:
        own = nli if fit == "nli" else found.sentences("train" if fit == "target-train" else None)
        if own and fit == "target-short":
            own = with_phrases(own)
        if own:
            texts[fit] = own
    return texts


def run(
    experiment: Experiment,
    data: Path,
    *,
    datasets: Sequence[str] = (),
    fits: Sequence[str] = ("target",),
    nli_sample: int = NLI_SAMPLE,
) -> Findings:
    """Measure every set in the folder. If all seven sets exist, also average over them."""
    reading = read_sets(data, list(dict.fromkeys(datasets)) or list(DATASETS))
    fits = list(dict.fromkeys(fits))
    nli = read_nli(data, nli_sample) if "nli" in fits else []
    subjects = []
    for found in reading.sets:
        scorer = PairScorer(found.evaluated, by_subset=DATASETS[found.name].split is None)
        texts = fit_texts(found, fits, nli)
        subjects.append(Subject(found.name, SPLIT, scorer.texts, texts, found.sha256, scorer))
    experiment.results.put(published_rows(BENCH))
    findings = measure_all(experiment, subjects)
    averages = [row for row in average_rows(findings.rows, list(DATASETS)) if row.metric in AGGREGATIONS]
    experiment.results.put(averages)
    findings.runs += dict.fromkeys(row.run for row in averages)
    findings.problems += reading.problems
    for fit in fits:
        if missing := [DATASETS[s.dataset].title for s in subjects if fit not in s.fit_texts]:
            findings.problems.append(
                f"these sets have no train split, so they are not measured with --fit {fit}: {', '.join(missing)}"
            )
    return findings
