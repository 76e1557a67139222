"""The figures of the retrieval benchmark as tables in the terminal."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from retriever.cli import display
from retriever.evaluate.rankings import MAIN, Comparison, Ranking, Topics
from retriever.evaluate.report.tables import NOTHING, cells, configuration_table, show
from retriever.evaluate.results import Configuration
from retriever.evaluate.retrieval import RetrievalFindings
from retriever.terminal import one_line
from retriever.transforms.spec import AUTO

HEADS = {"ndcg@10": "nDCG@10", "mrr@10": "MRR@10", "map@100": "MAP@100", "recall@10": "R@10", "recall@100": "R@100"}
MARKS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))
LEGEND = (
    "All × 100. Brackets: 95 % bootstrap interval over queries. Over raw: paired by query, permutation test, "
    "* p < 0.05, ** p < 0.01, *** p < 0.001, not corrected for the number of comparisons."
)


def show_retrieval(findings: RetrievalFindings) -> None:
    """A table a set, one over all of them where there are several, what the marks mean, and what `auto` chose."""
    compared = {(found.dataset, found.configuration): found for found in findings.comparisons}
    for topics in findings.topics:
        rankings = [ranking for ranking in findings.rankings if ranking.dataset == topics.dataset]
        show(set_table(topics, rankings, compared))
    if len(findings.topics) > 1:
        show(overview_table([topics.dataset for topics in findings.topics], findings.comparisons))
    display.out.print(LEGEND, style="dim", soft_wrap=True)
    for told in choices(findings.rankings):
        display.out.print(one_line(told), soft_wrap=True)


def set_table(
    topics: Topics, rankings: Sequence[Ranking], compared: dict[tuple[str, Configuration], Comparison]
) -> Table:
    """One line a system: nDCG@10 with its interval and its gain over raw, then the other measures."""
    asked = "1 query" if len(topics.queries) == 1 else f"{len(topics.queries):,} queries"
    title = f"{topics.dataset}, {topics.split}: {asked}, {display.plural(topics.documents, 'document')}"
    others = [metric for metric in HEADS if metric != MAIN]
    heads = [HEADS[MAIN], "95 %", "over raw", "95 %", *(HEADS[metric] for metric in others)]
    table, varying = configuration_table(title, [_line(r.configuration) for r in rankings], heads)
    best = {metric: max((ranking.mean(metric) for ranking in rankings), default=0.0) for metric in HEADS}
    for ranking in rankings:
        found = compared[topics.dataset, ranking.configuration]
        table.add_row(
            *cells(_line(ranking.configuration), varying),
            _figure(ranking.mean(MAIN), best[MAIN]),
            _interval(found.low, found.high, ".1f"),
            *_gain(found),
            *(_figure(ranking.mean(metric), best[metric]) for metric in others),
        )
    return table


def overview_table(datasets: Sequence[str], comparisons: Sequence[Comparison]) -> Table:
    """nDCG@10 of every system on every set, with the marks of its gain over raw, and the mean over the sets."""
    lines: dict[Configuration, dict[str, Comparison]] = {}
    for found in comparisons:
        lines.setdefault(_line(found.configuration), {})[found.dataset] = found
    title = f"{HEADS[MAIN]} × 100"
    table, varying = configuration_table(title, lines, [*datasets, f"avg of {len(datasets)}"])
    best = {name: max(own[name].mean for own in lines.values() if name in own) for name in datasets}
    for line, own in lines.items():
        figures = [_marked(own.get(name), best[name]) for name in datasets]
        whole = all(name in own for name in datasets)
        average = f"{100 * sum(own[name].mean for name in datasets) / len(datasets):.1f}" if whole else NOTHING
        table.add_row(*cells(line, varying), *figures, Text(average))
    return table


def mark(found: Comparison) -> str:
    """Stars for how unlikely the difference from raw is to come of chance, whichever way it goes."""
    return next((stars for limit, stars in MARKS if found.p is not None and found.p < limit), "")


def choices(rankings: Sequence[Ranking]) -> list[str]:
    """What `auto` chose on each set, pooling and transform; and the strength that `flow` got."""
    chosen: dict[tuple[str, str, str], list[str]] = {}
    poolings: dict[str, dict[str, str]] = {}
    for ranking in rankings:
        encoder, pooling, transform, _ = ranking.configuration
        if (found := ranking.provenance.get("chosen")) and transform in (AUTO, "flow"):
            chosen.setdefault((encoder, pooling, transform), []).append(f"{ranking.dataset} {found}")
        if pooling == AUTO:
            poolings.setdefault(encoder, {})[ranking.dataset] = str(ranking.provenance["pooling"])
    told = [
        f"--pooling auto ({encoder}) chose: {'; '.join(f'{dataset} {name}' for dataset, name in own.items())}"
        for encoder, own in poolings.items()
    ]
    return told + [
        f"{transform} ({encoder}, {pooling}) chose: {'; '.join(own)}"
        for (encoder, pooling, transform), own in chosen.items()
    ]


def _line(line: Configuration) -> Configuration:
    """Without the text of the fit, which is always the documents."""
    return line._replace(fit="")


def _figure(value: float, best: float) -> Text:
    return Text(f"{100 * value:.1f}", style="bold" if value == best else "")


def _marked(found: Comparison | None, best: float) -> Text:
    if found is None:
        return Text(NOTHING)
    return Text(f"{mark(found)} ") + _figure(found.mean, best)


def _gain(found: Comparison) -> tuple[Text, Text]:
    if found.p is None:
        return Text(NOTHING), Text()
    return Text(f"{mark(found)} {100 * found.gain:+.1f}"), _interval(found.gain_low, found.gain_high, "+.1f")


def _interval(low: float, high: float, form: str) -> Text:
    return Text(f"[{100 * low:{form}}, {100 * high:{form}}]", style="dim")
