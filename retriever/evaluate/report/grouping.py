"""How the figures of rankings are grouped and named wherever they are shown: by data set, by encoder, by system."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from retriever.evaluate.rankings import MAIN, Comparison, Ranking, Topics
from retriever.evaluate.report.plots import COLOURS
from retriever.evaluate.results import RAW, Configuration

# What a transform is shown by where only one can be: the flow, else what was chosen without labels.
PREFERRED = ("flow", "auto")
METRIC_NAMES = {"ndcg": "nDCG", "mrr": "MRR", "map": "MAP", "recall": "recall", "auc": "AUC"}
GREY = COLOURS[-1]


class Place(NamedTuple):
    """Where something was measured."""

    dataset: str
    split: str


class Series(NamedTuple):
    """What has a colour of its own: an encoder, its pooling, and the text of the fit where that differs."""

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
    """The data set's name, with the split only where a data set has several."""
    places = list(dict.fromkeys(places))
    datasets = [place.dataset for place in places]
    return {place: place.dataset if datasets.count(place.dataset) == 1 else " ".join(place) for place in places}


def series_of(line: Configuration) -> Series:
    """A system such as BM25 pools no vectors, so it belongs to no encoder."""
    return Series(line.encoder, line.pooling, line.fit) if line.pooling else NO_ENCODER


def system_of(line: Configuration) -> str:
    """What is done with the encoder's vectors, or the system that needs none."""
    return "raw" if line.transform == RAW else line.transform or line.encoder


def named(line: Configuration) -> str:
    """A configuration in words: what is done, and with which encoder."""
    series = series_of(line)
    return system_of(line) if series == NO_ENCODER else f"{system_of(line)} with {series}"


def without_shared_fit(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The same, with the text of the fit left out where it is everywhere the same and says nothing."""
    if len({one.configuration.fit for one in comparisons} - {""}) > 1:
        return list(comparisons)
    return [
        replace(
            one,
            configuration=one.configuration._replace(fit=""),
            base=one.base and one.base._replace(fit=""),
        )
        for one in comparisons
    ]


def preference(line: Configuration) -> tuple[int, int]:
    """Sorts first what stands for the transforms of its encoder."""
    family = line.transform.partition(":")[0]
    return PREFERRED.index(family) if family in PREFERRED else len(PREFERRED), int(line.transform != family)


def metric_name(metric: str) -> str:
    name, at, depth = metric.partition("@")
    return f"{METRIC_NAMES.get(name, name)}{at}{depth}"


def main_metrics(comparisons: Sequence[Comparison]) -> dict[Place, str]:
    """What each data set is judged by: nDCG@10 where there is one, else the first metric that is given for it."""
    metrics: dict[Place, list[str]] = {}
    for one in comparisons:
        metrics.setdefault(place_of(one), []).append(one.metric)
    return {place: MAIN if MAIN in given else given[0] for place, given in metrics.items()}


def all_series(comparisons: Sequence[Comparison]) -> list[Series]:
    """In the order they are given, systems without an encoder last."""
    found = dict.fromkeys(series_of(one.configuration) for one in comparisons)
    return sorted(found, key=lambda one: one == NO_ENCODER)


def colours_of(series: Sequence[Series]) -> dict[Series, str]:
    """A colour for each encoder; grey is for systems that have none."""
    palette = [colour for colour in COLOURS if colour != GREY]
    return {one: GREY if one == NO_ENCODER else palette[n % len(palette)] for n, one in enumerate(series)}
