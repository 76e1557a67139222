"""Finds the cheapest search settings of an index that reach a given recall, by trying them on held-out queries."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from indexes.faiss.recall import HeldOut
from indexes.faiss.vectors import SPARE, Settings, VectorIndex, depends_on_k, effort_of
from indexes.rows import LOOKED_AT, Numbers

FETCHES = (0, 4, 8, 16, 32, 64)
# The lowest sufficient effort needs the most candidates. Higher efforts need fewer and may be faster, so this number of
# efforts is timed.
EFFORTS_TIMED = 4
LARGEST_EF = 4096


@dataclass(frozen=True)
class Tuned:
    """Search settings, and their recall on the queries that were used for tuning."""

    settings: Settings
    recall: float
    reaches: bool


def tune(index: VectorIndex, held_out: HeldOut, target: float, cost: Callable[[VectorIndex], float]) -> Tuned:
    """Choose the settings of least `cost` that reach the target recall, and apply them to the index.

    The recall must exceed the target by one standard error, so that other queries reach it as well. If no settings do,
    choose those with the highest recall.
    """
    efforts = _efforts(index)
    curves: dict[int, NDArray[np.float64]] = {}

    def curve(place: int) -> NDArray[np.float64]:
        if place not in curves:
            curves[place] = _shares(index, held_out, efforts[place])
        return curves[place]

    def enough(place: int) -> NDArray[np.bool_]:
        shares = curve(place)
        margin = shares.std(axis=1) / np.sqrt(shares.shape[1])
        return np.asarray(shares.mean(axis=1) - margin >= target)

    def settings(place: int, fetch: int) -> Settings:
        return {**efforts[place], **({"fetch": FETCHES[fetch]} if fetch else {})}

    low, high = 0, len(efforts) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle).any() else (middle + 1, high)
    if not enough(low).any():
        means = curve(low).mean(axis=1)
        fetch = int(np.argmax(means))
        index.apply(settings(low, fetch))
        return Tuned(index.settings, float(means[fetch]), bool(means[fetch] >= target))
    tried = []
    for place in range(low, min(low + EFFORTS_TIMED, len(efforts))):
        fetch = int(np.argmax(enough(place)))
        index.apply(settings(place, fetch))
        tried.append((cost(index), place, fetch))
        if fetch == 0:
            break
    _, place, fetch = min(tried)
    index.apply(settings(place, fetch))
    return Tuned(index.settings, float(curve(place)[fetch].mean()), True)


def _efforts(index: VectorIndex) -> list[Settings]:
    """List settings of increasing effort. If the index type has no such setting, the list holds one empty dict."""
    effort = effort_of(index.index)
    if effort is None:
        return [{}]
    name, holder = effort
    least, most = (1, int(holder.nlist)) if name == "nprobe" else (16, LARGEST_EF)
    values = [least]
    while values[-1] < most:
        values.append(min(2 * values[-1], most))
    return [{name: value} for value in values]


def _shares(index: VectorIndex, held_out: HeldOut, effort: Settings) -> NDArray[np.float64]:
    """Compute the recall of each query (columns) for each number of candidates (rows)."""
    index.apply(effort)
    k = LOOKED_AT * held_out.numbers.shape[1]
    counts = [min(max(k + SPARE, fetch * k), len(index)) for fetch in FETCHES]
    if depends_on_k(index.index):
        rankings = {count: index.ranked(held_out.queries.vectors, count) for count in dict.fromkeys(counts)}
    else:
        rankings = dict.fromkeys(counts, index.ranked(held_out.queries.vectors, max(counts)))
    return np.stack([_found(rankings[count][:, :count], held_out) for count in counts])


def _found(ranking: Numbers, held_out: HeldOut) -> NDArray[np.float64]:
    return np.array(
        [np.isin(true, own).mean() for true, own in zip(held_out.numbers, ranking, strict=True)], np.float64
    )
