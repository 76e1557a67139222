"""Measure whether cosine finds the sentence that answers a question.

    retriever bench qa --data DIR --encoder DIR --pooling first-last --out results/

QNLI dev is measured as by Li et al. (2020): the area under ROC of the cosine of question and sentence, over all 5,463
pairs. WikiQA test is measured by ranking a question's candidates by cosine: mean average precision and mean reciprocal
rank, over the questions with both a right and a wrong candidate.

Candidates with equal scores keep the order of the file, which is the order of the article. The first sentence of the
article answers 45 % of the questions, a random sentence 18 %. Ties therefore flatter coarse scores: containment has
ties in 207 of the 237 questions and a MAP of 68.0, but only 50.7 if ties are broken against it. Cosines tie only if the
same sentence appears twice.

A transform is fitted on questions and sentences, never on a label. `target` is all text of the file. `target-short` is
the same text and a phrase cut from each question and sentence. `nli` is sentences of natural language inference. The
gain is over the raw vectors of the same encoder and pooling, paired by pair (QNLI) or by question (WikiQA). QNLI's
pairs count as independent although they share questions and sentences. Resampling all connected pairs together gave
intervals of the same width.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retriever.evaluate.data.published import published_rows
from retriever.evaluate.data.qa_sets import DATASETS, QaPair, QaSet, read_qa
from retriever.evaluate.data.sts_sets import read_nli, with_phrases
from retriever.evaluate.measures.correlation import pair_cosines
from retriever.evaluate.measures.intervals import area_figures, mean_figures
from retriever.evaluate.measures.overlap import BASELINES
from retriever.evaluate.results import Row, Run, rows_of
from retriever.evaluate.runs import Experiment, Findings, Measured, Subject, Vectors, measure_all
from retriever.evaluate.sts import NLI_SAMPLE
from retriever.transforms import Transform
from retriever.transforms.isotropy import Floats

BENCH = "qa"
LEXICAL = "lexical"
METRICS = {"qnli": ("auc",), "wikiqa": ("map", "mrr")}
OPEN_RETRIEVAL = "wikiqa_beir"
"""The BEIR folder with all sentences of WikiQA, for `retriever.evaluate.retrieval`."""


class QaScorer:
    def __init__(self, found: QaSet) -> None:
        self.dataset, self.texts = found.name, found.texts
        self.pairs = found.evaluated
        place = {text: number for number, text in enumerate(self.texts)}
        self.questions = [place[pair.question] for pair in self.pairs]
        self.sentences = [place[pair.sentence] for pair in self.pairs]

    def __call__(self, transform: Transform, vectors: Vectors) -> Measured:
        own, raw = (self._cosines(rows) for rows in (transform.apply(vectors), vectors))
        return Measured(judge(self.dataset, self.pairs, own, raw))

    def _cosines(self, rows: Vectors) -> Floats:
        return pair_cosines(rows, self.questions, self.sentences)


def judge(dataset: str, pairs: Sequence[QaPair], scores: Floats, raw: Floats | None = None) -> dict[str, float]:
    """Return the metrics of a set with their intervals.

    If the scores of the raw vectors are given, also return the gain over them.
    """
    if not np.isfinite(scores).all():
        return dict.fromkeys(METRICS[dataset], float("nan"))
    if dataset == "qnli":
        return area_figures(scores, np.array([pair.answers for pair in pairs]), raw)
    own, base = rank_candidates(pairs, scores), None if raw is None else rank_candidates(pairs, raw)
    figures: dict[str, float] = {}
    for metric, values in own.items():
        figures |= mean_figures(metric, values, None if base is None else base[metric])
    return figures


def rank_candidates(pairs: Sequence[QaPair], scores: Floats) -> dict[str, NDArray[np.float64]]:
    """Return the average precision and the reciprocal rank of each question, computed by ir_measures.

    ir_measures receives negated ranks instead of the scores, because it would round the scores to float32 and break
    ties by the candidate's id.
    """
    import ir_measures
    from ir_measures import AP, RR

    candidates: dict[str, list[int]] = {}
    for number, pair in enumerate(pairs):
        candidates.setdefault(pair.question_id, []).append(number)
    judged, ranked = {}, {}
    for question, numbers in candidates.items():
        judged[question] = {str(number): int(pairs[number].answers) for number in numbers}
        ordered = sorted(numbers, key=lambda number: (-scores[number], number))
        ranked[question] = {str(number): float(-place) for place, number in enumerate(ordered)}
    found = {(one.query_id, one.measure): one.value for one in ir_measures.iter_calc([AP, RR], judged, ranked)}
    return {
        metric: np.array([found[question, measure] for question in candidates])
        for metric, measure in (("map", AP), ("mrr", RR))
    }


def run(
    experiment: Experiment,
    data: Path,
    *,
    datasets: Sequence[str] = (),
    fits: Sequence[str] = ("target",),
    nli_sample: int = NLI_SAMPLE,
) -> Findings:
    """Measure the sets in the folder, and the lexical baselines."""
    names = [name for name in METRICS if name in (datasets or METRICS)]
    if not names:
        return Findings(experiment)
    reading = read_qa(data, names)
    fits = list(dict.fromkeys(fits))
    nli = read_nli(data, nli_sample) if "nli" in fits else []
    subjects = []
    for found in reading.sets:
        scorer, texts = QaScorer(found), {fit: fit_text(found, fit, nli) for fit in fits}
        split, questions = DATASETS[found.name].split, frozenset(pair.question for pair in found.pairs)
        subjects.append(Subject(found.name, split, scorer.texts, texts, found.sha256, scorer, questions))
    baselines = [row for found in reading.sets for row in lexical_rows(found)]
    experiment.results.put([*published_rows(BENCH), *baselines])
    findings = measure_all(experiment, subjects)
    findings.runs += dict.fromkeys(row.run for row in baselines)
    findings.problems += [*reading.problems, *map(convention, reading.sets)]
    return findings


def pairs_there(data: Path) -> bool:
    return any((data / known.file).is_file() for known in DATASETS.values())


def fit_text(found: QaSet, fit: str, nli: Sequence[str]) -> Sequence[str]:
    """Return the text that a transform is fitted on."""
    if fit == "nli":
        return nli
    if fit == "target-short":
        return with_phrases(found.texts)
    return found.texts


def lexical_rows(found: QaSet) -> list[Row]:
    """Return the figures of the lexical baselines on a set."""
    pairs, rows = found.evaluated, []
    for name, baseline in BASELINES.items():
        scores = baseline([pair.question for pair in pairs], [pair.sentence for pair in pairs])
        one = Run(BENCH, found.name, DATASETS[found.name].split, LEXICAL, "", name, "", None)
        rows += rows_of(one, judge(found.name, pairs, scores))
    return rows


def convention(found: QaSet) -> str:
    """Return a note about what was counted."""
    if found.name == "qnli":
        return f"QNLI {DATASETS['qnli'].split}: all {len(found.evaluated):,} pairs count"
    counted = len({pair.question_id for pair in found.evaluated})
    questions = len({pair.question_id for pair in found.pairs})
    return (
        f"WikiQA {DATASETS['wikiqa'].split}: {counted} of {questions} questions count, those that have both a right "
        "and a wrong candidate; candidates with equal scores stay in the order of the file"
    )
