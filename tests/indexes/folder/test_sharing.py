"""One collection, many users: threads, forked children, readers of old generations, writers that exclude each other."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from indexes.errors import Locked
from indexes.folder.verify import refuse_broken_log
from retriever import Document, Retriever
from retriever.encoder.reranker import Reranker

QUERY = "Number 7 is odd."


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Path:
    folder = tmp_path_factory.mktemp("original") / "c"
    documents = [Document(f"d{i}", f"Number {i} is {'even' if i % 2 == 0 else 'odd'}.") for i in range(120)]
    Retriever.build(documents, folder, encoder=tiny_bert, pooling="first-last", transform="center").close()
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "c"))


def generations(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "generations").iterdir())


def ranking(retriever: Retriever) -> list[tuple[str, float]]:
    return [(hit.id, hit.score) for hit in retriever.search(QUERY, 20)]


def written(retriever: Retriever) -> Iterator[None]:
    """Write and publish a few times. Yield after each change."""
    for number in range(6):
        retriever.add([Document("new", f"Some other thing, said {number} times.")])
        yield
        if number % 2:
            retriever.rebuild()
            yield
        retriever.delete(["new"])
        yield


@pytest.mark.heavy
def test_threads_share_a_retriever_while_one_of_them_writes(folder: Path, tmp_path: Path) -> None:
    def found(retriever: Retriever) -> tuple[str, ...]:
        return tuple(id_ for id_, _ in ranking(retriever))

    with Retriever.open(shutil.copytree(folder, tmp_path / "alone")) as alone:
        possible = {found(alone), *(found(alone) for _ in written(alone))}
    with Retriever.open(folder) as retriever:
        stop = threading.Event()

        def read() -> int:
            count = 0
            while not stop.is_set():
                assert found(retriever) in possible
                assert len(retriever) in (120, 121)
                count += 1
            return count

        with ThreadPoolExecutor(4) as pool:
            readers = [pool.submit(read) for _ in range(4)]
            for _ in written(retriever):
                pass
            stop.set()
            assert all(reader.result() > 0 for reader in readers)
        assert retriever.verify().clean


def test_two_threads_never_write_at_once(folder: Path) -> None:
    with Retriever.open(folder) as retriever, retriever.collection.writing(), ThreadPoolExecutor(1) as pool:
        with pytest.raises(Locked, match=str(os.getpid())):
            pool.submit(retriever.delete, ["d1"]).result()
        retriever.delete(["d1"])
        assert len(retriever) == 119


CHILD = Document("child", "What the child has to say.")


def _search_in_child(retriever: Retriever, possible: list[list[tuple[str, float]]], writing: bool) -> None:
    assert ranking(retriever) in possible
    for hits in retriever.search_many([QUERY] * 50, 20):
        assert [hit.id for hit in hits] in [[id_ for id_, _ in one] for one in possible]
    if writing:
        retriever.add([CHILD])
        assert retriever.search("What the child has to say.", 1)[0].id == "child"


@pytest.mark.heavy
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize(("writing", "index_type"), [(False, "flat"), (True, "flat"), (False, "sq8"), (True, "HNSW8")])
def test_a_child_forked_after_opening(folder: Path, tmp_path: Path, writing: bool, index_type: str) -> None:
    with Retriever.open(folder) as retriever:
        if index_type != "flat":
            retriever.rebuild(index_type=index_type)
        expected = ranking(retriever)
        possible = [expected]
        if writing:  # the other child may search before or after
            with Retriever.open(shutil.copytree(folder, tmp_path / "alone")) as alone:
                alone.add([CHILD])
                possible.append(ranking(alone))
        retriever.search_many([QUERY] * 50)  # by now every library has begun what threads it has
        fork = multiprocessing.get_context("fork")
        children = [
            fork.Process(target=_search_in_child, args=(retriever, possible, writing and number == 0))
            for number in range(2)
        ]
        for child in children:
            child.start()
        for child in children:
            child.join(60)
            assert child.exitcode == 0
        assert ("child" in {hit.id for hit in retriever.search(CHILD.text, 1)}) == writing
        retriever.delete(["child"])
        assert ranking(retriever) == expected
        assert retriever.verify().clean


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_that_closes_what_it_inherited_takes_nothing_from_its_parent(folder: Path) -> None:
    with Retriever.open(folder) as retriever:
        expected = ranking(retriever)
        child = multiprocessing.get_context("fork").Process(target=retriever.close)
        child.start()
        child.join(60)
        assert child.exitcode == 0
        retriever.add([Document("later", "Written after the child had closed.")])
        assert retriever.verify().clean
        retriever.delete(["later"])
        assert ranking(retriever) == expected


def _forked(work: Callable[[], object], seconds: float = 60) -> int | None:
    """The exit status of a child that does some work; None if it has not come to its end by then."""
    child = os.fork()
    if not child:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        os._exit(status)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


@pytest.mark.heavy
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize(
    "children", [pytest.param(12, id="quick"), pytest.param(40, id="often", marks=pytest.mark.slow)]
)
def test_children_forked_while_threads_search(folder: Path, children: int) -> None:
    """Threads come and go, each with a connection of its own: what they lock for a moment is not locked in a child."""
    with Retriever.open(folder) as retriever:
        expected = ranking(retriever)
        stop = threading.Event()

        def search() -> None:
            assert ranking(retriever) == expected
            assert retriever.search(QUERY, 5, mode="hybrid")

        def keep_searching() -> int:
            count = 0
            while not stop.is_set():
                with ThreadPoolExecutor(1) as one:
                    one.submit(search).result()
                count += 1
            return count

        with ThreadPoolExecutor(3) as pool:
            searching = [pool.submit(keep_searching) for _ in range(3)]
            try:
                ended = [_forked(search) for _ in range(children)]
            finally:
                stop.set()
            assert all(one.result() > 0 for one in searching)
        assert ended == [0] * children


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_waits_for_the_searches_of_other_threads(folder: Path) -> None:
    entered, go_on = threading.Event(), threading.Event()

    class Slow(Reranker):
        def __init__(self) -> None:
            pass

        def scores(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
            entered.set()
            assert go_on.wait(60)
            return np.zeros(len(texts), np.float32)

    with Retriever.open(folder) as retriever, ThreadPoolExecutor(2) as pool:
        searching = pool.submit(retriever.search, QUERY, rerank=Slow())
        assert entered.wait(60)
        forking = pool.submit(_forked, lambda: ranking(retriever))
        time.sleep(0.3)
        waited = not forking.done() and not searching.done()
        go_on.set()
        assert waited
        assert forking.result() == 0 and len(searching.result()) == 10


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_what_another_thread_had_locked_is_free_in_a_child(folder: Path) -> None:
    held, go_on = threading.Event(), threading.Event()
    with Retriever.open(folder) as retriever, ThreadPoolExecutor(1) as pool:

        def hold() -> None:
            with retriever._encoder_lock, retriever.collection._loading:
                held.set()
                go_on.wait(60)

        holding = pool.submit(hold)
        assert held.wait(60)
        try:
            assert _forked(lambda: ranking(retriever)) == 0
        finally:
            go_on.set()
        holding.result()


@pytest.mark.heavy
def test_no_thread_loses_its_connection_to_one_that_comes_or_goes(folder: Path) -> None:
    """A new thread may get the number of one that has ended, whose connection is being closed."""
    with Retriever.open(folder) as retriever:
        expected = ranking(retriever)
        stop = threading.Event()

        def churn() -> None:
            for _ in range(30):
                with ThreadPoolExecutor(1) as one:
                    assert one.submit(ranking, retriever).result() == expected

        def close() -> None:
            while not stop.is_set():
                retriever.collection.store._close_of_ended_threads()

        with ThreadPoolExecutor(4) as pool:
            closing = pool.submit(close)
            churning = [pool.submit(churn) for _ in range(3)]
            try:
                for one in churning:
                    one.result()
            finally:
                stop.set()
            closing.result()


def test_a_log_that_another_process_has_open_is_no_damage(folder: Path) -> None:
    write = (
        "import sys, retriever; r = retriever.Retriever.open(sys.argv[1]); r.delete(['d1']); "
        "print('done', flush=True); input(); r.close()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", write, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout and other.stdout.readline() == "done\n"
        assert (folder / "documents.sqlite-wal").stat().st_size
        refuse_broken_log(folder)
        other.communicate("\n")
    refuse_broken_log(folder)


def test_a_reader_keeps_its_generation_until_it_lets_go(folder: Path) -> None:
    with Retriever.open(folder) as writer:
        reader = Retriever.open(folder)
        before = ranking(reader)
        held = reader.collection._loaded
        assert held is not None and generations(folder) == ["000001"]
        writer.rebuild(transform="whiten")
        writer.rebuild(transform="standardize")
        assert generations(folder) == ["000001", "000003"], "the one in use is kept, the one nobody has is gone"
        space = reader.collection._spaces.index
        assert space is not None and len(space.nearest_vectors(held[1].vectors(held[1].numbers[:1]), 5)[0].numbers) >= 5
        assert ranking(reader) != before, "the next search is in the newest generation"
        del held, space
        assert ranking(reader) == ranking(writer)
        reader.close()
        writer.rebuild(transform="center")
        assert ranking(writer) == before
        assert generations(folder) == ["000004"]


def test_the_last_reader_removes_what_was_superseded(folder: Path) -> None:
    with Retriever.open(folder) as writer:
        readers = [Retriever.open(folder) for _ in range(2)]
        for reader in readers:
            ranking(reader)
        writer.rebuild()
        readers[0].close()
        assert generations(folder) == ["000001", "000002"]
        readers[1].close()
        assert generations(folder) == ["000002"]
