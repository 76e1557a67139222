"""Readers in processes of their own, of every habit, while one writer changes a collection without a pause.

The writer changes whole groups of documents at once: all of a group say the same number, `epoch`, at any moment. A
reader asks for a group and checks that it got all of it, of one epoch, ranked and scored as the texts it got are.
"""

import itertools
import multiprocessing
import os
import random
import threading
import time
import traceback
from dataclasses import dataclass, field
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

GROUPS = 4
MEMBERS = 6
HABITS = ("stays open", "opens anew", "threads", "forks")


@dataclass
class Gathering:
    """What came of it."""

    searches: int = 0
    writes: int = 0
    publications: int = 0
    problems: list[str] = field(default_factory=list)


def text_of(group: int, member: int, epoch: int) -> str:
    return (
        f"Member {member} of group {group} tells about {'rivers' if epoch % 2 else 'mountains'} for the {epoch}th time."
    )


def documents_of(group: int, epoch: int) -> list[dict[str, Any]]:
    return [
        {"id": f"{group}-{m}", "text": text_of(group, m, epoch), "group": group, "epoch": epoch} for m in range(MEMBERS)
    ]


def gather(folder: Path, encoder: str, *, readers: int, seconds: float) -> Gathering:
    """Make a collection, and have readers and a writer at it for so long."""
    from retriever import Retriever

    first = [document for group in range(GROUPS) for document in documents_of(group, 0)]
    Retriever.build(first, folder, encoder=encoder, transform="center", precision="fp32").close()
    spawn = multiprocessing.get_context("spawn")
    told: Queue[tuple[str, Any]] = spawn.Queue()
    until = time.time() + seconds
    crowd = [
        spawn.Process(target=_report, args=(told, _read, str(folder), HABITS[n % len(HABITS)], n, until))
        for n in range(readers)
    ]
    crowd.append(spawn.Process(target=_report, args=(told, _write, str(folder), "", 0, until)))
    for one in crowd:
        one.start()
    found = Gathering()
    for _ in crowd:
        kind, value = told.get(timeout=seconds + 300)
        if kind == "searches":
            found.searches += value
        elif kind == "writes":
            found.writes, found.publications = value
        else:
            found.problems.append(value)
    for one in crowd:
        one.join(60)
        if one.exitcode != 0:
            found.problems.append(f"a process ended with {one.exitcode}")
    with Retriever.open(folder) as retriever:
        found.problems += [f"verify: {problem}" for problem in retriever.verify().problems]
        generations = [path.name for path in (folder / "generations").iterdir()]
    if len(generations) != 1:
        found.problems.append(f"generations were left: {generations}")
    return found


def _report(told: "Queue[tuple[str, Any]]", work: Any, *args: Any) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        told.put(work(*args))
    except BaseException:
        told.put(("problem", f"{work.__name__} {args[1]}: {traceback.format_exc(limit=-5)}"))


def _write(folder: str, _habit: str, seed: int, until: float) -> tuple[str, tuple[int, int]]:
    from retriever import Retriever
    from retriever.ingest import writer

    writer.BACKLOG_ROWS = 20  # publications are what readers must get over
    rng, writes = random.Random(seed), 0
    with Retriever.open(folder) as retriever:
        for epoch in itertools.count(1):
            # On a busy machine the time may be over before anything was published.
            if time.time() > until and _published(retriever) > 1:
                break
            group = rng.randrange(GROUPS)
            retriever.add(documents_of(group, epoch))
            if rng.random() < 0.2:
                extra = [f"extra-{number}" for number in range(5)]
                retriever.add([{"id": id_, "text": f"{id_} of epoch {epoch}.", "group": -1} for id_ in extra])
                retriever.delete(extra)
            if rng.random() < 0.2:
                retriever.rebuild(transform=rng.choice(["none", "center", "whiten", "standardize"]))
            writes += 1
        published = _published(retriever)
    return "writes", (writes, published)


def _published(retriever: Any) -> int:
    return int(retriever.collection.generation().number)


def _read(folder: str, habit: str, seed: int, until: float) -> tuple[str, int]:
    from retriever import Retriever

    rng, searches = random.Random(seed), 0
    if habit == "opens anew":
        while time.time() < until:
            with Retriever.open(folder) as retriever:
                _look(retriever, rng)
            searches += 1
        return "searches", searches
    with Retriever.open(folder) as retriever:
        if habit == "forks":
            _look(retriever, rng)
            return "searches", 1 + _in_children(retriever, seed, until)
        if habit == "threads":
            return "searches", _in_threads(retriever, seed, until)
        while time.time() < until:
            _look(retriever, rng)
            searches += 1
    return "searches", searches


def _in_children(retriever: Any, seed: int, until: float) -> int:
    """Searches in one forked child after another, each with the retriever of its parent."""
    searches = 0
    while time.time() < until:
        child = os.fork()
        if not child:
            status = 1
            try:
                for number in range(5):
                    _look(retriever, random.Random(f"{seed} {searches} {number}"))
                status = 0
            except BaseException:
                traceback.print_exc()
            os._exit(status)
        _, ended = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(ended) == 0, "a forked child could not search"
        searches += 5
    return searches


def _in_threads(retriever: Any, seed: int, until: float) -> int:
    counts, problems = [0, 0, 0], []

    def work(number: int) -> None:
        rng = random.Random(f"{seed} {number}")
        try:
            while time.time() < until:
                _look(retriever, rng)
                counts[number] += 1
        except BaseException:
            problems.append(traceback.format_exc(limit=-5))

    threads = [threading.Thread(target=work, args=[number]) for number in range(len(counts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, problems[0]
    return sum(counts)


def _look(retriever: Any, rng: random.Random) -> None:
    """One search of a random kind, and all that must be true of its hits."""
    group, mode = rng.randrange(GROUPS), rng.choice(["dense", "dense", "raw", "lexical", "hybrid"])
    query = text_of(group, rng.randrange(MEMBERS), rng.randrange(4))
    options: dict[str, Any] = {"space": "raw", "mode": "dense"} if mode == "raw" else {"mode": mode}
    hits = retriever.search(query, 50, where=[f"group = {group}"], **options)
    assert sorted(hit.id for hit in hits) == sorted(f"{group}-{m}" for m in range(MEMBERS)), f"{mode}: {hits}"
    epochs = {hit.metadata["epoch"] for hit in hits}
    assert len(epochs) == 1, f"{mode}: a mix of the epochs {epochs}"
    for hit in hits:
        assert hit.passage == text_of(group, int(hit.id.split("-")[1]), hit.metadata["epoch"]), f"{mode}: {hit}"
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True), f"{mode}: {scores}"
    if mode == "raw":
        _check_cosines(retriever, query, hits)


def _check_cosines(retriever: Any, query: str, hits: list[Any]) -> None:
    import numpy as np

    vectors = retriever.encoder().encode([query, *[hit.passage for hit in hits]]).astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = vectors[1:] @ vectors[0]
    assert np.allclose(expected, [hit.score for hit in hits], atol=2e-3), f"{expected} {[h.score for h in hits]}"
