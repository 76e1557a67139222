"""Measure whether cosine finds the sentence that answers a question.

    retriever bench qa --data DIR --encoder DIR --pooling first-last --out results/

QNLI dev is measured as by Li et al. (2020): the area under ROC of the cosine of question and sentence, over all 5,463
pairs. WikiQA test is measured by ranking a question's candidates by cosine: mean average precision and mean reciprocal
rank, over the questions with both a right and a wrong candidate. In WikiQA's BEIR folder, all sentences are searched.

Candidates with equal scores keep the order of the article, whose first sentence answers 45 % of the questions. Ties
therefore flatter coarse scores: containment has a MAP of 68.0, but only 50.7 if its many ties are broken against it.

A transform is fitted on questions and sentences, never on a label: see `sts`. The gain is over the raw vectors of the
same encoder and pooling, paired by pair (QNLI) or by question (WikiQA). QNLI's pairs count as independent although they
share questions and sentences. Resampling all connected pairs together gave intervals of the same width.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.evaluate import retrieval
from retriever.evaluate.data.beir import read_sets
from retriever.evaluate.data.published import published_rows
from retriever.evaluate.data.qa_sets import DATASETS, QaPair, QaSet, read_qa
from retriever.evaluate.data.sts_sets import fit_texts, read_nli
from retriever.evaluate.measures.intervals import area_figures, mean_figures
from retriever.evaluate.measures.similarity import BASELINES, pair_cosines
from retriever.evaluate.models.encoders import collections_folder
from retriever.evaluate.results import Row, Run, rows_of
from retriever.evaluate.runs import Experiment, Findings, Measured, Subject, Vectors, measure_all
from retriever.evaluate.systems import BM25, open_models, systems_of
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
        both = transform.apply(vectors), vectors
        own, raw = (pair_cosines(rows, self.questions, self.sentences) for rows in both)
        return Measured(judge(self.dataset, self.pairs, own, raw))


def judge(dataset: str, pairs: Sequence[QaPair], scores: Floats, raw: Floats | None = None) -> dict[str, float]:
    """Return the metrics of a set with their intervals, and the gains over the scores of the raw vectors if given."""
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

    It receives negated ranks, because it would round the scores to float32 and break ties by the candidate's id.
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
    measures = {"map": AP, "mrr": RR}
    return {name: np.array([found[one, measure] for one in candidates]) for name, measure in measures.items()}


def run(experiment: Experiment, data: Path, datasets: Sequence[str], fits: Sequence[str], nli_sample: int) -> Findings:
    """Measure the sets in the folder, and the lexical baselines."""
    names = [name for name in METRICS if name in (datasets or METRICS)]
    if not names:
        return Findings(experiment)
    reading = read_qa(data, names)
    nli = read_nli(data, nli_sample) if "nli" in fits else []
    subjects = []
    for found in reading.sets:
        scorer, texts = QaScorer(found), fit_texts(fits, nli, found.texts)
        split, questions = DATASETS[found.name].split, frozenset(pair.question for pair in found.pairs)
        subjects.append(Subject(found.name, split, scorer.texts, texts, found.sha256, scorer, questions))
    baselines = [row for found in reading.sets for row in lexical_rows(found)]
    experiment.results.put([*published_rows(BENCH), *baselines])
    findings = measure_all(experiment, subjects)
    findings.runs += dict.fromkeys(row.run for row in baselines)
    findings.problems += [*reading.problems, *map(convention, reading.sets)]
    return findings


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
    counted, questions = (len({pair.question_id for pair in pairs}) for pairs in (found.evaluated, found.pairs))
    both = f"{counted} of {questions} questions count, those that have both a right and a wrong candidate"
    return f"WikiQA {DATASETS['wikiqa'].split}: {both}; candidates with equal scores stay in the order of the file"


def run_search(
    experiment: Experiment,
    data: Path,
    *,
    datasets: Sequence[str],
    transforms: Sequence[str],
    fits: Sequence[str],
    encoders: Sequence[str],
    poolings: Sequence[str],
    seeds: int,
    device: str,
    cache: Path | None,
    **options: Any,
) -> retrieval.RetrievalFindings:
    """Search all sentences of WikiQA, always with BM25 as well. If this cannot be measured, a note says why."""
    folder = data / OPEN_RETRIEVAL
    if datasets and OPEN_RETRIEVAL not in datasets:
        return retrieval.RetrievalFindings(experiment)
    if not folder.is_dir():
        missing = f"{folder} does not exist: the search over all sentences of WikiQA is left out"
        return retrieval.RetrievalFindings(experiment, problems=[missing])
    systems, models = systems_of([*transforms, BM25] if transforms else []), open_models(encoders, poolings, **options)
    search, sets = replace(experiment, bench=retrieval.BENCH, transforms=systems), read_sets([folder], None).sets
    findings = retrieval.run(search, sets, models, collections=collections_folder(cache), device=device)
    if seeds > 1 or tuple(fits) != ("target",):
        once = "a collection is fitted once, on its own text; --seeds and --fit have no effect"
        findings.problems.append(f"{OPEN_RETRIEVAL}: {once}")
    return findings
