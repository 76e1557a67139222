"""Publish an index of the stored raw vectors: fit the transform if necessary, apply it, build the index, switch."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from indexes.folder.generation import Generation
from indexes.folder.space import Blocks
from indexes.protocol import AnyCollection
from indexes.publication import Publication
from retriever.ingest.fitted import FIT_SAMPLE, Encode, Fitted, return_free_memory
from retriever.progress import Progress, silent
from retriever.settings import IndexSettings, made_by
from retriever.transforms import Transform

# A transform that was fitted on a part of the passages is fitted again when they have grown by this factor.
REFIT_GROWTH = 2
# A search scans vectors that are newer than the index exactly; from this many on, a new index is worth its time.
BACKLOG_ROWS = 1000
BACKLOG_SHARE = 0.1

ApplyEach = Callable[[Transform, Blocks], Blocks]
"""Applies a transform to block after block, e.g. on other machines."""


def is_due(collection: AnyCollection, wanted: IndexSettings) -> bool:
    """Whether the published index is missing, has other settings than wanted, or is far behind the table."""
    generation = collection.generation()
    if generation is None:
        return collection.store.count("passages") > 0
    if generation.manifest["asked"] != wanted.transform or generation.requested != wanted.index:
        return True
    if _is_outgrown(collection, generation):
        return True
    newer, unused = collection.backlog()
    return newer + unused > max(BACKLOG_ROWS, BACKLOG_SHARE * generation.count)


def publish(
    collection: AnyCollection,
    wanted: IndexSettings,
    encode: Encode,
    *,
    refit: bool = False,
    compact: bool = False,
    device: str = "cpu",
    apply_each: ApplyEach | None = None,
    progress: Progress = silent,
) -> Transform:
    """Publish a new generation; the transform is chosen and fitted again only if necessary, or if `refit` is True.

    `encode` gives raw vectors of texts and is called only for a fit. `compact` removes unused vectors. `apply_each`
    applies the transform to all vectors; by default this process does.
    """
    return_free_memory()
    generation = None if refit else collection.generation()
    keep = (
        generation is not None
        and generation.manifest["asked"] == wanted.transform
        and not _is_outgrown(collection, generation)
    )
    if generation is not None and keep:
        fitted = Fitted.from_generation(collection, generation)
    else:
        fitted = Fitted.fit(collection, wanted.transform, encode, device, progress)
    each = partial(apply_each, fitted.transform) if apply_each else None
    collection.publish(_publication(collection, wanted, fitted, compact, not keep, each), progress)
    return fitted.transform


def republish(
    collection: AnyCollection,
    wanted: IndexSettings,
    files: Mapping[str, bytes],
    fitted_on: Mapping[str, int] | None,
    *,
    settings: Mapping[str, Any] | None = None,
    progress: Progress = silent,
) -> None:
    """Build the index again with the transform in `files`, without fitting.

    `settings` are further settings that change in the same step. `fitted_on` is None if the manifest is lost.
    """
    fitted = Fitted.from_files(collection, files, fitted_on)
    collection.publish(_publication(collection, wanted, fitted, settings=settings), progress)


def _publication(
    collection: AnyCollection,
    wanted: IndexSettings,
    fitted: Fitted,
    compact: bool = False,
    reconsider: bool = False,
    apply_each: Callable[[Blocks], Blocks] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Publication:
    transform = fitted.transform
    facts = {
        "made_by": made_by(),
        "encoder": collection.encoder,
        "asked": wanted.transform,
        "transform": transform.describe(),
        "fitted_on": dict(fitted.fitted_on),
    }
    return Publication(
        transform.apply,
        transform.dimension_out,
        wanted.index,
        fitted.write,
        facts,
        {**wanted.to_json(), "choice": fitted.choice, **(settings or {})},
        compact=compact,
        queries=None if fitted.queries is None else fitted.queries.astype(np.float32),
        reconsider=reconsider,
        apply_each=apply_each,
    )


def _is_outgrown(collection: AnyCollection, generation: Generation) -> bool:
    """Whether the transform was fitted on so few passages that fitting it again is worthwhile."""
    passages = int(generation.manifest["fitted_on"]["passages"])
    return passages < FIT_SAMPLE and collection.store.count_used_after(0) >= REFIT_GROWTH * passages
