"""From the options of `python -m benchmarks speed` to its results: embed, make folders, measure."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.sentence_vectors import Halves, read_sentences, sentence_files, sentence_vectors
from benchmarks.speed.benchmark import Bench, Sizes
from benchmarks.speed.rivals import chosen_systems
from benchmarks.work_folder import work_folder
from retriever.cli import display
from retriever.encoder.model_files import DEFAULT_ENCODER
from retriever.errors import Misuse
from retriever.evaluate.models.encoders import Bert, open_encoders
from retriever.evaluate.results import Results
from retriever.evaluate.runs import Findings, Plan
from retriever.evaluate.vectors import VectorCache
from retriever.progress import Progress


def measure(
    *,
    sentences: Sequence[Path],
    data: Path | None,
    documents: Sequence[int],
    encoder: str | None,
    precision: str,
    systems: tuple[str, ...],
    queries: int,
    repeats: int,
    embed_at_most: int,
    profile: bool,
    cache: Path | None,
    out: Path | None,
) -> Findings:
    """Everything asked for, with a progress bar; what is left out is in the notes."""
    paths = sentence_files(sentences, data)
    chosen, notes = chosen_systems(systems)
    (bert,) = open_encoders([encoder or DEFAULT_ENCODER], precision=precision, device="cpu")
    if not isinstance(bert, Bert):
        raise Misuse("this needs a BERT to embed with.")
    with Results(out) as results, display.progress_bar() as progress, work_folder(out) as folder:
        texts, vectors = _sentences(paths, bert, max(documents), cache, progress, embed=not profile)
        counts = sorted({min(count, len(texts)) for count in documents})
        if len(texts) < max(documents):
            notes.append(f"there are only {len(texts):,} sentences, not {max(documents):,}: all of them were taken")
        plan = Plan("speed", [bert], [], cache=VectorCache(cache), results=results, progress=progress)
        sizes = Sizes(counts, queries=queries, repeats=repeats, embed_at_most=embed_at_most)
        bench = Bench(plan, chosen, str(bert.encoder.files.folder), texts, vectors, sizes, folder)
        findings = bench.profile() if profile else bench.run()
    findings.problems[:0] = notes
    return findings


def _sentences(
    paths: Sequence[Path], encoder: Bert, count: int, cache: Path | None, progress: Progress, embed: bool
) -> tuple[list[str], Halves]:
    """A profile embeds for itself and needs no vectors."""
    if embed:
        return sentence_vectors(paths, encoder, count, cache, progress)
    return read_sentences(paths, count), np.empty((0, encoder.dimension), np.float16)
