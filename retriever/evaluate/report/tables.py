"""Print the figures of a benchmark as tables in the terminal.

A table is a title and columns. A column names a data set, a metric and the format of a figure, e.g. `Column("95 %",
"qnli", "auc", "[{low:.1f}, {high:.1f}]")`. `figures_table` makes one line per configuration.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from retriever.evaluate.data.sts_sets import DATASETS
from retriever.evaluate.qa import METRICS as QA_METRICS
from retriever.evaluate.rankings import METRICS, Comparison, comparisons
from retriever.evaluate.report.names import SET_TITLES, metric_name
from retriever.evaluate.results import AVERAGE, PUBLISHED, Configuration, Row, Summary, average_rows
from retriever.evaluate.retrieval import RetrievalFindings
from retriever.evaluate.runs import Findings
from retriever.evaluate.sts import ALL, CORRELATION, LEXICAL_SET, SHARE, WMEAN
from retriever.terminal import one_line, plural
from retriever.transforms.spec import AUTO

NOTHING = "–"
WIDEST = 1000
STARS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))
STS_TITLES = {
    ALL: "Spearman × 100, all: one correlation over a set's pairs",
    WMEAN: "Spearman × 100, wmean: the subsets' correlations, weighted by size",
}
QA_TITLES = {
    "qnli": "QNLI dev: area under ROC × 100 of question and sentence",
    "wikiqa": "WikiQA test: ranking of a question's sentences, × 100",
}
# For each measure of a space: the head of its column and the format of its figures.
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
LEGEND = (
    "All × 100. Brackets: 95 % bootstrap interval over queries. Gain over raw: paired by query, permutation test, "
    "* p < 0.05, ** p < 0.01, *** p < 0.001, not corrected for the number of comparisons."
)

# Names and texts come from users, so [markup] and :emoji: are printed literally.
out = Console(highlight=False, markup=False, emoji=False)
err = Console(stderr=True, highlight=False, markup=False, emoji=False)


def text_table(title: str, heads: Sequence[str], left: int = 1) -> Table:
    """Return an empty table. Its first `left` columns are for text, the others for figures."""
    table = Table(title=title, box=None, padding=(0, 2, 0, 0))
    for number, head in enumerate(heads):
        text = number < left
        table.add_column(head, justify="left" if text else "right", overflow="fold", no_wrap=not text)
    return table


def show(*tables: Table) -> None:
    """Print tables. If the output is not a terminal, a table is as wide as its content."""
    for table in tables:
        if table.title:
            out.print(table.title, style="bold", soft_wrap=True)
            table.title = None
        if out.is_terminal:
            out.print(table)
        else:
            width = Measurement.get(out, out.options.update(max_width=WIDEST), table).maximum
            Console(file=out.file, width=width, highlight=False, markup=False, emoji=False).print(table)


def show_notes(notes: Sequence[str]) -> None:
    for note in notes:
        err.print(f"Note: {one_line(note).rstrip('.')}.", style="yellow", soft_wrap=True)


@dataclass(frozen=True)
class Column:
    """A column of figures. `form` may use stars, shown (with the spread over seeds), p, and fields of a Comparison."""

    head: str
    dataset: str
    metric: str
    form: str = "{shown}"
    bold: bool = False
    """If True, the best figure of the column is bold."""

    def text(self, one: Comparison | None) -> str:
        """Return the figure as text. Return a dash if there is no figure, or if it lacks a value that `form` uses."""
        if one is None:
            return NOTHING
        values: dict[str, object] = {"mean": 100 * one.mean, "stars": ""}
        values["shown"] = Summary(100 * one.mean, 100 * (one.spread or 0), 1 if one.spread is None else 2)
        if math.isfinite(one.low):
            values |= {"low": 100 * one.low, "high": 100 * one.high}
        if one.p is not None:
            values |= {name: 100 * getattr(one, name) for name in ("gain", "gain_low", "gain_high")}
            values["p"] = "<0.001" if one.p < 0.001 else f"{one.p:.3f}"
            values["stars"] = next((stars for limit, stars in STARS if one.p < limit), "")
        try:
            return self.form.format_map(values).strip()
        except KeyError:
            return NOTHING


def figures_table(title: str, figures: Iterable[Comparison], columns: Sequence[Column]) -> Table:
    """Return a table of configurations.

    Settings that all of them share are in the title. Lines with published figures are dim.
    """
    found = {(one.configuration, one.dataset, one.metric): one for one in figures}
    wanted = {(column.dataset, column.metric) for column in columns}
    lines = list(dict.fromkeys(line for line, *place in found if tuple(place) in wanted))
    names = Configuration._fields
    varying = [name for name in names if name == "transform" or len({getattr(line, name) for line in lines}) > 1]
    shared = [getattr(line, name) for line in lines[:1] for name in names if name not in varying]
    title = f"{title}; {', '.join(filter(None, shared))}" if any(shared) else title
    table = text_table(title, [*varying, *(column.head for column in columns)], len(varying))
    own = {key: one for key, one in found.items() if not key[0].encoder.endswith(PUBLISHED)}
    best = {place: max((o.mean for (_, *p), o in own.items() if tuple(p) == place), default=0.0) for place in wanted}
    for line in lines:
        theirs, cells = line.encoder.endswith(PUBLISHED), []
        for column in columns:
            one = found.get((line, column.dataset, column.metric))
            bold = column.bold and not theirs and one and one.mean == best[column.dataset, column.metric]
            shown = replace(column, form="{mean:.2f}") if theirs and column.bold else column
            cells.append(Text(shown.text(one), style="bold" if bold else ""))
        table.add_row(*(Text(getattr(line, name)) for name in varying), *cells, style="dim" if theirs else "")
    return table


def sts_tables(rows: Sequence[Row], published: Sequence[Row]) -> list[Table]:
    """Return a table for each aggregation. It has a column for each measured set, and the average over these sets."""
    names = [name for name in DATASETS if any(row.dataset == name for row in rows)]
    figures = comparisons([*(row for row in rows if row.dataset != AVERAGE), *average_rows(rows, names)])
    figures += [one for one in comparisons(published) if one.dataset in names or len(names) == len(DATASETS)]
    tables = []
    for metric, title in STS_TITLES.items():
        columns = [Column(DATASETS[name].title, name, metric, bold=True) for name in names]
        columns.append(Column(f"avg of {len(names)}", AVERAGE, metric, bold=True))
        tables.append(figures_table(title, figures, columns))
    return tables


def lexical_table(rows: Sequence[Row]) -> Table:
    heads = {"with edit distance": CORRELATION, "share of the gap closed, %": SHARE}
    columns = [Column(head, LEXICAL_SET, metric) for head, metric in heads.items()]
    return figures_table("Spearman × 100 of similarity with edit distance, STS-B", comparisons(rows), columns)


def isotropy_table(rows: Sequence[Row]) -> Table:
    shown = [metric for metric in MEASURES if any(row.metric == metric for row in rows)]
    columns = [Column(MEASURES[m][0], rows[0].dataset, m, f"{{mean:{MEASURES[m][1]}}}") for m in shown]
    return figures_table("The space, before and after", comparisons(rows), columns)


def words_table(rows: Sequence[Row]) -> Table:
    """Return norm and distance to the nearest words by frequency rank, with a line for each encoder and measure."""
    splits = list(dict.fromkeys(row.split for row in rows))
    heads = ["encoder", "measure", *(split.removeprefix("rank ") for split in splits)]
    table = text_table("Word embeddings by frequency rank", heads, 2)
    for encoder, metric in dict.fromkeys((row.encoder, row.metric) for row in rows):
        values = {row.split: row.value for row in rows if (row.encoder, row.metric) == (encoder, metric)}
        figures = [f"{values[split]:.2f}" if split in values else NOTHING for split in splits]
        style = "dim" if encoder.endswith(PUBLISHED) else ""
        table.add_row(Text(encoder), metric.replace("_", " "), *figures, style=style)
    return table


def compared_table(title: str, figures: Sequence[Comparison], dataset: str, metrics: Sequence[str]) -> Table:
    """Return a table of the main metric with its interval and its gain over raw, then the other metrics."""
    main = metrics[0]
    columns = [
        Column(metric_name(main), dataset, main, bold=True),
        Column("95 %", dataset, main, "[{low:.1f}, {high:.1f}]"),
        Column("gain over raw", dataset, main, "{stars} {gain:+.1f}"),
        Column("95 %", dataset, main, "[{gain_low:+.1f}, {gain_high:+.1f}]"),
        Column("p", dataset, main, "{p}"),
        *(Column(metric_name(metric), dataset, metric, bold=True) for metric in metrics[1:]),
    ]
    return figures_table(title, figures, columns)


def qa_tables(rows: Sequence[Row], published: Sequence[Row]) -> list[Table]:
    figures, measured = comparisons([*rows, *published]), {row.dataset for row in rows}
    shown = {dataset: metrics for dataset, metrics in QA_METRICS.items() if dataset in measured}
    return [compared_table(QA_TITLES[dataset], figures, dataset, metrics) for dataset, metrics in shown.items()]


def show_retrieval(findings: RetrievalFindings) -> None:
    """Print a table for each set, a table over all sets, the legend, and what `auto` chose."""
    rows = [row._replace(fit="") for row in findings.rows]  # a collection is always fitted on its documents
    figures, names = comparisons(rows), [topics.dataset for topics in findings.topics]
    for topics in findings.topics:
        queries = "1 query" if len(topics.queries) == 1 else f"{len(topics.queries):,} queries"
        title = f"{topics.dataset}, {topics.split}: {queries}, {plural(topics.documents, 'document')}"
        show(compared_table(title, figures, topics.dataset, METRICS))
    if len(names) > 1:
        rows += average_rows(rows, names)
        columns = [Column(name, name, METRICS[0], "{stars} {shown}", bold=True) for name in names]
        columns.append(Column(f"avg of {len(names)}", AVERAGE, METRICS[0], bold=True))
        show(figures_table(f"{metric_name(METRICS[0])} × 100", comparisons(rows), columns))
    out.print(LEGEND, style="dim", soft_wrap=True)
    show_choices(findings)


def show_choices(findings: Findings) -> None:
    """Print what `auto` chose on each set: pooling, transform, and the strength of `flow`."""
    chosen: dict[str, dict[str, list[str]]] = {}
    for run in findings.runs:
        known, title = findings.provenance(run), SET_TITLES.get(run.dataset, run.dataset)
        if run.pooling == AUTO:
            chosen.setdefault(f"--pooling auto ({run.encoder})", {}).setdefault(title, []).append(known["pooling"])
        if known.get("chosen") and run.transform in (AUTO, "flow"):
            name = f"{run.transform} ({run.encoder}, {run.pooling}, {run.fit})"
            chosen.setdefault(name, {}).setdefault(title, []).append(known["chosen"])
    for name, by_set in chosen.items():
        choices = "; ".join(f"{title} {' or '.join(dict.fromkeys(specs))}" for title, specs in by_set.items())
        out.print(one_line(f"{name} chose: {choices}"), soft_wrap=True)
