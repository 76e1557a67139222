"""What a retrieval benchmark leaves behind: the rankings of every configuration, and what each is worth by query.

Everything shown of a run (table, report, MTEB files) is made from these; they are made from TREC run files and the
judgements alone, so an unchanged run is read back and not searched again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from retriever.evaluate.results import Configuration

MAIN = "ndcg@10"
METRICS = ("ndcg@10", "mrr@10", "map@100", "recall@10", "recall@100")
DEPTH = 100
"""How many documents of a query are ranked."""

Hits = Sequence[tuple[str, float]]
"""Document ids with their scores, best first."""


@dataclass(frozen=True)
class Topics:
    """The judged queries of one split of a test collection."""

    dataset: str
    split: str
    queries: Mapping[str, str]
    """Only those that have judgements, id to text, in the order of the file."""
    judgements: Mapping[str, Mapping[str, int]]
    """Query id to document id to grade; 0 is judged and not relevant."""
    documents: int
    """How many documents the corpus has."""
    text_of: Callable[[Sequence[str]], Mapping[str, tuple[str, str]]]
    """Title and text of documents by id, for showing them; ids that are not there are left out."""
    notes: Sequence[str] = ()
    """What was left out of the data and why, one sentence each."""


@dataclass(frozen=True)
class Ranking:
    """What one configuration answered to every query, and the worth of each answer."""

    dataset: str
    split: str
    configuration: Configuration
    hits: Mapping[str, Hits]
    """Query id to its hits; every judged query is there."""
    scores: Mapping[str, Mapping[str, float]]
    """Metric to query id to value, from 0 to 1."""
    provenance: Mapping[str, object] = field(default_factory=dict)

    def mean(self, metric: str) -> float:
        values = self.scores[metric]
        return sum(values.values()) / len(values)


@dataclass(frozen=True)
class Comparison:
    """A ranking's metric: its mean with a 95 % interval, and its gain over a base, paired by query."""

    dataset: str
    split: str
    configuration: Configuration
    metric: str
    mean: float
    low: float
    high: float
    base: Configuration | None = None
    """What it is compared with: the raw vectors of the same encoder and pooling; None where there is none."""
    gain: float = 0.0
    gain_low: float = 0.0
    gain_high: float = 0.0
    p: float | None = None
    """Two-sided, from a paired permutation test; None where there is no base."""
