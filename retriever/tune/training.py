"""Trains the encoder with the trainer of sentence-transformers, and decides when to evaluate, to save and to stop.

The learning rate is constant after a short warm-up. So the state after a number of steps depends on the seed alone, and
not on the time budget.
"""

import time
from collections.abc import Sequence
from typing import Any

from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch.utils.data import SequentialSampler
from transformers import TrainerCallback
from transformers.trainer_callback import PrinterCallback

from retriever.progress import Progress
from retriever.tune.evidence import SCALE, Evidence
from retriever.tune.model import encode, has_bfloat16
from retriever.tune.state import RunState
from retriever.tune.texts import Pair

BATCH_SIZE = 64
LEARNING_RATE, WARMUP_STEPS = 3e-5, 10
MOST_STEPS = 100_000
# The first evaluations are FIRST_GAP steps apart. Later the gap is a fifth of the steps so far.
FIRST_GAP, GAP = 20, 5


def next_evaluation(step: int) -> int:
    """Return the step of the next evaluation after an evaluation at `step`."""
    return step + max(FIRST_GAP, step // GAP)


class Supervisor(TrainerCallback):
    """Evaluates the model, keeps the best state, and stops the trainer when the agreement stops rising or the time is
    used up."""

    def __init__(self, state: RunState, evidence: Evidence, progress: Progress) -> None:
        self.state = state
        self.evidence = evidence
        self.progress = progress
        self.due = next_evaluation(state.evaluations[-1].step)
        self._step_began = time.monotonic()
        self._longest_step = 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._step_began = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        run, step = self.state, int(state.global_step)
        self._longest_step = max(self._longest_step, time.monotonic() - self._step_began)
        out_of_time = run.seconds() + self._longest_step + run.evaluation_seconds > run.budget
        if step >= self.due or out_of_time:
            evaluate(run, step, more["model"], self.evidence)
            self.due = next_evaluation(step)
            control.should_save = True
        if out_of_time or run.stopped_rising:
            control.should_training_stop = True
        best, last = run.best, run.evaluations[-1]
        detail = f"seconds; step {step:,}, agreement {last.agreement:.3f}, best {best.agreement:.3f} at {best.step:,}"
        self.progress("tuning", min(round(run.seconds()), round(run.budget)), round(run.budget), detail)


def evaluate(run: RunState, step: int, model: SentenceTransformer, evidence: Evidence) -> None:
    """Measure the model and record it, and how long this takes. If the model is the best so far, save it."""
    began = time.monotonic()
    found = evidence.measure(lambda texts: encode(model, texts))
    run.record(step, found, model)
    run.evaluation_seconds = max(run.evaluation_seconds, time.monotonic() - began)
    run.write()


class _InOrder(DefaultBatchSampler):
    """Keeps the order of the pairs, which are already arranged in batches."""

    def __init__(self, dataset: Dataset, **options: Any) -> None:
        super().__init__(SequentialSampler(dataset), **options)


class _Trainer(SentenceTransformerTrainer):
    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Add nothing, unlike the base class: a model card would quote the corpus."""


def train(
    model: SentenceTransformer, pairs: Sequence[Pair], run: RunState, evidence: Evidence, progress: Progress, seed: int
) -> None:
    """Train until the supervisor stops. Continue from the last complete checkpoint of the run, if there is one."""
    device = model.device.type
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(run.folder),
        max_steps=MOST_STEPS,
        per_device_train_batch_size=BATCH_SIZE,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=WARMUP_STEPS,
        weight_decay=0.0,
        bf16=has_bfloat16(device),
        use_cpu=device == "cpu",
        seed=seed,
        optim="adamw_torch_fused",
        save_strategy="no",
        save_total_limit=1,
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_drop_last=True,
        dataloader_pin_memory=device == "cuda",
        batch_sampler=_InOrder,
    )
    anchors, positives = zip(*pairs, strict=True)
    trainer = _Trainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_dict({"anchor": anchors, "positive": positives}),
        loss=MultipleNegativesRankingLoss(model, scale=SCALE),
        callbacks=[Supervisor(run, evidence, progress)],
    )
    trainer.remove_callback(PrinterCallback)
    checkpoint = run.last_checkpoint()
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
