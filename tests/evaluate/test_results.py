"""The rows of every benchmark: one format, written whole, taken again only from the same inputs."""

import json
import statistics
from pathlib import Path

import pytest

from retriever.errors import Damaged, Locked
from retriever.evaluate.fitting import code_digest
from retriever.evaluate.results import Results, Run, rows_of, summarise

RUN = Run("sts", "stsb", "test", "some-bert", "mean", "whiten", "target", 0)


def test_rows_are_flat_and_kept(tmp_path: Path) -> None:
    with Results(tmp_path) as results:
        results.add(RUN, {"spearman_all": 60.5, "spearman_wmean": 61.5}, {"inputs": {"data": "1"}})
    rows = json.loads((tmp_path / "results.json").read_text())
    keys = ["bench", "dataset", "split", "encoder", "pooling", "transform", "fit", "seed", "metric", "value"]
    assert [list(row) for row in rows] == [keys, keys]
    assert list(rows[0].values()) == [*RUN, "spearman_all", 60.5]
    with Results(tmp_path) as again:
        assert again.known(RUN, {"data": "1"})
        assert not again.known(RUN, {"data": "2"}) and not again.known(RUN._replace(seed=1), {"data": "1"})
        again.add(RUN, {"spearman_all": 70.0}, {"inputs": {"data": "2"}})
        assert [row.value for row in again.rows([RUN])] == [70.0]
    assert not list(tmp_path.glob("*.part"))


def test_derived_rows_stand_beside_those_of_the_run() -> None:
    with Results() as results:
        results.add(RUN, {"a": 1.0}, {})
        for value in (2.0, 3.0):
            results.put(rows_of(RUN, {"b": value}))
        assert [(row.metric, row.value) for row in results.rows([RUN])] == [("a", 1.0), ("b", 3.0)]


def test_two_runs_do_not_write_to_one_folder(tmp_path: Path) -> None:
    with Results(tmp_path), pytest.raises(Locked, match="another benchmark"), Results(tmp_path):
        pass


@pytest.mark.parametrize("content", ["[{", "{}", '[{"bench": "sts"}]'])
def test_a_damaged_file_is_not_overwritten(tmp_path: Path, content: str) -> None:
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(Damaged, match="away"), Results(tmp_path):
        pass
    assert (tmp_path / "results.json").read_text() == content


def test_mean_and_spread() -> None:
    values = [64.1, 63.2, 65.9, 64.4]
    found = summarise(values)
    assert found.mean == pytest.approx(statistics.mean(values))
    assert found.spread == pytest.approx(statistics.stdev(values))
    assert str(found) == "64.4 ±1.1" and str(summarise([5.0])) == "5.0"


def test_a_digest_of_code_changes_with_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "some_package"
    (package / "report").mkdir(parents=True)
    for path in (package / "__init__.py", package / "measure.py", package / "report" / "table.py"):
        path.write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    first = code_digest("some_package")
    for path, same in ((package / "report" / "table.py", True), (package / "measure.py", False)):
        path.write_text("changed = True\n")
        code_digest.cache_clear()
        assert (code_digest("some_package") == first) == same
    assert code_digest() != code_digest("indexes")
