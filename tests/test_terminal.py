"""Texts for people: excerpts are cut between words."""

from hypothesis import given
from hypothesis import strategies as st

from retriever.terminal import excerpt

WORDS = st.lists(st.sampled_from(["a", "to", "bird", "feathers", "ornithology"]), min_size=1, max_size=60)


@given(WORDS, st.data())
def test_an_excerpt_is_cut_between_words(words: list[str], data: st.DataObject) -> None:
    text = " ".join(words)
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first + 1, len(words)))
    start = len(" ".join(words[:first])) + bool(first)
    for highlight in (None, (start, len(" ".join(words[:last])))):
        shown = excerpt(text, highlight, 80)
        whole = (shown.before + shown.marked + shown.after).replace("… ", "").replace(" …", "")
        assert f" {whole.strip()} " in f" {text} " or (highlight and highlight[1] - highlight[0] > 80)


def test_scripts_without_spaces_are_cut_anywhere() -> None:
    shown = excerpt("字" * 500, None, 80)
    assert shown.before == "字" * 80 and shown.after == " …"
