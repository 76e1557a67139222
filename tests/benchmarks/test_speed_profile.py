"""`python -m benchmarks speed --profile`: which stage a stack is in, and samples of a real run."""

import threading
import time

import pytest

from benchmarks.speed.profile import (
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

ENCODER, PASSAGES = "retriever.encoder.encoder", "retriever.corpus.passages"
INGEST = Place("retriever.ingest.pipeline", "run")


@pytest.mark.parametrize(
    ("stack", "stage"),
    [
        (
            [Place("torch.nn.functional", "linear"), Place(ENCODER, "encode_tokens"), INGEST],
            ENCODING,
        ),
        (
            [Place(ENCODER, "count_tokens"), Place(PASSAGES, "split"), INGEST],
            TOKENISING,
        ),
        ([Place(ENCODER, "token_batches"), INGEST], TOKENISING),
        (
            [Place("retriever.encoder.model_loader", "load_model"), Place(ENCODER, "_model")],
            LOADING,
        ),
        ([Place("json", "loads"), Place("retriever.corpus.lines", "read"), INGEST], READING),
        ([Place(PASSAGES, "split"), INGEST], SPLITTING),
        ([Place("indexes.sqlite.documents", "add_vectors"), INGEST], STORING),
        ([Place("indexes.sqlite.documents", "vectors"), Place("retriever.ingest.writer", "publish")], FITTING),
        (
            [
                Place("indexes.sqlite.documents", "blocks"),
                Place("indexes.folder.collection", "publish"),
                Place("retriever.ingest.writer", "publish"),
            ],
            BUILDING,
        ),
        ([Place("retriever.transforms.flow.flow", "fit")], FITTING),
        ([Place("faiss", "add"), Place("indexes.faiss.vectors", "build")], BUILDING),
        ([INGEST], OTHER),
        ([Place("threading", "wait"), Place("queue", "get"), INGEST], WAITING),
        ([Place("somewhere.else", "run")], WAITING),
    ],
)
def test_the_innermost_function_of_ours_says_the_stage(stack: list[Place], stage: str) -> None:
    assert stage_of(stack)[0] == stage


def test_threads_are_counted_each() -> None:
    names = {"__name__": "retriever.encoder.encoder", "time": time}
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
    assert found["functions"][0]["function"] == "retriever.encoder.encoder.busy"
