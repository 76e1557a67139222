"""Measure where the time of an ingestion goes, by stage and thread.

Every few milliseconds a thread samples the stacks of all other threads (`sys._current_frames`). The innermost function
of `retriever` or `indexes` on a stack determines the stage, so the ingestion code needs no changes. Threads that run at
the same time count separately.
"""

import re
import sys
import threading
import time
from collections import Counter
from types import FrameType, TracebackType
from typing import Any, NamedTuple, Self

EVERY_SECONDS = 0.005
TOP_FUNCTIONS = 15
READING, SPLITTING, TOKENISING, ENCODING = "reading", "splitting", "tokenising", "encoding"
STORING, FITTING, BUILDING = "storing", "fitting", "building the index"
LOADING, WAITING, OTHER = "loading the model", "waiting", "other"
STAGES = (READING, SPLITTING, TOKENISING, ENCODING, STORING, FITTING, BUILDING, LOADING, OTHER, WAITING)

# The first rule that matches a function's module and name determines the stage.
RULES = tuple(
    (stage, re.compile(module), re.compile(function))
    for stage, module, function in (
        (
            WAITING,
            r"retriever\.encoder\.batches",
            r"^(finished|_work)$",
        ),  # in C code of a queue and a semaphore
        (ENCODING, r"retriever\.encoder\.model_loader", r"^padded$"),
        (LOADING, r"retriever\.(encoder\.(model_|runtimes\.onnx_export)|files)", r""),
        (LOADING, r"retriever\.encoder", r"^(_?model|open_session|_?tokenizer|is_exported|__init__)$"),
        (TOKENISING, r"retriever\.encoder", r"count_tokens|token_batches|batches_by_length|tokeni[sz]e|token_budget"),
        (ENCODING, r"retriever\.(encoder|ingest\.pooling_choice)", r""),
        (SPLITTING, r"retriever\.corpus\.passages", r""),
        (FITTING, r"retriever\.(transforms|corpus\.short_texts|ingest\.(writer|fitted|precision_choice))", r""),
        (READING, r"retriever\.corpus", r""),
        (BUILDING, r"indexes\.(faiss|folder)", r""),
        (STORING, r"indexes\.", r""),
    )
)
PACKAGES = ("retriever", "indexes")
PUBLISHING = ("retriever.ingest.writer", "retriever.ingest.fitted")
BUILDER = ("indexes.folder.collection", "publish")
WAITS = ("threading", "queue", "concurrent.futures.thread", "concurrent.futures._base", "selectors")


class Place(NamedTuple):
    module: str
    function: str


def stage_of(stack: list[Place]) -> tuple[str, str]:
    """Return the stage and the function of a stack, whose innermost frame comes first.

    A stack without our code counts as waiting.
    """
    own = [place for place in stack if place.module.partition(".")[0] in PACKAGES]
    if not own:
        return WAITING, ""
    named = f"{own[0].module}.{own[0].function}"
    if stack[0].module in WAITS:
        return WAITING, named
    stage = next(
        (s for s, module, name in RULES if module.match(own[0].module) and name.search(own[0].function)), OTHER
    )
    if stage == STORING:  # the tables are also read to fit a transform and to build an index
        if BUILDER in own:
            stage = BUILDING
        elif any(place.module in PUBLISHING for place in own):
            stage = FITTING
    return stage, named


class Sampler:
    """A context manager that samples all other threads of the process."""

    def __init__(self) -> None:
        self.by_thread: dict[str, Counter[str]] = {}
        self.functions: Counter[tuple[str, str]] = Counter()
        self.samples = 0
        self.without_encoder = 0
        self.seconds = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = time.perf_counter() - self._began
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(EVERY_SECONDS):
            self._sample()

    def _sample(self) -> None:
        own = threading.get_ident()
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        stages = set()
        for ident, frame in sys._current_frames().items():
            if ident == own:
                continue
            stage, function = stage_of(_places(frame))
            stages.add(stage)
            self.by_thread.setdefault(re.sub(r"\d+", "", names.get(ident, "?")), Counter())[stage] += 1
            if stage != WAITING:
                self.functions[stage, function] += 1
        self.samples += 1
        self.without_encoder += ENCODING not in stages

    def figures(self) -> dict[str, Any]:
        """Return shares of the wall time: of each stage over all threads, of each thread, and without any encoder.

        The shares of threads that run at the same time add up to more than 1.
        """
        samples = max(self.samples, 1)
        shares = {
            stage: sum(counts[stage] for counts in self.by_thread.values()) / samples
            for stage in STAGES
            if stage != WAITING
        }
        threads = {
            name: {stage: counts[stage] / samples for stage in STAGES if counts[stage]}
            for name, counts in self.by_thread.items()
            if set(counts) - {WAITING}
        }
        top = [
            {"stage": stage, "function": function, "share": count / samples}
            for (stage, function), count in self.functions.most_common(TOP_FUNCTIONS)
        ]
        return {
            "shares": shares,
            "without_encoder_share": self.without_encoder / samples,
            "wall_seconds": self.seconds,
            "samples": self.samples,
            "threads": threads,
            "functions": top,
        }


def _places(frame: FrameType | None) -> list[Place]:
    found = []
    while frame is not None:
        found.append(Place(str(frame.f_globals.get("__name__", "")), frame.f_code.co_name))
        frame = frame.f_back
    return found


def profile_ingestion(source: str, folder: str, model: str) -> dict[str, Any]:
    """Sample an ingestion. All imports are done before the sampling starts."""
    import torch  # noqa: F401
    import transformers  # noqa: F401

    from retriever import Corpus, Retriever
    from retriever.encoder.encoder import Encoder

    Encoder(model, device="cpu").encode(["warm"])
    with Sampler() as sampler:
        Retriever.build(Corpus([source]), folder, encoder=model, device="cpu").close()
    return sampler.figures()
