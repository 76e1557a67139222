"""Short texts cut from passages: short, different, each a part of the passage it came from."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.corpus.short_texts import MOST_OF_A_PASSAGE, PHRASE, SENTENCE, short_texts

MOST_CHARACTERS = 2 * SENTENCE[1]
ENGLISH = (
    "The cat sat on the mat near the door. It watched two small birds in the old oak tree. "
    "Nobody else was at home on that long and rainy afternoon."
)
SINGLE = "the boundary layer of a flat plate in a slow and steady stream of air at low pressure"
CHINESE = "我们研究了平板边界层的流动。实验结果表明压力随着速度的增加而降低。这个方法可以用于其他问题。"
THAI = "การศึกษานี้แสดงให้เห็นว่าความดันลดลงเมื่อความเร็วเพิ่มขึ้นในชั้นขอบเขตของแผ่นเรียบ"

words = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=12)
gaps = st.sampled_from([" ", " ", "  ", "\n", "\n\n", ". ", "? ", " \t ", "。", "\u3000", " " * 60])
passages = st.lists(
    st.one_of(
        st.text(max_size=80),
        st.lists(st.tuples(words, gaps), max_size=40).map(lambda pairs: "".join(a + b for a, b in pairs)),
        st.sampled_from([ENGLISH, SINGLE, CHINESE, THAI, "", " \n "]),
    ),
    max_size=12,
)


def plain(text: str) -> str:
    """With one space wherever there is any white space."""
    return " ".join(text.split())


@given(passages, st.integers(0, 15), st.integers(0, 2**32))
def test_every_text_is_a_short_part_of_a_passage(texts: list[str], count: int, seed: int) -> None:
    found = short_texts(texts, count, seed)
    assert len(found) <= min(count, MOST_OF_A_PASSAGE * len(texts)) and len(set(found)) == len(found)
    for short in found:
        assert short.strip() == short != ""
        homes = [text for text in texts if plain(short) in plain(text)]
        assert homes and any(plain(short) != plain(home) for home in homes)
        assert len(short.split()) <= SENTENCE[1] or len(short) <= MOST_CHARACTERS
    assert short_texts(texts, count, seed) == found


def test_another_seed_cuts_otherwise() -> None:
    texts = [f"{ENGLISH} This is number {n} of many such texts." for n in range(30)]
    assert short_texts(texts, 30, 0) != short_texts(texts, 30, 1)


def test_half_are_sentences_and_half_phrases() -> None:
    texts = [
        f"The {n} cats sat on mat {n} near the door of the house. Nobody else was at home on day {n} of a wet June."
        for n in range(100)
    ]
    found = short_texts(texts, 100, 0)
    sentences = [short for short in found if short.endswith(".") and short[0] in "TN" and len(short.split()) > 11]
    assert len(found) > 95 and 45 <= len(sentences) <= 65
    phrases = [short for short in found if short not in sentences]
    assert all(PHRASE[0] <= len(short.split()) <= PHRASE[1] for short in phrases)


def test_a_passage_of_one_sentence_gives_a_phrase_only() -> None:
    for seed in range(50):
        found = short_texts([SINGLE], 5, seed)
        assert 1 <= len(found) <= MOST_OF_A_PASSAGE
        assert all(short in SINGLE and PHRASE[0] <= len(short.split()) <= PHRASE[1] for short in found)


def test_a_phrase_that_is_the_whole_passage_is_left_out_however_it_is_spaced() -> None:
    spaced = "four  words\nare here"
    for seed in range(50):
        for short in short_texts([spaced], 1, seed):
            assert plain(short) != plain(spaced)


def test_long_sentences_are_cut_at_forty_words() -> None:
    long = " ".join(f"word{n}" for n in range(300))
    found = [short for seed in range(20) for short in short_texts([f"{long}. {long}."], 1, seed)]
    assert found and max(len(short.split()) for short in found) == SENTENCE[1]


@pytest.mark.parametrize("text", [CHINESE, THAI])
def test_scripts_without_spaces_give_short_pieces(text: str) -> None:
    found = {short for seed in range(50) for short in short_texts([text, text], 2, seed)}
    assert len(found) > 10
    for short in found:
        assert short in text and len(short) < len(text)
        assert len(short) <= 2 * PHRASE[1] or short.endswith("。")
    assert min(map(len, found)) == 2 * PHRASE[0]


def test_white_space_is_no_text() -> None:
    gap = "a" + " " * 80 + "b"
    for seed in range(50):
        assert all(short.strip() == short != "" for short in short_texts([gap], 1, seed))


@pytest.mark.parametrize("texts", [[], [""], [" \n\t "], ["word"], ["two words", "and three words"], ["", ENGLISH]])
def test_little_to_cut_from(texts: list[str]) -> None:
    assert len(short_texts(texts, 10, 0)) <= MOST_OF_A_PASSAGE * texts.count(ENGLISH)
    assert short_texts(texts, 0, 0) == []


def test_few_passages_give_four_texts_each_and_many_passages_one() -> None:
    texts = [f"{ENGLISH} This is number {n} of many such texts." for n in range(10)]
    assert 25 <= len(short_texts(texts, 100, 0)) <= MOST_OF_A_PASSAGE * 10
    numbered = [f"{n} {n} {n} {n}, it is {n} {n} {n} {n}." for n in range(100, 200)]
    found = short_texts(numbered, 50, 0)
    homes = [number[0] for text in found if (number := re.search(r"\d+", text))]
    assert len(found) == 50 and len(homes) > 40 and len(set(homes)) == len(homes)
    assert len(short_texts(texts, 3, 0)) == 3


def test_the_same_passage_many_times_gives_every_text_once() -> None:
    found = short_texts([ENGLISH] * 200, 200, 0)
    assert 3 < len(found) < 200 and len(set(found)) == len(found)
