"""Search all sentences of WikiQA for answers: the part of `retriever bench qa` that indexes a collection."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from retriever.evaluate import retrieval
from retriever.evaluate.data.beir import read_sets
from retriever.evaluate.qa import OPEN_RETRIEVAL
from retriever.evaluate.runs import Experiment
from retriever.evaluate.systems import BM25, open_models, systems_of
from retriever.evaluate.vectors import collections_folder


def run(
    experiment: Experiment,
    data: Path,
    *,
    datasets: Sequence[str],
    transforms: Sequence[str],
    fits: Sequence[str],
    encoders: Sequence[str],
    poolings: Sequence[str],
    seeds: int,
    max_length: int | None,
    query_prompt: str | None,
    document_prompt: str | None,
    device: str,
    cache: Path | None,
) -> retrieval.RetrievalFindings:
    """Measure the search, always with BM25 as well. If it cannot be measured, a note says why."""
    nothing = retrieval.RetrievalFindings(experiment)
    folder = data / OPEN_RETRIEVAL
    if datasets and OPEN_RETRIEVAL not in datasets:
        return nothing
    if not folder.is_dir():
        nothing.problems.append(f"{folder} does not exist: the search over all sentences of WikiQA is left out")
        return nothing
    findings = retrieval.run(
        replace(experiment, bench=retrieval.BENCH, transforms=systems_of([*transforms, BM25] if transforms else [])),
        read_sets([folder], None).sets,
        open_models(encoders, poolings, max_length, query_prompt=query_prompt, document_prompt=document_prompt),
        collections=collections_folder(cache),
        device=device,
    )
    if seeds > 1 or tuple(fits) != ("target",):
        findings.problems.append(
            f"{OPEN_RETRIEVAL}: a collection is fitted once, on its own text; --seeds and --fit have no effect"
        )
    return findings
