"""The demo's corpus: real, large enough, small enough, and without effects."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from retriever.cli.index import QUESTIONS
from retriever.corpus import Document
from retriever.corpus.python_docs import stdlib_documents

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    return list(stdlib_documents())


def test_some_thousands_of_distinct_documents(documents: list[Document]) -> None:
    assert len(documents) >= 3_000
    assert len({document.id for document in documents}) == len(documents)
    assert len({document.text for document in documents}) == len(documents)
    assert sum(len(document.title) + len(document.text) for document in documents) < 1_600_000
    kinds = Counter(document.metadata["kind"] for document in documents)
    assert set(kinds) == {"module", "class", "function", "method", "topic"}
    assert min(kinds.values()) > 30


def test_names_are_those_people_know(documents: list[Document]) -> None:
    titles = {document.id: document.title for document in documents}
    assert titles["functools.lru_cache"] == "functools.lru_cache(maxsize=128, typed=False)"
    assert titles["heapq.heappush"].startswith("heapq.heappush(")
    assert titles["topic:with"] == "The with statement"
    known = """
        itertools.groupby str.removeprefix collections.deque collections.Counter.most_common dict.fromkeys
        asyncio.sleep concurrent.futures.ThreadPoolExecutor threading.Timer os.path.join os.listdir math.isclose
        decimal.Decimal datetime.datetime.fromisoformat json.dumps print unittest.TestCase.assertEqual
    """
    for name in known.split():
        assert name in titles
    assert not [name for name in titles if name.startswith(("test.", "idlelib", "antigravity")) or "._" in name]


def test_texts_are_documentation(documents: list[Document]) -> None:
    found = {document.id: document for document in documents}
    assert found["threading.Timer"].text.startswith("Call a function after a specified number of seconds")
    assert found["threading.Timer"].metadata == {"module": "threading", "kind": "class"}
    assert found["topic:with"].text.startswith('The "with" statement is used to wrap')
    assert all(document.text == document.text.strip("\n") for document in documents)


def test_the_order_is_always_the_same_and_nothing_is_printed() -> None:
    """In fresh processes, as pytest changes modules; with warnings as errors and different hash seeds."""
    code = (
        "import sys; from retriever.corpus.python_docs import stdlib_documents\n"
        "ids = [d.id for d in stdlib_documents()];"
        "assert not {'torch', 'numpy', 'pyarrow', 'tkinter', 'antigravity', 'this'} & set(sys.modules);"
        "import hashlib; print(hashlib.sha256(repr(ids).encode()).hexdigest())"
    )
    printed = set()
    for seed in "17":
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-W", "error", "-c", code]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert run.stderr == ""
        printed.add(run.stdout)
    assert len(printed) == 1 and re.fullmatch(r"[0-9a-f]{64}\n", printed.pop())


def test_questions() -> None:
    assert len(QUESTIONS) == len(set(QUESTIONS)) == 5
    assert {
        "run a function every few seconds in the background",
        "remove duplicates from a list but keep the order",
    } <= set(QUESTIONS)
