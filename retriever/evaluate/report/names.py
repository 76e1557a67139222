"""Names, order and colours of data sets, encoders, systems and metrics.

Tables, plots and the report all use them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from retriever.evaluate.data.qa_sets import DATASETS as QA_SETS
from retriever.evaluate.data.sts_sets import DATASETS as STS_SETS
from retriever.evaluate.rankings import MAIN, Comparison, Ranking, Topics
from retriever.evaluate.results import RAW, Configuration

# The transforms that the report prefers where it shows only one transform.
PREFERRED = ("flow", "auto")
METRIC_NAMES = {"ndcg": "nDCG", "mrr": "MRR", "map": "MAP", "auc": "AUC"}
SET_TITLES = {name: known.title for sets in (STS_SETS, QA_SETS) for name, known in sets.items()}
# Okabe and Ito's palette, whose colours colour-blind readers can distinguish.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
GREY = COLOURS[-1]


class Place(NamedTuple):
    """A split of a data set."""

    dataset: str
    split: str


class Series(NamedTuple):
    """An encoder and its pooling, with the text of the fit if fits differ. Each series has its own colour."""

    encoder: str
    pooling: str
    fit: str

    def __str__(self) -> str:
        if self == NO_ENCODER:
            return "without an encoder"
        return f"{self.encoder} ({self.pooling}, fit on {self.fit})" if self.fit else f"{self.encoder} ({self.pooling})"


NO_ENCODER = Series("", "", "")


def place_of(item: Topics | Ranking | Comparison) -> Place:
    return Place(item.dataset, item.split)


def place_names(places: Iterable[Place]) -> dict[Place, str]:
    """Name each place by its data set. The split is added only if the data set has several splits."""
    places = list(dict.fromkeys(places))
    datasets = [place.dataset for place in places]
    return {place: place.dataset if datasets.count(place.dataset) == 1 else " ".join(place) for place in places}


def series_of(line: Configuration) -> Series:
    """Return the series of a configuration. A system without pooling, e.g. BM25, has no encoder."""
    return Series(line.encoder, line.pooling, line.fit) if line.pooling else NO_ENCODER


def system_of(line: Configuration) -> str:
    """Return the transform, or the name of a system that needs no encoder."""
    return "raw" if line.transform == RAW else line.transform or line.encoder


def named(line: Configuration) -> str:
    """Return the names of system and encoder, e.g. "flow with bert (mean)"."""
    series = series_of(line)
    return system_of(line) if series == NO_ENCODER else f"{system_of(line)} with {series}"


def without_shared_fit(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Remove the text of the fit from the comparisons if it is the same in all of them."""
    if len({one.configuration.fit for one in comparisons} - {""}) > 1:
        return list(comparisons)
    return [replace(one, configuration=one.configuration._replace(fit="")) for one in comparisons]


def preference(line: Configuration) -> tuple[int, int]:
    """Return a sort key. The transform that represents its encoder sorts first."""
    family = line.transform.partition(":")[0]
    return PREFERRED.index(family) if family in PREFERRED else len(PREFERRED), int(line.transform != family)


def points(value: float, sign: str = "") -> str:
    """Format a figure from 0 to 1 times 100, with one decimal."""
    return f"{100 * value:{sign}z.1f}".replace("-", "−")


def metric_name(metric: str) -> str:
    name, at, depth = metric.partition("@")
    return f"{METRIC_NAMES.get(name, name)}{at}{depth}"


def main_metrics(comparisons: Sequence[Comparison]) -> dict[Place, str]:
    """Return the main metric of each data set: nDCG@10 if it was measured, otherwise the first metric."""
    metrics: dict[Place, list[str]] = {}
    for one in comparisons:
        metrics.setdefault(place_of(one), []).append(one.metric)
    return {place: MAIN if MAIN in own else own[0] for place, own in metrics.items()}


def colours_of(comparisons: Sequence[Comparison]) -> dict[Series, str]:
    """Return the colour of every series. Systems without an encoder come last and are grey."""
    found = dict.fromkeys(series_of(one.configuration) for one in comparisons)
    series = sorted(found, key=lambda one: one == NO_ENCODER)
    palette = COLOURS[:-1]
    return {one: GREY if one == NO_ENCODER else palette[n % len(palette)] for n, one in enumerate(series)}
