"""The figures of a benchmark as tables in the terminal."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from retriever.cli import display
from retriever.evaluate.data.qa_sets import DATASETS as QA_DATASETS
from retriever.evaluate.data.sts_sets import DATASETS
from retriever.evaluate.lexical import CORRELATION, SHARE
from retriever.evaluate.qa import METRICS, comparisons
from retriever.evaluate.results import AVERAGE, PUBLISHED, Configuration, Row, Summary, by_configuration
from retriever.evaluate.runs import Findings
from retriever.evaluate.sts import ALL, WMEAN
from retriever.terminal import one_line

NOTHING = "–"
WIDEST = 1000
TITLES = {
    ALL: "Spearman × 100, all: one correlation over a set's pairs",
    WMEAN: "Spearman × 100, wmean: the subsets' correlations, weighted by size",
}
SET_TITLES = {
    **{name: known.title for name, known in DATASETS.items()},
    **{name: known.title for name, known in QA_DATASETS.items()},
}
QA_TITLES = {
    "qnli": "QNLI dev: area under ROC × 100 of question and sentence",
    "wikiqa": "WikiQA test: ranking of a question's sentences, × 100",
}

# The measures of a space: the head of the column and how a figure is written.
MEASURES = {
    "mean_cosine": ("mean cos", "z.3f"),
    "uniformity": ("uniformity", "z.2f"),
    "alignment": ("alignment", "z.3f"),
    "partition_isotropy": ("partition", "z.3f"),
    "first_direction_share": ("1st direction", "z.1%"),
    "isoscore": ("IsoScore", "z.3f"),
    "held_out_bits_per_dimension": ("bits/dim", "z.3f"),
    "mean_abs_skewness": ("|skew|", "z.2f"),
    "mean_abs_excess_kurtosis": ("|kurtosis|", "z.2f"),
    "share_of_dimensions_not_gaussian": ("not Gaussian", "z.0%"),
}


def show(table: Table) -> None:
    """Print a table whole: where there is no terminal whose width could be known, as wide as it is."""
    console = display.out
    if table.title:
        console.print(table.title, style="bold", soft_wrap=True)
        table.title = None
    if console.is_terminal:
        console.print(table)
        return
    width = Measurement.get(console, console.options.update(max_width=WIDEST), table).maximum
    Console(file=console.file, width=width, highlight=False, markup=False, emoji=False).print(table)


def configuration_table(title: str, lines: Iterable[Configuration], columns: Sequence[str]) -> tuple[Table, list[str]]:
    """A table with a column for each part of a configuration that differs, and the names of those parts."""
    lines = list(lines)
    varying = [
        name
        for name in Configuration._fields
        if name == "transform" or len({getattr(line, name) for line in lines}) > 1
    ]
    shared = [f"{getattr(line, name)}" for line in lines[:1] for name in Configuration._fields if name not in varying]
    caption = f"{title}; {', '.join(filter(None, shared))}" if any(shared) else title
    table = Table(title=caption, box=None, padding=(0, 2, 0, 0))
    for name in varying:
        table.add_column(name, overflow="fold")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table, varying


def cells(line: Configuration, varying: Sequence[str]) -> list[Text]:
    return [Text(getattr(line, name)) for name in varying]


def sts_table(rows: Sequence[Row], metric: str, published: Sequence[Row] = ()) -> Table:
    """One line a configuration, one column a set, and the average; published lines dim, below ours."""
    own = by_configuration(rows, metric)
    names = [name for name in DATASETS if any(name in line for line in own.values())]
    whole = len(names) == len(DATASETS)
    shown = {*names, AVERAGE} if whole else set(names)
    theirs = by_configuration([row for row in published if row.dataset in shown], metric)
    heads = [DATASETS[name].title for name in names]
    average = f"avg of {len(names)}"
    table, varying = configuration_table(TITLES[metric], [*own, *theirs], [*heads, average])
    best = {name: max(line[name].mean for line in own.values() if name in line) for name in names}
    for line, found in own.items():
        figures = [_figure(found.get(name), best[name]) for name in names]
        table.add_row(*cells(line, varying), *figures, Text(_average(found, names)))
    for line, found in theirs.items():
        figures = [Text(f"{found[name].mean:.2f}" if name in found else NOTHING) for name in [*names, AVERAGE]]
        table.add_row(*cells(line, varying), *figures, style="dim")
    return table


def _figure(found: Summary | None, best: float) -> Text:
    if found is None:
        return Text(NOTHING)
    return Text(str(found), style="bold" if found.mean == best else "")


def _average(found: dict[str, Summary], names: Sequence[str]) -> str:
    """The mean over the sets, with its spread over seeds where it was taken for each seed."""
    if AVERAGE in found:
        return str(found[AVERAGE])
    if any(name not in found for name in names):
        return NOTHING
    return f"{sum(found[name].mean for name in names) / len(names):.1f}"


def show_notes(notes: Sequence[str]) -> None:
    """What was done otherwise than asked, on standard error."""
    for note in notes:
        display.err.print(f"Note: {one_line(note).rstrip('.')}.", style="yellow", soft_wrap=True)


def show_choices(findings: Findings) -> None:
    """What `auto` chose for each set: a line an encoder and fit, seeds that differ beside each other."""
    chosen: dict[Configuration, dict[str, list[str]]] = {}
    for run in findings.runs:
        if found := findings.provenance(run).get("chosen"):
            by_set = chosen.setdefault(Configuration(run.encoder, run.pooling, run.transform, run.fit), {})
            by_set.setdefault(run.dataset, []).append(found)
    for line, by_set in chosen.items():
        parts = [f"{SET_TITLES[name]} {' or '.join(dict.fromkeys(specs))}" for name, specs in by_set.items()]
        told = f"auto ({', '.join([line.encoder, line.pooling, line.fit])}) chose: {'; '.join(parts)}"
        display.out.print(told, soft_wrap=True)


def lexical_table(rows: Sequence[Row]) -> Table:
    """Correlation with edit distance and share of the way to gold, ours, gold's and the published."""
    correlations, shares = by_configuration(rows, CORRELATION), by_configuration(rows, SHARE)
    heads = ["with edit distance", "way from raw to gold, %"]
    table, varying = configuration_table("Spearman × 100 of similarity with edit distance, STS-B", correlations, heads)
    for line, found in correlations.items():
        share = shares.get(line, {}).get("stsb", NOTHING)
        dim = "dim" if line.encoder.endswith(PUBLISHED) else ""
        table.add_row(*cells(line, varying), Text(str(found["stsb"])), Text(str(share)), style=dim)
    return table


def qa_table(rows: Sequence[Row], dataset: str, published: Sequence[Row] = ()) -> Table | None:
    """Each configuration's figures and its gain over its encoder's raw vectors; published lines dim, below ours."""
    metrics, main = METRICS[dataset], METRICS[dataset][0]
    own = {metric: by_configuration([row for row in rows if row.dataset == dataset], metric) for metric in metrics}
    if not own[main]:
        return None
    theirs = by_configuration([row for row in published if row.dataset == dataset], main)
    compared = {one.configuration: one for one in comparisons(rows) if (one.dataset, one.metric) == (dataset, main)}
    heads = [main.upper(), "95 %", "gain over raw, 95 %", "p", *(metric.upper() for metric in metrics[1:])]
    table, varying = configuration_table(QA_TITLES[dataset], [*own[main], *theirs], heads)
    best = {metric: max(found[dataset].mean for found in own[metric].values()) for metric in metrics}
    for line in own[main]:
        one = compared[line]
        sure = [f"{100 * one.low:.1f} to {100 * one.high:.1f}", NOTHING, NOTHING]
        if one.p is not None:
            sure[1] = f"{100 * one.gain:+.1f} [{100 * one.gain_low:+.1f}, {100 * one.gain_high:+.1f}]"
            sure[2] = f"{one.p:.3f}" if one.p >= 0.001 else "<0.001"
        first, *others = (_figure(own[metric][line][dataset], best[metric]) for metric in metrics)
        table.add_row(*cells(line, varying), first, *map(Text, sure), *others)
    for line, found in theirs.items():
        figures = [Text(f"{found[dataset].mean:.2f}"), *map(Text, [NOTHING] * (len(heads) - 1))]
        table.add_row(*cells(line, varying), *figures, style="dim")
    return table


def isotropy_table(rows: Sequence[Row]) -> Table:
    """One line a configuration, one column a measure; over seeds the mean."""
    found = {metric: by_configuration(rows, metric) for metric in MEASURES}
    lines = list(dict.fromkeys(line for by_line in found.values() for line in by_line))
    shown = [metric for metric in MEASURES if found[metric]]
    table, varying = configuration_table("The space, before and after", lines, [MEASURES[m][0] for m in shown])
    for line in lines:
        figures = []
        for metric in shown:
            summary = next(iter(found[metric].get(line, {}).values()), None)
            figures.append(Text(NOTHING if summary is None else format(summary.mean, MEASURES[metric][1])))
        table.add_row(*cells(line, varying), *figures)
    return table


def words_table(rows: Sequence[Row]) -> Table:
    """Norm and distance to the nearest by frequency rank, a line an encoder and measure."""
    splits = list(dict.fromkeys(row.split for row in rows))
    table = Table(title="Word embeddings by frequency rank", box=None, padding=(0, 2, 0, 0))
    table.add_column("encoder")
    table.add_column("measure")
    for split in splits:
        table.add_column(split.removeprefix("rank "), justify="right")
    for encoder, metric in dict.fromkeys((row.encoder, row.metric) for row in rows):
        values = {row.split: row.value for row in rows if (row.encoder, row.metric) == (encoder, metric)}
        figures = [f"{values[split]:.2f}" if split in values else NOTHING for split in splits]
        style = "dim" if encoder.endswith(PUBLISHED) else ""
        table.add_row(Text(encoder), metric.replace("_", " "), *figures, style=style)
    return table
