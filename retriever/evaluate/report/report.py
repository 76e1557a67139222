"""A benchmark of rankings as one HTML file: tables, plots, the queries that moved, and how it was all made.

The file needs no other: no script, no font, no network; its own policy forbids a browser to fetch anything. Whatever
comes from data is escaped by the template. Where there is so much to show that a mail would refuse it, less is shown of
each text, and the dots of a scatter share places.
"""

import datetime
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from retriever.errors import Misuse
from retriever.evaluate.rankings import Comparison, Ranking, Topics
from retriever.evaluate.report.grouping import (
    Place,
    all_series,
    colours_of,
    main_metrics,
    metric_name,
    named,
    place_names,
    place_of,
    without_shared_fit,
)
from retriever.evaluate.report.report_charts import Bars, bars, scatter
from retriever.evaluate.report.report_queries import MOVED, pairs
from retriever.evaluate.report.report_tables import bought, gain_table, headline, other_tables, summary_table
from retriever.files import atomic_write
from retriever.terminal import cut, one_line

LARGEST = 2_000_000
HASH = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{20,}\b")
UNKNOWN = "–"
# Measured over pairs and not by query, so its interval and test are others.
AREA = "auc"


@dataclass(frozen=True)
class Detail:
    """How much is shown of what there is."""

    excerpt: int
    """Characters of a document's text."""
    grid: int
    """Places of a scatter along each side."""
    names: int
    """Queries named by a dot."""
    moved: int
    """Queries that gained most, and as many that lost most."""


DETAILS = (
    Detail(excerpt=160, grid=100, names=3, moved=MOVED),
    Detail(excerpt=80, grid=50, names=1, moved=MOVED),
    Detail(excerpt=40, grid=25, names=1, moved=MOVED),
    Detail(excerpt=30, grid=12, names=0, moved=2),
)


@dataclass(frozen=True)
class Origin:
    """What one ranking was made from, in short."""

    place: str
    configuration: str
    chosen: str
    seed: str
    weights: str
    fingerprint: str
    made_by: str
    inputs: Sequence[tuple[str, str]]


def write_report(
    path: Path,
    title: str,
    topics: Sequence[Topics],
    rankings: Sequence[Ranking],
    comparisons: Sequence[Comparison],
    notes: Sequence[str],
) -> Path:
    """Write the report, whole or not at all. Figures are from 0 to 1 and shown times 100."""
    comparisons = [*comparisons, *_untested(rankings, comparisons)]
    comparisons = without_shared_fit([one for one in comparisons if math.isfinite(one.mean)])
    if not comparisons:
        raise Misuse(f"{path} would be a report of no figures; measure something first.")
    page = ""
    content = _content(title, topics, rankings, comparisons, notes)
    for detail in DETAILS:
        page = _page(content, detail)
        if len(page.encode()) <= LARGEST:
            break
    with atomic_write(path) as aside:
        aside.write_text(page, encoding="utf-8")
    return path


def _untested(rankings: Sequence[Ranking], comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The means of the metrics that nobody compared."""
    known = {(place_of(one), one.configuration, one.metric) for one in comparisons}
    return [
        Comparison(*place_of(one), one.configuration, metric, one.mean(metric), math.nan, math.nan)
        for one in rankings
        for metric, scores in one.scores.items()
        if scores and (place_of(one), one.configuration, metric) not in known
    ]


def _content(
    title: str,
    topics: Sequence[Topics],
    rankings: Sequence[Ranking],
    comparisons: Sequence[Comparison],
    notes: Sequence[str],
) -> dict[str, Any]:
    """Everything the page says, at whatever detail."""
    mains = main_metrics(comparisons)
    names = place_names([*mains, *map(place_of, topics), *map(place_of, rankings)])
    compared, missing = pairs(topics, rankings, mains, names)
    versions = dict.fromkeys(str(one.provenance["made_by"]) for one in rankings if one.provenance.get("made_by"))
    metrics = dict.fromkeys(one.metric for one in comparisons)
    others = [table for table in [gain_table(comparisons), *other_tables(comparisons)] if table]
    return {
        "title": title,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "versions": list(versions),
        "headline": headline(comparisons),
        "bought": bought(comparisons),
        "summary": summary_table(topics, comparisons),
        "tested": any(one.p is not None for one in comparisons),
        "others": others,
        "series": colours_of(all_series(comparisons)),
        "panels": _panels(mains, names, comparisons),
        "rankings": len(rankings),
        "pairs": compared,
        "missing": missing,
        "origins": [_origin(one, names[place_of(one)]) for one in rankings],
        "notes": [*notes, *(f"{names[place_of(one)]}: {n}" for one in topics for n in one.notes if n not in notes)],
        "by_query": [metric_name(metric) for metric in metrics if metric != AREA],
        "by_pair": [metric_name(metric) for metric in metrics if metric == AREA],
    }


def _panels(mains: Mapping[Place, str], names: Mapping[Place, str], comparisons: Sequence[Comparison]) -> list[Bars]:
    colours = colours_of(all_series(comparisons))
    return [bars(place, names[place], metric, comparisons, colours) for place, metric in mains.items()]


def _page(content: Mapping[str, Any], detail: Detail) -> str:
    scatters = [scatter(pair, detail.grid, detail.names) for pair in content["pairs"]]
    return _environment().get_template("report.html").render(content, detail=detail, scatters=scatters)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("retriever.evaluate.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"cut": cut, "short": lambda text: HASH.sub(r"\1…", text), "breakable": _breakable}
    return environment


def _shown(value: object) -> str:
    """No character that a reader would not see reaches the page: it could turn what stands beside it around."""
    return value if isinstance(value, Markup) else one_line(str(value))


def _breakable(spec: str) -> Markup:
    """A spec that may be broken after its marks."""
    return Markup("<wbr>").join(re.split(r"(?<=[:,=])", one_line(spec)))


def _origin(ranking: Ranking, place: str) -> Origin:
    known = ranking.provenance
    inputs = known.get("inputs")
    return Origin(
        place=place,
        configuration=named(ranking.configuration),
        chosen=_told(known.get("chosen")),
        seed=_told(known.get("seed")),
        weights=_told(known.get("encoder_weights")),
        fingerprint=_told(known.get("transform_fingerprint")),
        made_by=_told(known.get("made_by")),
        inputs=[(str(name), _told(value)) for name, value in inputs.items()] if isinstance(inputs, Mapping) else [],
    )


def _told(value: object) -> str:
    return UNKNOWN if value is None or value == "" else str(value)
