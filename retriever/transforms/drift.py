"""Drift: how much the passages added since the fit differ from the passages that the transform was fitted on."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from indexes.folder.generation import Generation
from indexes.protocol import AnyCollection
from retriever.transforms.novelty import FEWEST, Novelty

# This many passages are enough to estimate a share of a few per cent, and are scored quickly.
MOST_SCORED = 5000
# One in a hundred ordinary passages is above the limit. A few more may be chance, but a tenth of all passages is not.
FEWEST_STRANGE = 5
SOME_SHARE = 0.03
STRONG_SHARE = 0.1
IDS_KEPT = 5


@dataclass(frozen=True)
class Drift:
    """A comparison of passages (distinct texts) added after the fit with those that the transform was fitted on."""

    added: int
    scored: int
    """Number of added passages that were scored: all of them, or a random sample of MOST_SCORED."""
    strange: int
    """Number of scored passages whose score is above that of 99 % of ordinary passages."""
    shift: float
    """Mean score of the scored passages minus the mean score of ordinary passages, in bits per dimension."""
    strange_ids: tuple[str, ...]
    """Ids of the first documents that contain strange passages."""

    @property
    def share(self) -> float:
        return self.strange / self.scored if self.scored else 0.0

    @property
    def verdict(self) -> str:
        if not self.added:
            return "none: nothing was added since the fit"
        if self.strange < FEWEST_STRANGE or self.share < SOME_SHARE:
            return "none: the added text is like the text that the transform was fitted on"
        return f"{'strong' if self.strong else 'some'}: `retriever rebuild` fits the transform again"

    @property
    def strong(self) -> bool:
        """Whether the transform should be fitted again."""
        return self.strange >= FEWEST_STRANGE and self.share >= STRONG_SHARE

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"share": self.share, "verdict": self.verdict}


def drift(collection: AnyCollection, novelty: Novelty, after: int = 0) -> Drift:
    """Measure the drift of the vectors in use that are newer than the fit and newer than the vector `after`."""
    store = collection.store
    with store.snapshot():
        numbers = store.used_vectors(max(after, novelty.last_vector))
        added = len(numbers)
        if added > MOST_SCORED:
            numbers = np.sort(np.random.default_rng(0).choice(numbers, MOST_SCORED, replace=False))
        if not added:
            return Drift(0, 0, 0, 0.0, ())
        scores = novelty.scores(store.vectors(numbers.tolist(), collection.dimension))
        strange = numbers[scores > novelty.passage_limit]
        passages = store.passages_of_vectors(strange.tolist())
        first = sorted({passage.document for own in passages.values() for passage in own})[:IDS_KEPT]
        documents = store.documents(first)
    shift = float(scores.mean()) - novelty.passages.mean
    return Drift(added, len(numbers), len(strange), shift, tuple(documents[number]["id"] for number in first))


def unknown(generation: Generation | None) -> dict[str, Any]:
    """Return what `info` shows if the scores of ordinary text were not measured for the collection."""
    if generation is None:
        reason = "there is no index yet"
    elif generation.manifest["transform"]["fitted_on"] < FEWEST:
        reason = f"the transform was fitted on fewer than {FEWEST} vectors"
    else:
        reason = "it was not measured when the transform was fitted; `retriever rebuild` measures it"
    return {"verdict": f"unknown: {reason}"}
