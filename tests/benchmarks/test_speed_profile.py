"""`bench speed --profile`: which stage a stack is in, and samples of a real run."""

import threading
import time

import pytest

from benchmarks.speed_profile import (
    BUILDING,
    ENCODING,
    FITTING,
    LOADING,
    OTHER,
    READING,
    SPLITTING,
    STORING,
    TOKENISING,
    WAITING,
    Place,
    Sampler,
    stage_of,
)

INGEST = Place("retriever.ingest", "run")


@pytest.mark.parametrize(
    ("stack", "stage"),
    [
        ([Place("torch.nn.functional", "linear"), Place("retriever.encoder", "_encode_tokens"), INGEST], ENCODING),
        ([Place("retriever.encoder", "count_tokens"), Place("retriever.passages", "split"), INGEST], TOKENISING),
        ([Place("retriever.encoder", "_token_batches"), INGEST], TOKENISING),
        ([Place("retriever.loading", "load_model"), Place("retriever.encoder", "_model")], LOADING),
        ([Place("json", "loads"), Place("retriever.corpus.lines", "read"), INGEST], READING),
        ([Place("retriever.passages", "split"), INGEST], SPLITTING),
        ([Place("indexes.documents", "add_vectors"), INGEST], STORING),
        ([Place("indexes.documents", "vectors"), Place("retriever.publishing", "publish")], FITTING),
        (
            [
                Place("indexes.documents", "blocks"),
                Place("indexes.collection", "publish"),
                Place("retriever.publishing", "_publish"),
            ],
            BUILDING,
        ),
        ([Place("retriever.transforms.flow", "fit")], FITTING),
        ([Place("faiss", "add"), Place("indexes.vectors", "build")], BUILDING),
        ([INGEST], OTHER),
        ([Place("threading", "wait"), Place("queue", "get"), INGEST], WAITING),
        ([Place("somewhere.else", "run")], WAITING),
    ],
)
def test_the_innermost_function_of_ours_says_the_stage(stack: list[Place], stage: str) -> None:
    assert stage_of(stack)[0] == stage


def test_threads_are_counted_each() -> None:
    names = {"__name__": "retriever.encoder", "time": time}
    exec("def busy(until):\n    while not until.is_set():\n        time.sleep(0.001)\n", names)
    stop = threading.Event()
    with Sampler() as sampler:
        threads = [threading.Thread(target=names["busy"], args=(stop,), name=f"busy-{n}") for n in range(2)]
        for thread in threads:
            thread.start()
        while sampler.samples < 20:
            time.sleep(0.005)
        stop.set()
        for thread in threads:
            thread.join()
    found = sampler.figures()
    assert found["shares"][ENCODING] > 1  # two at once
    assert found["without_encoder_share"] < 1
    assert set(found["threads"]) == {"busy-"}
    assert found["functions"][0]["function"] == "retriever.encoder.busy"
