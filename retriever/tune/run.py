"""Tunes an encoder on a corpus without labels, within a time budget.

    result = tune("bert-base-cased", ["notes/*.txt"], "tuned/")

The result is an ordinary encoder folder, which `Retriever` and sentence-transformers read.
"""

import hashlib
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from retriever.corpus.source import Documents, OnError
from retriever.encoder.encoder import Encoder
from retriever.encoder.model_files import ModelFiles
from retriever.errors import Misuse, RetrieverError, requires_extra
from retriever.progress import Progress, silent
from retriever.tune.evidence import Evidence
from retriever.tune.state import Evaluation, RunState
from retriever.tune.texts import Texts, read_texts, training_pairs

MINUTES = 20.0
MAX_LENGTH = 64
"""Maximum number of tokens of a text during tuning. The time of a step is about proportional to it."""
ALREADY_TUNED = (
    "The encoder looked tuned for similarity before. For such an encoder, agreement with BM25 does not show whether "
    "tuning helped, and it often does not. Compare both encoders with your own questions: retriever evaluate"
)


@dataclass(frozen=True)
class Tuned:
    """The tuned encoder, and what was measured before, while and after it was tuned."""

    folder: Path
    passages: int
    held_out: int
    before: Evaluation
    after: Evaluation
    evaluations: tuple[Evaluation, ...]
    seconds: float
    stopped: str
    """The reason why tuning stopped."""
    note: str
    """A warning that tuning may have made the encoder worse. Empty if it did not look tuned for similarity before."""


def tune(
    encoder: str,
    documents: Documents,
    out: str | Path,
    *,
    minutes: float = MINUTES,
    max_length: int | None = None,
    seed: int = 0,
    device: str = "auto",
    on_error: OnError = "skip",
    progress: Progress = silent,
) -> Tuned:
    """Tune an encoder on the text of the documents, and write the result to the new folder `out`.

    If the call is interrupted, the same call continues it. If the evidence does not rise, nothing is written, and
    `RetrieverError` says so.
    """
    began = time.monotonic()
    if not minutes > 0:
        raise Misuse(f"`minutes` must be more than 0, not {minutes}.")
    with requires_extra("tune", "tuning an encoder"):
        import accelerate  # noqa: F401 - the trainer needs it, and would fail later

        from retriever.tune import model as models
        from retriever.tune import training
    if ModelFiles(encoder).static:
        raise Misuse(f"{encoder} is a word table, which cannot be tuned; give the BERT that it was learned from.")
    base = Encoder(encoder, max_length=max_length or min(MAX_LENGTH, ModelFiles(encoder).longest), device=device)
    progress("reading the corpus", 0, None)
    texts = read_texts(documents, base, on_error, seed)
    evidence = Evidence(texts, seed)
    settings = {
        "encoder": hashlib.sha256(f"{base.identity.weights}{base.identity.tokenizer}".encode()).hexdigest(),
        "corpus": texts.sha256(),
        "max_length": base.identity.max_length,
        "seed": seed,
    }
    run = RunState(Path(out), settings, 60 * minutes, partial(models.save, original=base.files), began)
    model = models.load(base)
    if not run.evaluations:
        progress("measuring the encoder", 0, None)
        training.evaluate(run, 0, model, evidence)
    if not run.stopped_rising and run.has_time():
        pairs = training_pairs(texts.training, training.BATCH_SIZE, seed)
        training.train(model, pairs, run, evidence, progress, seed)
    return _finished(run, texts, minutes, ALREADY_TUNED if evidence.looks_tuned(base) else "")


def _finished(run: RunState, texts: Texts, minutes: float, note: str) -> Tuned:
    before, best, last = run.evaluations[0], run.best, run.evaluations[-1]
    reason = "the agreement stopped rising" if run.stopped_rising else f"the budget of {minutes:g} minutes was used up"
    if last.step == 0:
        run.discard()
        raise RetrieverError(
            f"{minutes:g} minutes are too short to tune this encoder on this machine: the first measurement alone took "
            f"{run.seconds():.0f} s. Give more `minutes`."
        )
    if best.step == 0:
        run.discard()
        raise RetrieverError(
            "tuning did not help, so no encoder was written: the agreement with BM25 was "
            f"{before.agreement:.3f} before and {last.agreement:.3f} after {last.step:,} steps. Use the encoder as "
            "it is."
        )
    run.finish()
    return Tuned(
        folder=run.out,
        passages=len(texts.training),
        held_out=len(texts.held_out),
        before=before,
        after=best,
        evaluations=tuple(run.evaluations),
        seconds=run.seconds(),
        stopped=reason,
        note=note,
    )
