"""Figures as the files that `mteb` writes and reads: results/MODEL/REVISION/TASK.json, with a model_meta.json.

MTEB's main score of an STS task is one Spearman correlation over all pairs, from 0 to 1: our `spearman_all` / 100.
A configuration (encoder, pooling, transform, text of the fit) is a model of its own. The figures come from files of the
user's, not from a revision on the hub, so `dataset_revision` is the SHA-256 of the file; and MTEB's SICK-R scores all
9,927 pairs where SICK's own test split has 4,927.

A retrieval task goes by MTEB's name where its folder has that of a known set, else by the folder's own; its main score
is nDCG@10. Its `dataset_revision` is a SHA-256 over the three files of the set.
"""

import datetime
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from retriever.evaluate.data.sts_sets import DATASETS
from retriever.evaluate.rankings import Ranking
from retriever.evaluate.results import AVERAGE, Configuration, Row, Run, summarise, write_json
from retriever.evaluate.runs import Findings
from retriever.evaluate.sts import ALL, PEARSON, WMEAN

LANGUAGES = ["eng-Latn"]
# The tasks of BEIR's sets by the names that their folders have.
RETRIEVAL_TASKS = {
    "arguana": "ArguAna",
    "climate-fever": "ClimateFEVER",
    "dbpedia-entity": "DBPedia",
    "fever": "FEVER",
    "fiqa": "FiQA2018",
    "hotpotqa": "HotpotQA",
    "msmarco": "MSMARCO",
    "nfcorpus": "NFCorpus",
    "nq": "NQ",
    "quora": "QuoraRetrieval",
    "scidocs": "SCIDOCS",
    "scifact": "SciFact",
    "trec-covid": "TRECCOVID",
    "webis-touche2020": "Touche2020",
}
RETRIEVAL_MAIN = "ndcg_at_10"


def write_mteb(findings: Findings, folder: Path) -> list[Path]:
    """One file a task and configuration; over several seeds the mean, with each seed's scores beside it."""
    groups: dict[tuple[Configuration, str], list[Row]] = {}
    for row in findings.rows:
        if row.dataset != AVERAGE:
            line = Configuration(row.encoder, row.pooling, row.transform, row.fit)
            groups.setdefault((line, row.dataset), []).append(row)
    written = []
    for (line, dataset), rows in groups.items():
        runs = list(dict.fromkeys(row.run for row in rows))
        provenance = findings.provenance(runs[0])
        revision = provenance["encoder_weights"]
        target = folder / model_name(line) / revision
        target.mkdir(parents=True, exist_ok=True)
        write_json(target / "model_meta.json", {"name": model_name(line), "revision": revision, **line._asdict()})
        path = target / f"{DATASETS[dataset].mteb_task}.json"
        write_json(path, _task_result(findings, dataset, runs, rows))
        written.append(path)
    return written


def model_name(line: Configuration) -> str:
    """A configuration as one name that is also one folder."""
    return re.sub(r"[^\w.=,-]+", "__", "__".join(part for part in line if part)).strip("_")


def _task_result(findings: Findings, dataset: str, runs: Sequence[Run], rows: Sequence[Row]) -> dict[str, object]:
    each = [_scores({row.metric: row.value / 100 for row in rows if row.run == run}) for run in runs]
    mean = {name: summarise([scores[name] for scores in each]).mean for name in each[0]}
    extra = {"scores_per_experiment": each} if len(each) > 1 else {}
    provenances = [findings.provenance(run) for run in runs]
    return {
        "dataset_revision": provenances[0]["inputs"]["data"].partition(" ")[0],
        "task_name": DATASETS[dataset].mteb_task,
        "mteb_version": None,
        "scores": {"test": [{**mean, **extra, "hf_subset": "default", "languages": LANGUAGES}]},
        "evaluation_time": sum(provenance["seconds"] for provenance in provenances),
        "kg_co2_emissions": None,
        "date": datetime.datetime.now(datetime.UTC).timestamp(),
    }


def _scores(values: dict[str, float]) -> dict[str, float]:
    scores = {
        "pearson": values.get(PEARSON),
        "spearman": values[ALL],
        "cosine_pearson": values.get(PEARSON),
        "cosine_spearman": values[ALL],
        "cosine_spearman_wmean": values.get(WMEAN),
        "main_score": values[ALL],
    }
    return {name: value for name, value in scores.items() if value is not None}


def write_retrieval_mteb(rankings: Sequence[Ranking], folder: Path) -> list[Path]:
    """One file a task and configuration; BM25 has no weights, so its revision is that of the code."""
    written = []
    for ranking in rankings:
        line = ranking.configuration
        provenance: dict[str, Any] = dict(ranking.provenance)
        inputs = provenance["inputs"]
        revision = provenance.get("encoder_weights") or inputs["code"]
        target = folder / model_name(line) / revision
        target.mkdir(parents=True, exist_ok=True)
        write_json(target / "model_meta.json", {"name": model_name(line), "revision": revision, **line._asdict()})
        task = RETRIEVAL_TASKS.get(ranking.dataset.lower(), ranking.dataset)
        scores = {metric.replace("@", "_at_"): ranking.mean(metric) for metric in ranking.scores}
        scores["main_score"] = scores[RETRIEVAL_MAIN]
        data = "\n".join(inputs[name] for name in ("corpus", "queries"))
        path = target / f"{model_name(Configuration(task, '', '', ''))}.json"
        dataset_revision = hashlib.sha256(data.encode()).hexdigest()
        found = {
            "dataset_revision": dataset_revision,
            "task_name": task,
            "mteb_version": None,
            "scores": {
                **_other_splits(path, dataset_revision),
                ranking.split: [{**scores, "hf_subset": "default", "languages": LANGUAGES}],
            },
            "evaluation_time": provenance["seconds"],
            "kg_co2_emissions": None,
            "date": datetime.datetime.now(datetime.UTC).timestamp(),
        }
        write_json(path, found)
        written.append(path)
    return written


def _other_splits(path: Path, dataset_revision: str) -> dict[str, Any]:
    """What the file has of the same data's splits so far."""
    try:
        before = json.loads(path.read_bytes())
        return dict(before["scores"]) if before["dataset_revision"] == dataset_revision else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
