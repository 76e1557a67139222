"""The bars of a retrieval benchmark as a picture."""

from pathlib import Path

import numpy as np
import pytest
from rankings_made_up import make_bench

from retriever.errors import Misuse
from retriever.evaluate.rankings import Comparison
from retriever.evaluate.report.names import COLOURS
from retriever.evaluate.report.pictures import draw_retrieval as draw
from retriever.evaluate.results import Configuration


def pixels(path: Path, colour: str) -> np.ndarray:
    """Where a picture has a colour."""
    from matplotlib.image import imread

    wanted = np.array([int(colour[n : n + 2], 16) for n in (1, 3, 5)])
    return (np.abs(imread(path)[..., :3] * 255 - wanted) < 2).all(axis=-1)


def test_bars_are_as_long_as_their_figures(tmp_path: Path) -> None:
    comparisons = [
        Comparison("set", "test", Configuration("e", "mean", name, "documents"), "ndcg@10", mean, mean - 0.01, mean)
        for name, mean in (("none", 0.2), ("flow", 0.4), ("flow:blocks=2", float("nan")))
    ]
    path = draw(comparisons, tmp_path / "bars.png")
    found = pixels(path, COLOURS[0])
    legend = found.sum(axis=1)[-100:].max()
    lengths = {int(length) for length in found.sum(axis=1) if length > 2 * legend}
    assert max(lengths) / min(lengths) == pytest.approx(2, rel=0.1)
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.heavy
@pytest.mark.parametrize("sets", [1, 5])
def test_every_encoder_has_its_colour(tmp_path: Path, sets: int) -> None:
    bench = make_bench({f"set-{n}": 5 for n in range(sets)}, encoders=("a", "b"))
    path = draw(bench.comparisons, tmp_path / "bars.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert all(pixels(path, colour).sum() > 1000 for colour in (COLOURS[0], COLOURS[1], COLOURS[-1]))
    assert pixels(path, COLOURS[2]).sum() == 0


def test_a_picture_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="no figures"):
        draw([], tmp_path / "bars.png")
