"""The interactive session and what reaches the terminal: what is typed, whatever it is, gets an answer."""

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from indexes.folder.verify import Report
from retriever import Document, Retriever
from retriever.cli.display import console
from retriever.cli.display.console import show_document, show_hits
from retriever.cli.display.reports import show_ingest, show_verify
from retriever.cli.prompt import Prompt
from retriever.corpus import Skipped
from retriever.hits import Hit, Options
from retriever.info import describe_transform
from retriever.ingest.pipeline import IngestReport
from retriever.terminal import cut, lines, one_line

DOCUMENTS = [
    Document(f"d{n}", f"{word} and other things.", metadata={"legs": 6 if word in ("ant", "bee") else 4})
    for n, word in enumerate("ant bee cat dog elk fox".split())
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Path:
    path = tmp_path_factory.mktemp("prompt") / "c"
    Retriever.build(DOCUMENTS, path, encoder=tiny_bert, transform="center", device="cpu").close()
    return path


@pytest.fixture
def retriever(folder: Path) -> Iterator[Retriever]:
    with Retriever.open(folder) as opened:
        yield opened


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is printed, colours included."""
    written = io.StringIO()
    for name in ("out", "err"):
        recording = Console(
            file=written, highlight=False, markup=False, emoji=False, width=80, color_system="standard",
            force_terminal=True,
        )  # fmt: skip
        monkeypatch.setattr(console, name, recording)
    return written


@pytest.mark.parametrize("argument", ["²", "0", "-1", "x", "", "9" * 5000, "1.5", "\udcff"])
def test_what_is_no_number_is_said_to_be_none(retriever: Retriever, shown: io.StringIO, argument: str) -> None:
    prompt = Prompt(retriever, k=2)
    prompt.answer("cat")
    for command in (":similar", ":show"):
        shown.truncate(0)
        prompt.answer(f"{command} {argument}")
        assert "Give the number of a hit, from 1 to 2" in shown.getvalue()
    prompt.answer(f":k {argument}")
    assert ":k takes a number of hits" in shown.getvalue() and prompt.k == 2


def test_more_goes_on_with_similar_ones_and_compare_with_the_query(retriever: Retriever, shown: io.StringIO) -> None:
    prompt = Prompt(retriever, k=2)
    prompt.answer("cat")
    first = prompt.hits[0].id
    prompt.answer(":similar 1")
    prompt.answer(":more")
    assert [hit.id for hit in prompt.hits] == [hit.id for hit in retriever.similar(first, 4)]
    prompt.answer(":compare")
    assert "“cat”" in shown.getvalue() and "raw encoder" in shown.getvalue()
    prompt.answer(":more")
    prompt.answer(":more")
    assert "There are no more hits" in shown.getvalue() and len(prompt.hits) == 5


def test_a_failed_query_leaves_the_last_one(retriever: Retriever, shown: io.StringIO) -> None:
    prompt = Prompt(retriever, k=2)
    prompt.answer("cat")
    hits = prompt.hits
    prompt.answer("caf\udce9")
    assert "not valid UTF-8" in shown.getvalue()
    assert (prompt.query, prompt.hits) == ("cat", hits)


def test_mode_and_where_hold_from_then_on(retriever: Retriever, shown: io.StringIO) -> None:
    prompt = Prompt(retriever, k=10)
    prompt.answer(":mode lexical")
    prompt.answer("cats")
    assert [hit.id for hit in prompt.hits] == ["d2"]
    prompt.answer(":where legs = 6")
    prompt.answer("cats")
    assert prompt.hits == [] and "Nothing found among the documents that match the filter" in shown.getvalue()
    prompt.answer(":mode hybrid")
    prompt.answer("cats")
    assert {hit.id for hit in prompt.hits} == {"d0", "d1"}
    prompt.answer(":where")
    prompt.answer("cats")
    assert len(prompt.hits) == 6
    for wrong, message in {":where legs": "column 5", ":where arms = 2": "'legs'", ":mode x": "one of dense"}.items():
        prompt.answer(wrong)
        assert message in shown.getvalue()
    assert prompt.options["mode"] == "hybrid" and not prompt.options["where"]


def test_more_goes_on_with_the_search_it_began(retriever: Retriever, shown: io.StringIO) -> None:
    prompt = Prompt(retriever, k=2)
    prompt.answer("cats")
    first = list(prompt.hits)
    for change in (":where legs = 6", ":mode lexical"):
        prompt.answer(change)
    prompt.answer(":more")
    assert prompt.hits[:2] == first
    assert [hit.id for hit in prompt.hits] == [hit.id for hit in retriever.search("cats", 4)]
    assert [hit.rank for hit in prompt.hits] == [1, 2, 3, 4]


def test_more_shows_none_twice_where_a_deeper_search_ranks_otherwise(retriever: Retriever, shown: io.StringIO) -> None:
    prompt = Prompt(retriever, k=2)
    prompt.answer("cats")
    deeper = retriever.search("cats", 6)[::-1]
    prompt._last = lambda k: deeper[:k]
    while len(prompt.hits) < 6:
        before = len(prompt.hits)
        prompt.answer(":more")
        assert len(prompt.hits) > before
    assert sorted(hit.id for hit in prompt.hits) == [f"d{n}" for n in range(6)]


def test_compare_honours_the_least_score(retriever: Retriever, shown: io.StringIO) -> None:
    Prompt(retriever, options=Options(min_score=100)).answer(":compare cat")
    assert "Nothing found." in shown.getvalue() and "raw encoder" not in shown.getvalue()


def test_why_a_hit_was_found(retriever: Retriever, shown: io.StringIO) -> None:
    prompt = Prompt(retriever)
    prompt.answer(":why 1")
    assert "Search first" in shown.getvalue()
    prompt.answer("cat")
    assert "by meaning" not in shown.getvalue(), "hits are explained only if the user asks"
    prompt.answer(":why 1")
    assert "was found by meaning" in shown.getvalue() and "by words" in shown.getvalue()


def test_terminals_obey_nothing_of_ours() -> None:
    assert one_line("a\x1b[31m\n b\x9b\x7f") == "a\ufffd[31m b\ufffd\ufffd"
    assert one_line("soft\u00adhyphen zero\u200bwidth bidi\u202e\u2066 bom\ufeff") == "softhyphen zerowidth bidi bom"
    assert one_line("می\u200cخواهم 👩\u200d💻 \ue000") == "می\u200cخواهم 👩\u200d💻 \ue000"
    assert one_line("\udc80 \U000e0fff") == "\ufffd \ufffd"
    assert lines("no\x1b\n  more\r") == "no\ufffd\n  more\ufffd"
    assert (cut("abcdef", 6), cut("abcdefg", 6)) == ("abcdef", "abcde…")


def hit(**fields: object) -> Hit:
    return Hit(**{"rank": 1, "score": 0.5, "relevance": 50.0, "id": "i", "title": "", "passage": "p", "start": 0,
                  "end": 1, "metadata": {}, **fields})  # type: ignore[arg-type]  # fmt: skip


def test_hits_show_names_as_they_are(shown: io.StringIO) -> None:
    show_hits([hit(id="a\x1b[2J\nb", title="[/] :cat:"), hit(title="T" * 500), hit(id="alone")])
    text = shown.getvalue()
    assert "\x1b[2J" not in text and "a\ufffd[2J b" in text
    assert "[/] :cat:" in text
    assert "T" * 59 + "…" in text and "T" * 60 not in text
    assert "\x1b[2m  a\ufffd" in text, "the id is dim, and not bold with it"
    assert text.count("alone") == 1


def test_an_untitled_document_is_named_once(shown: io.StringIO) -> None:
    show_document(Document("only-id", "Text.", "", {"k\x1b": "v\x07"}))
    assert shown.getvalue().count("only-id") == 1
    assert "k\ufffd: v\ufffd" in shown.getvalue()


def test_what_was_skipped_is_told_in_whole_words(shown: io.StringIO) -> None:
    report = IngestReport(skipped=1, skipped_list=[Skipped("f\x1b.txt:1", "word " * 40 + "end")])
    report.prune_refused = "nothing was pruned, because a line was skipped"
    show_ingest(report, "c")
    text = " ".join(re.sub("\x1b\\[[0-9]*m", "", shown.getvalue()).split())
    assert f"skipped f\ufffd.txt:1: {'word ' * 40}end" in text
    assert max(map(len, shown.getvalue().splitlines())) < 100
    assert "Warning: nothing was pruned, because a line was skipped." in shown.getvalue()


def test_problems_that_are_left_are_shown(shown: io.StringIO) -> None:
    show_verify(Report(problems=["[/] one\x1b"], left=["this one stays"]))
    assert "[/] one\ufffd" in shown.getvalue()
    assert "Not repaired:" in shown.getvalue() and "this one stays" in shown.getvalue()


def test_a_transform_fitted_on_one_vector() -> None:
    described = {"family": "center", "spec": "center", "dimension_in": 2, "dimension_out": 2, "fingerprint": "f" * 20}
    assert "center, fitted on 1 passage," in describe_transform(described, {"passages": 1, "short_texts": 0})
