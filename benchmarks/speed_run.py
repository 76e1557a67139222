"""From the options of `bench speed` to its findings: sentences embedded, folders made, everything measured."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.encoders import Bert, open_encoders
from benchmarks.results import Results
from benchmarks.rivals import chosen_systems
from benchmarks.runs import Findings, Plan
from benchmarks.sentence_vectors import Halves, read_sentences, sentence_files, sentence_vectors
from benchmarks.speed import Bench, Sizes
from benchmarks.vectors import VectorCache
from benchmarks.work_folder import work_folder
from retriever import display
from retriever.errors import Misuse
from retriever.models import EMBEDDED
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
    (bert,) = open_encoders([encoder or EMBEDDED], precision=precision, device="cpu")
    if not isinstance(bert, Bert):
        raise Misuse("bench speed needs a BERT to embed with.")
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
