"""Write a benchmark of rankings as one HTML file.

It has tables, a plot of all queries, the queries that changed most, and the origin of each figure. It needs no script,
font or network, and its content security policy forbids a browser to fetch anything. The template escapes all data. If
the file would be too large for mail, texts are shortened and the scatter plot is rounded to a coarser grid.
"""

import datetime
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from retriever.errors import Misuse
from retriever.evaluate.questions import Evaluation
from retriever.evaluate.rankings import Comparison, Ranking, Topics
from retriever.evaluate.report import contests, names, queries, summary
from retriever.evaluate.report.names import metric_name, place_of
from retriever.files import atomic_write
from retriever.settings import made_by
from retriever.terminal import cut, one_line

LARGEST = 2_000_000
HASH = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{20,}\b")
# This metric is over pairs instead of queries, so its interval and test differ.
AREA = "auc"


@dataclass(frozen=True)
class Detail:
    """How much the report shows: the most characters of a text, the cells along each side of the scatter plot, the most
    queries that the tooltip of a dot names, and the number of changed queries."""

    excerpt: int
    grid: int
    names: int
    moved: int


DETAILS = (Detail(160, 100, 3, 5), Detail(80, 50, 1, 5), Detail(40, 25, 1, 5), Detail(30, 12, 0, 2))


def write_report(
    path: Path,
    title: str,
    topics: Sequence[Topics],
    rankings: Sequence[Ranking],
    comparisons: Sequence[Comparison],
    notes: Sequence[str],
) -> Path:
    """Write the report atomically. Figures are given from 0 to 1 and shown times 100."""
    known = {(place_of(one), one.configuration, one.metric) for one in comparisons}
    untested = [
        Comparison(*place_of(one), one.configuration, metric, one.mean(metric), math.nan, math.nan)
        for one in rankings
        for metric, scores in one.scores.items()
        if scores and (place_of(one), one.configuration, metric) not in known
    ]
    comparisons = names.without_shared_fit([one for one in (*comparisons, *untested) if math.isfinite(one.mean)])
    if not comparisons:
        raise Misuse(f"there are no figures to report in {path}; measure something first.")
    content = _content(topics, rankings, comparisons, notes)
    page = ""
    for detail in DETAILS:
        page = _environment().get_template("report.html").render(content, title=title, detail=detail)
        if len(page.encode()) <= LARGEST:
            break
    with atomic_write(path) as aside:
        aside.write_text(page, encoding="utf-8")
    return path


def write_evaluation(path: Path, found: Evaluation) -> None:
    """Write what `retriever evaluate` found as one HTML file."""
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    page = _environment().get_template("questions.html").render(found=found, date=date, made_by=made_by())
    with atomic_write(path) as aside:
        aside.write_text(page, encoding="utf-8")


def _content(
    topics: Sequence[Topics], rankings: Sequence[Ranking], comparisons: Sequence[Comparison], notes: Sequence[str]
) -> dict[str, Any]:
    mains = names.main_metrics(comparisons)
    titles = names.place_names([*mains, *map(place_of, topics), *map(place_of, rankings)])
    compared, missing = queries.pairs(topics, rankings, mains, titles)
    metrics = dict.fromkeys(one.metric for one in comparisons)
    main_table, *others = summary.summary_tables(topics, comparisons)
    found = contests.contests(comparisons, rankings, mains, titles)
    versions = dict.fromkeys(str(one.provenance["made_by"]) for one in rankings if one.provenance.get("made_by"))
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "versions": list(versions),
        "verdict": contests.verdict(found),
        "contests": contests.picture(found) if found else None,
        "headline": summary.headline(comparisons),
        "gains": summary.gains(comparisons),
        "summary": main_table,
        "tested": any(one.p is not None for one in comparisons),
        "others": others,
        "scatter": queries,
        "rankings": len(rankings),
        "pairs": compared,
        "missing": missing,
        "origins": [(titles[place_of(one)], one) for one in rankings],
        "notes": [*notes, *(f"{titles[place_of(one)]}: {n}" for one in topics for n in one.notes if n not in notes)],
        "by_query": [metric_name(metric) for metric in metrics if metric != AREA],
        "by_pair": [metric_name(metric) for metric in metrics if metric == AREA],
    }


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("retriever.evaluate.report"),
        autoescape=True,
        undefined=StrictUndefined,
        # Invisible characters could reverse the text next to them, so they are removed.
        finalize=lambda value: value if isinstance(value, Markup) else one_line(str(value)),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"cut": cut, "points": names.points, "breakable": _breakable, "mark": summary.mark}
    environment.filters |= {"metric": metric_name, "system": names.system_of, "named": names.named}
    environment.filters["short"] = lambda text: HASH.sub(r"\1…", text)
    environment.tests["finite"] = math.isfinite
    return environment


def _breakable(spec: str) -> Markup:
    """Return a spec with a possible line break after each punctuation mark."""
    return Markup("<wbr>").join(re.split(r"(?<=[:,=])", one_line(spec)))
