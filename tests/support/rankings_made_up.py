"""Test collections, rankings and comparisons made up from a seed, for what shows them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from retriever.evaluate.rankings import METRICS, Comparison, Ranking, Topics
from retriever.evaluate.results import Configuration

WORDS = "wing lift flow boundary layer heat shock wave supersonic body plate pressure drag transfer".split()
MADE_BY = "flow-retriever 0.1.0"


@dataclass
class Bench:
    """What a benchmark hands to its report."""

    topics: list[Topics] = field(default_factory=list)
    rankings: list[Ranking] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)


def words(rng: np.random.Generator, count: int) -> str:
    return " ".join(rng.choice(WORDS, count))


def make_topics(dataset: str, *, queries: int = 40, documents: int = 200, seed: int = 0) -> Topics:
    """Every query has some relevant documents of grades 1 and 2 and some that are judged and not relevant."""
    rng = np.random.default_rng(seed)
    texts = {f"d{n}": (words(rng, 4).capitalize(), words(rng, 60)) for n in range(documents)}
    judgements = {}
    for number in range(queries):
        picked = rng.choice(documents, 6, replace=False)
        grades = rng.permutation([0, 0, 1, 1, 2, 2])
        judgements[f"q{number}"] = {f"d{d}": int(grade) for d, grade in zip(picked, grades, strict=True)}
    return Topics(
        dataset=dataset,
        split="test",
        queries={query: f"what is known of {words(rng, 5)}?" for query in judgements},
        judgements=judgements,
        documents=documents,
        text_of=lambda ids: {one: texts[one] for one in ids if one in texts},
        notes=("2 queries without judgements are left out",),
    )


def make_ranking(topics: Topics, configuration: Configuration, skill: float, *, seed: int = 0) -> Ranking:
    """Relevant documents are the higher the greater the skill; the figure of every metric is nDCG@10 times a factor."""
    rng = np.random.default_rng(seed)
    hits, ndcg = {}, {}
    for query, judged in topics.judgements.items():
        scores = rng.normal(size=topics.documents)
        for document, grade in judged.items():
            scores[int(document[1:])] += skill * grade
        order = np.argsort(-scores)[:100]
        hits[query] = [(f"d{n}", float(scores[n])) for n in order]
        ndcg[query] = ndcg_at_10([judged.get(document, 0) for document, _ in hits[query]], list(judged.values()))
    values = {m: {q: v * (1 - 0.1 * n) for q, v in ndcg.items()} for n, m in enumerate(METRICS)}
    provenance = {
        "made_by": MADE_BY,
        "encoder_weights": f"{seed:064x}",
        "transform_fingerprint": "ab" * 32,
        "seed": 0,
        "inputs": {"data": "cd" * 32, "transform_code": "ef" * 32},
    }
    return Ranking(topics.dataset, topics.split, configuration, hits, values, provenance)


def ndcg_at_10(grades: Sequence[int], judged: Sequence[int]) -> float:
    def gain(values: Sequence[int]) -> float:
        return sum(value / math.log2(place + 2) for place, value in enumerate(values[:10]))

    return gain(grades) / gain(sorted(judged, reverse=True))


def compare(ranking: Ranking, base: Ranking | None) -> list[Comparison]:
    """Intervals of the normal approximation; p falls with the gain."""
    made = []
    for metric, scores in ranking.scores.items():
        values = np.array(list(scores.values()))
        mean, error = mean_and_error(values)
        place = (ranking.dataset, ranking.split, ranking.configuration, metric)
        one = Comparison(*place, mean, mean - error, mean + error)
        if base is not None:
            gain, error = mean_and_error(values - np.array(list(base.scores[metric].values())))
            p = math.erfc(1.96 * abs(gain) / error / 2**0.5) if error else 1.0
            tested = {"gain": gain, "gain_low": gain - error, "gain_high": gain + error, "p": p}
            one = replace(one, base=base.configuration, **tested)
        made.append(one)
    return made


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    return float(values.mean()), float(1.96 * values.std() / len(values) ** 0.5)


def make_bench(
    datasets: Mapping[str, int],
    encoders: Sequence[str] = ("tiny-bert", "mini-lm"),
    transforms: Sequence[str] = ("none", "center", "whiten", "bert-flow", "flow", "auto", "hybrid"),
    *,
    bm25: bool = True,
) -> Bench:
    """Every encoder with every transform on every data set of so many queries; the farther right, the better."""
    bench = Bench()
    for number, (dataset, queries) in enumerate(datasets.items()):
        topics = make_topics(dataset, queries=queries, seed=number)
        bench.topics.append(topics)
        lines = [(Configuration("bm25", "", "", ""), 2.0)] if bm25 else []
        for place, encoder in enumerate(encoders):
            lines += [
                (Configuration(encoder, "mean", transform, ""), 0.8 + 0.8 * place + 0.15 * step)
                for step, transform in enumerate(transforms)
            ]
        made = [make_ranking(topics, line, skill, seed=n + 100 * number) for n, (line, skill) in enumerate(lines)]
        bench.rankings += made
        for ranking in made:
            line = ranking.configuration
            raw = [one for one in made if one.configuration == line._replace(transform="none")]
            base = raw[0] if raw and raw[0] is not ranking else None
            bench.comparisons += compare(ranking, base)
    return bench
