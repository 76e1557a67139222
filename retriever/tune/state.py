"""The state of a run of tuning on disk, so that an interrupted run continues.

    OUT/.tuning/run.json           what the run was started with, its evaluations, and the time it took so far
    OUT/.tuning/best-STEP/         the best state so far
    OUT/.tuning/checkpoint-STEP/   the last state, with the state of the optimizer

At the end, the best state becomes the encoder in OUT, and the folder .tuning is deleted.
"""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from retriever.errors import Misuse
from retriever.files import atomic_write
from retriever.tune.evidence import Measurement

FOLDER, RUN, REPORT = ".tuning", "run.json", "tuning.json"
# The trainer writes this file of a checkpoint last.
LAST_WRITTEN = "trainer_state.json"
PATIENCE = 3
"""Tuning stops after this many evaluations without a higher agreement."""


@dataclass(frozen=True)
class Evaluation:
    """What was measured after a number of steps."""

    step: int
    agreement: float
    loss: float
    seconds: float


class RunState:
    """The evaluations of a run and its time, in memory and on disk."""

    def __init__(
        self,
        out: Path,
        settings: dict[str, Any],
        budget: float,
        save: Callable[[Any, Path], None],
        began: float | None = None,
    ) -> None:
        """Begin a run in an empty folder, or continue the run that `out` holds."""
        self.out, self.folder = out, out / FOLDER
        self.settings = settings
        self.budget = budget
        """Seconds of all runs of the same command together."""
        self.evaluations: list[Evaluation] = []
        self.evaluation_seconds = 0.0
        self._save = save
        self._began, self._before = time.monotonic() if began is None else began, 0.0
        if found := self._read():
            checkpoint = self.last_checkpoint()
            last = checkpoint_step(checkpoint) if checkpoint else 0
            self.evaluations = [Evaluation(**one) for one in found["evaluations"] if one["step"] <= last]
            self.evaluation_seconds, self._before = found["evaluation_seconds"], found["seconds"]

    def _read(self) -> dict[str, Any] | None:
        if not self.out.exists():
            return None
        if not self.out.is_dir():
            raise Misuse(f"{self.out} is a file; `out` must be a new folder.")
        path = self.folder / RUN
        if path.is_file():
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            changed = [key for key, value in self.settings.items() if found["settings"].get(key) != value]
            if changed:
                raise Misuse(
                    f"{self.out} holds an unfinished run with another {' and another '.join(changed)}. Run the command "
                    "that began it, delete the folder, or give a new folder as `out`."
                )
            return found
        if any(path for path in self.out.iterdir() if path.name != FOLDER):
            raise Misuse(f"{self.out} is not empty; `out` must be a new folder.")
        return None

    def seconds(self) -> float:
        """Return how long this run has taken, with the interrupted runs that it continues."""
        return self._before + time.monotonic() - self._began

    def has_time(self) -> bool:
        """Return whether there is time for a step and another evaluation."""
        return self.seconds() + self.evaluation_seconds < self.budget

    @property
    def best(self) -> Evaluation:
        return best_of(self.evaluations)

    @property
    def stopped_rising(self) -> bool:
        return sum(one.step > self.best.step for one in self.evaluations) >= PATIENCE

    def best_folder(self) -> Path:
        return self.folder / f"best-{self.best.step}"

    def record(self, step: int, found: Measurement, model: Any) -> None:
        """Add an evaluation. If it is the best so far, save the model."""
        known = [one for one in self.evaluations if one.step < step]
        self.evaluations = [*known, Evaluation(step, found.agreement, found.loss, round(self.seconds(), 1))]
        if step and self.best.step == step:
            shutil.rmtree(self.best_folder(), ignore_errors=True)
            with atomic_write(self.best_folder()) as temporary:
                self._save(model, temporary)

    def write(self) -> None:
        """Write the run, and delete older best states, except the one that the last checkpoint would continue with."""
        with atomic_write(self.folder / RUN) as temporary:
            temporary.write_text(json.dumps(self.to_json(), indent=2), encoding="utf-8")
        checkpoint = self.last_checkpoint()
        last = checkpoint_step(checkpoint) if checkpoint else 0
        kept = {best_of(self.evaluations), best_of([one for one in self.evaluations if one.step <= last])}
        for folder in self.folder.glob("best-*"):
            if folder.name not in {f"best-{one.step}" for one in kept}:
                shutil.rmtree(folder)

    def to_json(self) -> dict[str, Any]:
        return {
            "settings": self.settings,
            "seconds": round(self.seconds(), 1),
            "evaluation_seconds": round(self.evaluation_seconds, 1),
            "evaluations": [asdict(one) for one in self.evaluations],
        }

    def last_checkpoint(self) -> Path | None:
        found = [path for path in self.folder.glob("checkpoint-*") if (path / LAST_WRITTEN).is_file()]
        return max(found, key=checkpoint_step, default=None)

    def finish(self) -> None:
        """Make the best state the encoder in the folder `out`, with a report, and delete everything else."""
        shutil.copytree(self.best_folder(), self.out, dirs_exist_ok=True)
        (self.out / REPORT).write_text(json.dumps(self.to_json(), indent=2), encoding="utf-8")
        shutil.rmtree(self.folder)

    def discard(self) -> None:
        """Delete the run, and the folder `out` if nothing else is in it."""
        shutil.rmtree(self.folder)
        if not any(self.out.iterdir()):
            self.out.rmdir()


def best_of(evaluations: Sequence[Evaluation]) -> Evaluation:
    """Return the evaluation with the highest agreement. In a tie, return the first."""
    return max(evaluations, key=lambda one: one.agreement)


def checkpoint_step(folder: Path) -> int:
    return int(folder.name.rpartition("-")[2])
