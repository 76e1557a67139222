"""TREC run files: whatever the scores, trec_eval sees the very ranking that was given."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.errors import Damaged
from retriever.evaluate.data.trec import read_run, strictly_decreasing, unwritable, write_run

SCORES = st.lists(st.floats(-100, 100) | st.sampled_from([0.0, 0.5, 0.5000000001]), max_size=30)


@given(SCORES)
def test_trec_eval_sees_the_ranking_that_was_given(
    tmp_path_factory: pytest.TempPathFactory, scores: list[float]
) -> None:
    """Each document in turn is the only relevant one: its reciprocal rank is where trec_eval sees it."""
    pytrec_eval = pytest.importorskip("pytrec_eval")
    ranked = [(f"d{number}", score) for number, score in enumerate(sorted(scores, reverse=True))]
    path = tmp_path_factory.mktemp("run") / "runs" / "some.trec"
    write_run(path, {"q": strictly_decreasing(ranked)}, "tag")
    with path.open() as file:
        run = pytrec_eval.parse_run(file)
    for rank, (document, _) in enumerate(ranked, 1):
        found = pytrec_eval.RelevanceEvaluator({"q": {document: 1}}, {"recip_rank"}).evaluate(run)
        assert found["q"]["recip_rank"] == pytest.approx(1 / rank)


def test_written_and_read_again(tmp_path: Path) -> None:
    hits = {"q1": strictly_decreasing([("ü", 1 / 3), ("b", 1 / 3), ("a", -2.0)]), "q2": [], "q3": [("c", 0.5)]}
    write_run(tmp_path / "x.trec", hits, "tag")
    first = (tmp_path / "x.trec").read_text(encoding="utf-8").split("\n")[0]
    assert first == "q1 Q0 ü 1 0.333333343 tag"
    assert read_run(tmp_path / "x.trec", list(hits)) == hits
    with pytest.raises(Damaged, match=r"x\.trec:1"):
        read_run(tmp_path / "x.trec", ["q2", "q3"])


def test_ids_that_no_column_can_hold() -> None:
    assert unwritable(["a", "b c", "", "d\u2028e", "f"]) == ["b c", "", "d\u2028e"]
