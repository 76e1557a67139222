"""Measure how well a BERT finds documents, raw and with each transform, compared with BM25 and with both combined.

    retriever bench retrieval --data DIR --encoder DIR --pooling auto --out results/

A corpus is indexed with the code of `retriever index`. There is one collection for each encoder and pooling. It is kept
in a cache, so nothing is embedded twice. For each transform, the collection is rebuilt. The hits are written to TREC
run files, and all figures are computed from these files and the judgements. If the inputs of a run are unchanged and
its file is intact, the run is read back.
"""

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from indexes.checksums import file_sha256
from indexes.folder.collection import Collection
from retriever.corpus import Corpus
from retriever.errors import FitFailed, Misuse
from retriever.evaluate.data.beir import BeirSet
from retriever.evaluate.data.trec import read_run, strictly_decreasing, unwritable, write_run
from retriever.evaluate.fitting import code_digest
from retriever.evaluate.measures.intervals import mean_figures
from retriever.evaluate.rankings import DEPTH, MAIN, Hits, Ranking, Topics, scores
from retriever.evaluate.results import RAW, Configuration, Row, Run, rows_of
from retriever.evaluate.runs import Experiment, Findings
from retriever.evaluate.systems import Model, System, systems_for
from retriever.hits import Mode
from retriever.ingest.fitted import SEED
from retriever.retriever import Retriever
from retriever.settings import made_by
from retriever.transforms.spec import AUTO

BENCH = "retrieval"
RUNS = "runs"
BATCH = 128


@dataclass
class RetrievalFindings(Findings):
    topics: list[Topics] = field(default_factory=list)
    rankings: list[Ranking] = field(default_factory=list)


def run(
    experiment: Experiment, sets: Sequence[BeirSet], models: Sequence[Model], *, collections: Path, device: str = "auto"
) -> RetrievalFindings:
    """Measure every system of the experiment on every set. Notes say what could not be measured.

    `experiment.transforms` contains systems that `systems_of` returned. BM25 is measured once for each set, in the
    first model's collection.
    """
    findings = RetrievalFindings(experiment, topics=[found.topics for found in sets])
    findings.problems += [note for found in sets for note in found.topics.notes]
    groups = [(found, number, model) for found in sets for number, model in enumerate(models)]
    total = sum(len(systems_for(model, experiment.transforms, with_bm25=number == 0)) for _, number, model in groups)
    done = 0
    for found, number, model in groups:
        bench = _Bench(experiment, found, model, collections, device)
        systems = systems_for(model, experiment.transforms, with_bm25=number == 0)
        known = {system: bench.read_back(system) for system in systems}
        fresh = bench.measure([system for system in systems if known[system] is None], findings)
        for system in systems:
            done += 1
            ranking = known[system] or fresh.get(system)
            if ranking is None:
                continue
            findings.rankings.append(ranking)
            findings.take(bench.run_of(system), measured=system in fresh)
        if fresh:
            experiment.progress("collections measured", done, total)
    findings.rankings.sort(key=lambda ranking: [t.dataset for t in findings.topics].index(ranking.dataset))
    findings.runs = [run_of(ranking) for ranking in findings.rankings]
    experiment.results.put(row for row in compare(findings.rankings) if row.metric != MAIN)
    return findings


def run_of(ranking: Ranking) -> Run:
    return Run(BENCH, ranking.dataset, ranking.split, *ranking.configuration, SEED)


def compare(rankings: Sequence[Ranking], metric: str = MAIN) -> list[Row]:
    """Return rows for the mean of each ranking, its interval, and its gain over the raw ranking of the same encoder.

    A ranking without such a raw ranking has no gain. All values are times 100 except p.
    """

    def family(ranking: Ranking) -> tuple[str, ...]:
        return ranking.dataset, ranking.split, ranking.configuration.encoder, ranking.configuration.pooling

    raw = {family(ranking): ranking for ranking in rankings if ranking.configuration.transform == RAW}
    rows = []
    for ranking in rankings:
        own, base, before = ranking.scores[metric], raw.get(family(ranking)), None
        if base is not None and base is not ranking:
            before = np.array([base.scores[metric][query] for query in own], np.float64)
        figures = mean_figures(metric, np.array(list(own.values()), np.float64), before)
        rows += rows_of(run_of(ranking), figures)
    return rows


def collection_folder(collections: Path, found: BeirSet, model: Model) -> Path:
    name = Configuration(found.topics.dataset, model.label, model.pooling, "").file_name
    key = hashlib.sha256(f"{model.key} {found.files['corpus']}".encode()).hexdigest()[:16]
    return collections / f"{name}__{key}"


def build_collection(
    experiment: Experiment, found: BeirSet, model: Model, folder: Path, transform: str | None, device: str
) -> Retriever:
    """Index the corpus of a set with a model, or open the collection if it was indexed before."""
    embedding = f"embedding {found.topics.dataset} with {model.label}, {model.pooling}"

    def progress(stage: str, done: int, total: int | None, detail: str = "") -> None:
        experiment.progress(embedding if stage == "embedding" else stage, done, total, detail)

    return Retriever.build(
        Corpus([found.folder]),
        folder,
        encoder=model.name,
        pooling=model.pooling,
        max_length=model.identity.max_length,
        transform=transform,
        precision="fp32",
        query_prompt=model.prompts.query,
        document_prompt=model.prompts.document,
        device=device,
        progress=progress,
    )


class _Bench:
    """A corpus that is indexed with one model."""

    def __init__(self, experiment: Experiment, found: BeirSet, model: Model, collections: Path, device: str) -> None:
        self.experiment, self.found, self.model, self.device = experiment, found, model, device
        self.topics = found.topics
        self.collection = collection_folder(collections, found, model)

    def run_of(self, system: System) -> Run:
        return Run(BENCH, self.topics.dataset, self.topics.split, *system.configuration, SEED)

    def provenance(self, system: System) -> dict[str, Any]:
        return self.experiment.results.provenance(self.run_of(system))

    def inputs(self, system: System) -> dict[str, str]:
        encoder = {} if system.transform is None else {"encoder": self.model.key}
        return {**self.found.files, **encoder, "code": code_digest()}

    def read_back(self, system: System) -> Ranking | None:
        """Return the ranking of an earlier run if its inputs are unchanged and its file is intact."""
        run, folder = self.run_of(system), self.experiment.results.folder
        provenance = self.provenance(system)
        if (
            folder is None
            or not self.experiment.results.known(run, self.inputs(system))
            or not provenance.get("run_file")
        ):
            return None
        path = folder / provenance["run_file"]
        if not path.is_file() or file_sha256(path) != provenance["run_sha256"]:
            return None
        return self._ranking(system, read_run(path, list(self.topics.queries)), provenance)

    def measure(self, systems: Sequence[System], findings: Findings) -> dict[System, Ranking]:
        """Build the collection or open it from the cache, then measure one transform after the other."""
        if not systems:
            return {}
        rankings: dict[System, Ranking] = {}
        published = None if Collection.is_begun(self.collection) else (AUTO if self.model.pooling == AUTO else RAW)
        with (
            build_collection(
                self.experiment, self.found, self.model, self.collection, published, self.device
            ) as collection,
            collection.collection.writing(),
        ):  # no other process may rebuild it between a fit and its queries
            order = [None, published, *(system.transform for system in systems)]  # each transform once
            for system in sorted(systems, key=lambda system: order.index(system.transform)):
                began = time.perf_counter()
                try:
                    if system.transform is not None and system.transform != published:
                        published = None
                        collection.rebuild(transform=system.transform)
                        published = system.transform
                    hits = self._ask(collection, system.mode)
                except (FitFailed, Misuse) as error:
                    findings.add_note(self.run_of(system), f"{error}; left out")
                    continue
                rankings[system] = self._write_down(system, hits, collection.info(), time.perf_counter() - began)
        return rankings

    def _ask(self, collection: Retriever, mode: Mode) -> dict[str, Hits]:
        """Return the hits of every query.

        One more hit than DEPTH is retrieved, because a query that is also a document finds itself.
        """
        hits: dict[str, Hits] = {}
        queries = list(self.topics.queries.items())
        for start in range(0, len(queries), BATCH):
            self.experiment.progress("searching", start, len(queries))
            batch = queries[start : start + BATCH]
            answers = collection.answer_many([text for _, text in batch], DEPTH + 1, mode=mode)
            for (query, _), answer in zip(batch, answers, strict=True):
                own = query if query in self.found.repeated else None
                found = [(hit.id, hit.score) for hit in answer.hits if hit.id != own]
                hits[query] = strictly_decreasing(found[:DEPTH])
        self.experiment.progress("searching", len(queries), len(queries))
        return hits

    def _write_down(self, system: System, hits: Mapping[str, Hits], info: Mapping[str, Any], seconds: float) -> Ranking:
        fitted: dict[str, Any] = {}
        if system.transform is not None:
            fitted = {
                "encoder_weights": self.model.identity.weights,
                "pooling": info["encoder"]["pooling"],
                "transform_fingerprint": info["transform"]["fingerprint"],
                "fitted_on": info["fitted_on"],
            }
            if info["choice"]:
                fitted["chosen"] = info["choice"]["chosen"]
        notes = list(info["transform"].get("notes", [])) if system.transform is not None else []
        written, problem = self._write_run(system, hits)
        provenance = {
            "inputs": self.inputs(system),
            "made_by": made_by(),
            **fitted,
            "seed": SEED,
            **written,
            "notes": [*notes, *problem],
            "seconds": round(seconds, 3),
        }
        ranking = self._ranking(system, hits, provenance)
        values = {metric: 100 * ranking.mean(metric) for metric in ranking.scores}
        self.experiment.results.add(self.run_of(system), values, provenance)
        return ranking

    def _write_run(self, system: System, hits: Mapping[str, Hits]) -> tuple[dict[str, str], list[str]]:
        """Write the run file. Return its path and SHA-256, or a note why it cannot be written."""
        folder = self.experiment.results.folder
        if folder is None:
            return {}, []
        ids = dict.fromkeys(id_ for query, own in hits.items() for id_ in (query, *(document for document, _ in own)))
        if bad := unwritable(ids):
            return {}, [
                f"no run file is written, because TREC's format cannot hold ids with white space, such as {bad[0]!r} "
                f"({len(bad):,} in all). The figures are correct, but they are computed again each time. Rename the "
                "ids in corpus, queries and qrels to get the file"
            ]
        name = system.configuration._replace(fit=self.topics.split).file_name
        path = folder / RUNS / self.topics.dataset / f"{name}.trec"
        write_run(path, hits, name)
        return {"run_file": path.relative_to(folder).as_posix(), "run_sha256": file_sha256(path)}, []

    def _ranking(self, system: System, hits: Mapping[str, Hits], provenance: Mapping[str, Any]) -> Ranking:
        found = scores(self.topics.judgements, hits)
        return Ranking(self.topics.dataset, self.topics.split, system.configuration, hits, found, provenance)
