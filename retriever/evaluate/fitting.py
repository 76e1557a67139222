"""Fit transforms for a benchmark: the default specs, seeds, the choice of `auto`, and digests of code."""

import hashlib
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.corpus.short_texts import short_texts
from retriever.errors import FitWarning
from retriever.ingest.fitted import FEWEST_FOR_SHORT, FIT_SAMPLE, SEED, short_text_count
from retriever.progress import Progress, silent
from retriever.settings import made_by
from retriever.transforms import Transform, parse
from retriever.transforms.agreement import Fits
from retriever.transforms.choice import POOL, Evidence, Look, choose, choose_for
from retriever.transforms.spec import AUTO

DEFAULT_TRANSFORMS = ("none", "center", "whiten", "whiten:dimension=256", "bert-flow", "flow")
# These families do not depend on the seed; every other family does.
SEEDLESS = ("none", "center", "standardize", "whiten")
FIT_CODE = ("retriever.corpus", "retriever.transforms")
RANKING_CODE = (*FIT_CODE, "retriever.encoder", "retriever.evaluate", "retriever.ingest", "retriever.search", "indexes")

Encode = Callable[[Sequence[str]], NDArray[np.float32]]


@dataclass(frozen=True)
class Fitted:
    """A fitted transform and, for `auto` or a `flow` without a strength, the spec that was chosen."""

    transform: Transform
    chosen: str | None = None

    @property
    def provenance(self) -> dict[str, Any]:
        """Return the origin of a figure that was measured with this fit."""
        known = {"transform_fingerprint": self.transform.fingerprint, "fitted_on": self.transform.fitted_on}
        chosen = {"chosen": self.chosen} if self.chosen else {}
        return {"made_by": made_by(), **known, "notes": list(self.transform.notes), **chosen}


def canonical(spec: str) -> str:
    """Return the spec as result rows store it. Raise an error if the spec is invalid."""
    return AUTO if spec.strip() == AUTO else str(parse(spec))


def seeds_of(spec: str, count: int) -> list[int]:
    """Return the seeds to fit a spec with: only 0 for a family that does not depend on the seed."""
    seedless = spec != AUTO and parse(spec).family in SEEDLESS
    return [0] if seedless else list(range(count))


def fit_transform(
    spec: str, texts: Sequence[str], vectors: NDArray[np.float32], encode: Encode, *, seed: int
) -> Fitted:
    """Fit a transform to the raw vectors of these texts. `encode` embeds phrases cut from the texts.

    `auto` chooses as `retriever index --transform auto` would choose if each text were a document.
    """
    with warnings.catch_warnings(action="ignore", category=FitWarning):  # the transform's notes repeat the warning
        fits = Fits(vectors, seed)
        look = Look.at(_evidence(texts, vectors, seed), encode, seed) if spec == AUTO else None
        chosen = choose(look, fits).chosen if look else None
        return Fitted(fits.fit(chosen or spec), chosen)


def _evidence(texts: Sequence[str], vectors: NDArray[np.floating[Any]], seed: int) -> Evidence:
    picked = np.sort(np.random.default_rng(seed).permutation(len(texts))[:POOL])
    return Evidence([texts[n] for n in picked], np.arange(len(picked)), vectors[picked].astype(np.float32))


@cache
def code_digest(*packages: str) -> str:
    """Return the SHA-256 of the source of packages, by default all that can change a ranking, without `report`."""
    folders = [Path(place) for name in packages or RANKING_CODE for place in import_module(name).__path__]
    files = ((folder, path) for folder in folders for path in sorted(folder.rglob("*.py")))
    return files_digest(
        path for folder, path in files if "report" not in path.relative_to(folder).with_suffix("").parts
    )


def files_digest(files: Iterable[Path]) -> str:
    """Return the SHA-256 of the names and contents of files."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def fit_as_published(
    spec: str, texts: Sequence[str], vectors: NDArray[np.floating[Any]], encode: Encode, *, progress: Progress = silent
) -> Fitted:
    """Fit a transform as for a collection of these texts: on a sample of their vectors and on phrases cut from them.

    The strength of a plain `flow` is chosen with the same evidence that `auto` uses, as for a collection.
    """
    rows = np.sort(np.random.default_rng(SEED).choice(len(texts), min(FIT_SAMPLE, len(texts)), replace=False))
    sample = vectors[rows].astype(np.float32)
    evidence, short = _evidence(texts, vectors, SEED), []
    look = Look.at(evidence, encode, SEED) if spec in (AUTO, "flow") else None
    if len(texts) >= FEWEST_FOR_SHORT and spec != "none":
        short = short_texts(evidence.texts, short_text_count(len(texts), spec, look), SEED + 1)
    if short:
        sample = np.concatenate([sample, encode(short)])
    with warnings.catch_warnings(action="ignore", category=FitWarning):  # the transform's notes repeat the warning
        shown = partial(progress, "choosing a transform")
        fits = Fits(sample, SEED)
        choice = choose_for(spec, look, fits, with_short_texts=bool(short), progress=shown) if look else None
        chosen = choice.chosen if choice else None
        return Fitted(fits.fit(chosen or spec), chosen)
