"""Write the figures as files that `mteb` reads: results/MODEL/REVISION/TASK.json, with a model_meta.json.

Each configuration (encoder, pooling, transform, text of the fit) counts as a model. The main score of an STS task is
one Spearman correlation over all pairs. For SICK-R we score the 4,927 pairs of its own test split, while MTEB scores
all 9,927. The main score of a retrieval task is nDCG@10. A task has MTEB's name if its folder has the name of a known
set, otherwise the folder's name. `dataset_revision` is a SHA-256 of the user's files.
"""

import datetime
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from retriever.evaluate import data
from retriever.evaluate.data.sts_sets import DATASETS
from retriever.evaluate.rankings import MAIN, Ranking
from retriever.evaluate.results import AVERAGE, Configuration, Row, summarise, write_json
from retriever.evaluate.runs import Findings
from retriever.evaluate.sts import ALL, PEARSON, WMEAN

LANGUAGES = ["eng-Latn"]
Scores = dict[str, object]
# The names of MTEB's tasks, by the usual names of BEIR folders.
RETRIEVAL_TASKS = json.loads((Path(data.__file__).parent / "mteb_tasks.json").read_bytes())


def write_mteb(findings: Findings, folder: Path) -> None:
    """Write a file for each task and configuration: means over seeds, and the scores of each of several seeds."""
    groups: dict[tuple[Configuration, str], list[Row]] = {}
    for row in findings.rows:
        if row.dataset != AVERAGE:
            groups.setdefault((row.configuration, row.dataset), []).append(row)
    for (line, dataset), rows in groups.items():
        runs = list(dict.fromkeys(row.run for row in rows))
        each = [_scores({row.metric: row.value / 100 for row in rows if row.run == run}) for run in runs]
        scores: Scores = {name: summarise([own[name] for own in each]).mean for name in each[0]}
        if len(each) > 1:
            scores["scores_per_experiment"] = each
        known = [findings.provenance(run) for run in runs]
        provenance = {**known[0], "seconds": sum(one["seconds"] for one in known)}
        revision = known[0]["inputs"]["data"].partition(" ")[0]
        _write(folder, line, DATASETS[dataset].mteb_task, "test", revision, scores, provenance)


def _scores(values: dict[str, float]) -> dict[str, float]:
    names = {"spearman": ALL, "cosine_spearman": ALL, "main_score": ALL, "cosine_spearman_wmean": WMEAN}
    names |= {"pearson": PEARSON, "cosine_pearson": PEARSON}
    return {name: values[metric] for name, metric in names.items() if metric in values}


def write_retrieval_mteb(rankings: Sequence[Ranking], folder: Path) -> None:
    """Write one file for each task and configuration. BM25 has no weights, so its revision is that of the code."""
    for ranking in rankings:
        inputs: Any = ranking.provenance["inputs"]
        scores: Scores = {metric.replace("@", "_at_"): ranking.mean(metric) for metric in ranking.scores}
        scores["main_score"] = ranking.mean(MAIN)
        task = RETRIEVAL_TASKS.get(ranking.dataset.lower(), ranking.dataset)
        revision = hashlib.sha256("\n".join(inputs[name] for name in ("corpus", "queries")).encode()).hexdigest()
        provenance = {"encoder_weights": inputs["code"], **ranking.provenance}
        _write(folder, ranking.configuration, task, ranking.split, revision, scores, provenance)


def _write(
    folder: Path, line: Configuration, task: str, split: str, revision: str, scores: Scores, origin: Mapping[str, Any]
) -> None:
    """Write the file of a task and split. Other splits in the file are kept if they come from the same data."""
    model_revision = origin["encoder_weights"]
    target = folder / line.file_name / model_revision
    target.mkdir(parents=True, exist_ok=True)
    write_json(target / "model_meta.json", {"name": line.file_name, "revision": model_revision, **line._asdict()})
    path = target / f"{Configuration(task, '', '', '').file_name}.json"
    try:
        before = json.loads(path.read_bytes())
        splits = dict(before["scores"]) if before["dataset_revision"] == revision else {}
    except (OSError, ValueError, KeyError, TypeError):
        splits = {}
    found = {
        "dataset_revision": revision,
        "task_name": task,
        "mteb_version": None,
        "scores": {**splits, split: [{**scores, "hf_subset": "default", "languages": LANGUAGES}]},
        "evaluation_time": origin["seconds"],
        "kg_co2_emissions": None,
        "date": datetime.datetime.now(datetime.UTC).timestamp(),
    }
    write_json(path, found)
