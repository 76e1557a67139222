"""Correlation with edit distance as a picture: how far each transform moves from raw vectors to people."""

from collections.abc import Sequence
from pathlib import Path

from retriever.evaluate.lexical import CORRELATION, GOLD, SHARE
from retriever.evaluate.report.plots import PUBLISHED_COLOUR, colour, grouped_bars, new_figure, save
from retriever.evaluate.report.published import EDIT_DISTANCE, EDIT_DISTANCE_GOLD
from retriever.evaluate.results import Configuration, Row, by_configuration


def draw(rows: Sequence[Row], path: Path) -> Path:
    """Two panels: the correlations, with people's and the published ones marked, and the share of the way."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    ours = [row for row in rows if row.encoder != GOLD and not row.published]
    gold = next(row.value for row in rows if row.encoder == GOLD)
    transforms = list(dict.fromkeys(row.transform for row in ours))
    series = list(dict.fromkeys((row.encoder, row.pooling, row.fit) for row in ours))
    figure = new_figure(12, 2.0 + max(1.8, len(transforms) * (0.14 + 0.2 * len(series))))
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, metric in ((left, CORRELATION), (right, SHARE)):
        found = by_configuration(ours, metric)
        values = [
            [found.get(Configuration(encoder, pooling, spec, fit), {}).get("stsb") for spec in transforms]
            for encoder, pooling, fit in series
        ]
        grouped_bars(axes, [spec.replace(":", "\n", 1) for spec in transforms], values, 8)
    marks = [
        (left.axvline(gold, color="#D55E00", linewidth=2), f"people (gold scores): {gold:.1f}"),
        (
            left.axvline(EDIT_DISTANCE_GOLD, color=PUBLISHED_COLOUR, linewidth=1),
            f"published: gold {EDIT_DISTANCE_GOLD}",
        ),
    ]
    for (name, value), style in zip(EDIT_DISTANCE.items(), (":", "--"), strict=True):
        line = left.axvline(value, color=PUBLISHED_COLOUR, linestyle=style, linewidth=1.2)
        marks.append((line, f"published: bert-base, {'raw' if name == 'none' else name} {value}"))
    right.axvline(100, color="#D55E00", linewidth=2)
    left.set_title("Spearman × 100 of cosine with edit distance", loc="left", fontsize=11)
    right.set_title("share of the way from raw to people, %", loc="left", fontsize=11)
    labels = [", ".join(part for part in one if part) for one in series]
    handles = [Patch(color=colour(n), label=label) for n, label in enumerate(labels)]
    lines = [Line2D([], [], color=m.get_color(), linestyle=m.get_linestyle(), label=label) for m, label in marks]
    figure.legend(handles=[*handles, *lines], loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    figure.suptitle("Does similarity follow the wording or the meaning? STS-B", fontsize=13, x=0.01, ha="left")
    return save(figure, path)
