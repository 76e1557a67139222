"""The settings of a new collection; pooling and precision may be chosen from a sample of the documents."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from indexes.protocol import AnyCollection
from retriever.corpus.source import Source
from retriever.ingest.pooling_choice import choose_pooling
from retriever.ingest.precision_choice import PrecisionChoice, choose_precision
from retriever.progress import Progress
from retriever.settings import CollectionSettings, EncoderOptions, IndexSettings


def new_settings(
    kind: type[AnyCollection], options: EncoderOptions, changes: Sequence[Any], progress: Progress
) -> CollectionSettings:
    """Make the settings from the options of a caller; `changes` are the arguments of `IndexSettings.changed`."""
    identity = options.encoder(progress=progress).identity
    wanted = IndexSettings().changed(*changes)
    wanted.check(identity.dimension, options.device, kind)
    return CollectionSettings(identity, wanted)


def choose_encoder_settings(
    settings: CollectionSettings,
    source: Source,
    options: EncoderOptions,
    gpus: int,
    progress: Progress,
    *,
    pooling: bool,
) -> CollectionSettings:
    """Choose the pooling if `pooling` is True, and the precision if `options` do not fix it.

    `gpus` is how many GPUs other machines offer.
    """
    if pooling:
        settings = _choose_pooling(settings, source, options, progress)
    if options.precision is None:
        settings = _choose_precision(settings, source, options, gpus > 0 and options.device != "cpu", progress)
    return settings


def _choose_pooling(
    settings: CollectionSettings, source: Source, options: EncoderOptions, progress: Progress
) -> CollectionSettings:
    encoder = options.encoder(progress=progress)
    choice = choose_pooling(source.peek(), encoder, settings.index.transform, progress=progress)
    identity = replace(settings.encoder, pooling=choice.chosen)
    return replace(settings, encoder=identity, pooling_choice=choice.to_json())


def _choose_precision(
    settings: CollectionSettings, source: Source, options: EncoderOptions, on_gpus: bool, progress: Progress
) -> CollectionSettings:
    single = replace(options, precision="fp32").encoder(settings.encoder, progress)
    if on_gpus or single.device != "cpu":
        choice = PrecisionChoice("fp32", "8-bit integers are for processors, and this runs on a GPU")
    else:
        integers = replace(options, precision="int8").encoder(settings.encoder, progress)
        documents, transform = source.peek(), settings.index.transform
        choice = choose_precision(documents, single, integers, transform, progress=progress)
    identity = replace(settings.encoder, precision=choice.chosen)
    return replace(settings, encoder=identity, precision_choice=choice.to_json())
