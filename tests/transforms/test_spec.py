"""What a transform is asked for by, in one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.errors import Misuse
from retriever.transforms import FAMILIES, Spec, parse


def test_families_and_options() -> None:
    assert FAMILIES == ("none", "center", "standardize", "whiten", "flow", "bert-flow")
    assert parse("whiten:dimension=256,gamma=0.5") == Spec("whiten", {"dimension": 256, "gamma": 0.5})
    assert parse(" whiten: shrinkage = auto ") == Spec("whiten", {"shrinkage": "auto"})
    assert parse("bert-flow:steps=50,levels=2") == Spec("bert-flow", {"steps": 50, "levels": 2})
    for family in FAMILIES:
        assert str(parse(family)) == family and parse(parse(family)) == Spec(family)


def test_canonical_text() -> None:
    assert str(parse("whiten:gamma=1.0,dimension=08,shrinkage=.10")) == "whiten:dimension=8,gamma=1,shrinkage=0.1"
    assert len({parse("whiten:gamma=1"), parse("whiten:gamma=1.0")}) == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "none, center, standardize, whiten, flow, bert-flow"),
        ("glow", "none, center, standardize, whiten, flow, bert-flow"),
        ("none:gamma=1", "it has no options"),
        ("whiten:", "method, dimension, gamma, shrinkage, soft"),
        ("whiten:gama=1", "method, dimension, gamma, shrinkage, soft"),
        ("whiten:gamma=2", "a number from 0 to 1, not '2'"),
        ("whiten:gamma=nan", "a number from 0 to 1"),
        ("whiten:gamma", "a number from 0 to 1"),
        ("whiten:gamma=0.1,gamma=0.2", "given twice"),
        ("whiten:method=lda", "pca or zca, not 'lda'"),
        ("whiten:dimension=0", "a whole number from 1"),
        ("whiten:dimension=2.5", "a whole number from 1"),
        ("whiten:shrinkage=full", "auto, or a number from 0 to 1"),
        ("whiten:soft=-1", "a number from 0"),
        ("whiten:method=zca,dimension=8", "method=pca"),
        ("bert-flow:steps=0", "a whole number from 1"),
        ("bert-flow:gamma=1", "steps, levels, depth, width"),
    ],
)
def test_misuse_names_what_is_known(text: str, says: str) -> None:
    with pytest.raises(Misuse) as error:
        parse(text)
    assert says in str(error.value)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "gamma": st.floats(0, 1),
            "soft": st.floats(0, 1000),
            "dimension": st.integers(1, 10_000),
            "shrinkage": st.just("auto") | st.floats(0, 1),
        },
    )
)
def test_text_and_back(options: dict[str, float]) -> None:
    spec = Spec("whiten", options)
    assert parse(str(spec)) == spec
