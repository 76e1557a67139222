"""From stored raw vectors to a published index: fit the transform where one is due, map, build, switch."""

import contextlib
import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.faiss.types import IndexRequest
from indexes.faiss.vectors import save_array
from indexes.folder.generation import Generation
from indexes.protocol import AnyCollection, AnyStore
from indexes.publication import Publication
from retriever.corpus.passages import encoded_text
from retriever.corpus.short_texts import short_texts
from retriever.errors import Damaged, EncoderUnavailable, Mismatch, Misuse, first_line
from retriever.ingest.engines import Engine
from retriever.progress import Progress, silent
from retriever.transforms import Transform, fit, load, parse
from retriever.transforms.choice import AUTO, POOL, Evidence, choose_for
from retriever.transforms.novelty import JSON_FILE as NOVELTY_FILE
from retriever.transforms.novelty import Novelty, ShortTexts, measured

DEFAULT_TRANSFORM = AUTO
DEFAULT_INDEX_TYPE = "flat"
SEED = 0
# Enough to estimate a covariance of a thousand dimensions and to train the flow, and small in memory.
FIT_SAMPLE = 20_000
# Cut from the passages, for the fit to know what is short; as many as there are passages, up to this.
SHORT_TEXTS = 1000
FEWEST_FOR_SHORT = 50
# Their vectors stay with the generation, so that any index made later is measured without the encoder.
QUERIES_FILE = "queries.npy"
WITHOUT_SHORT = "the encoder was not to be had: fitted on passages alone, and short queries may fall outside of them"
# A transform fitted on less than half of what is there now is fitted again.
REFIT_GROWTH = 2
# A search scans what is newer than the generation exactly; past this many it is worth a new one.
BACKLOG_ROWS = 1000
BACKLOG_SHARE = 0.1
# Characters of a title that a text for the fit begins with; no encoder reads so many.
LONGEST_TITLE = 10_000

Encode = Callable[[Sequence[str]], NDArray[np.float32]]


@dataclass(frozen=True)
class Plan:
    """What a publication needs to know: the transform wanted and the kind of FAISS index."""

    transform: str
    index: IndexRequest

    def __post_init__(self) -> None:
        if self.transform != AUTO:
            object.__setattr__(self, "transform", str(parse(self.transform)))

    def check(self, dimension: int, device: str, kind: type[AnyCollection]) -> None:
        """Refuse, before anything is embedded, what vectors of this dimension could not be made into, what this kind
        of collection has no index for, or what a GPU that was asked for could not search."""
        options = {} if self.transform == AUTO else parse(self.transform).options
        kept = int(options.get("dimension", dimension))
        if kept > dimension:
            raise Misuse(f"--transform {self.transform}: the encoder's vectors have only {dimension} dimensions.")
        kind.check_index(self.index, kept, device)


def load_transform(generation: Generation) -> Transform:
    """The transform of a generation, refused if it is not the one the index was built with."""
    transform = load(generation.folder)
    expected = generation.manifest["transform"]["fingerprint"]
    if transform.fingerprint != expected:
        raise Mismatch(
            f"{generation.folder} was built with the transform {expected[:12]}, "
            f"the one beside it is {transform.fingerprint[:12]}; run: retriever verify --repair"
        )
    return transform


def due(collection: AnyCollection, plan: Plan) -> bool:
    """Whether the published generation is missing, not what is planned, or far behind the table."""
    generation = collection.generation()
    if generation is None:
        return collection.store.count("passages") > 0
    if not _as_planned(generation, plan) or _outgrown(collection, generation):
        return True
    newer, unused = collection.backlog()
    return newer + unused > max(BACKLOG_ROWS, BACKLOG_SHARE * generation.count)


def publish(
    collection: AnyCollection,
    plan: Plan,
    *,
    refit: bool = False,
    compact: bool = False,
    encode: Encode,
    device: str = "cpu",
    engine: Engine | None = None,
    progress: Progress = silent,
) -> Transform:
    """Publish a new generation; the transform is chosen and fitted again only where it has to be.

    `encode` is called only when a transform is fitted, with short texts cut from the passages: those that serve
    as queries where one is to be chosen, and those that tell what an ordinary query scores. `engine` applies the
    transform to all vectors; it is fitted here, on the same sample whichever engine that is.
    """
    _return_free_memory()
    kept = None if refit else _kept_transform(collection, plan)
    if kept is not None:
        transform, novelty, counts, queries = kept
        choice = collection.store.setting("choice")
    else:
        numbers = _sample(collection)
        passages = collection.store.vectors(numbers.tolist(), collection.dimension, checked=True)
        evidence = _evidence(collection)
        short, without = None, ""
        if len(passages) >= FEWEST_FOR_SHORT:
            short, without = _short_texts(evidence, plan, encode, progress)
        sample = passages if short is None else np.concatenate([passages, short.vectors])
        chosen = choose_for(
            plan.transform,
            evidence,
            encode,
            sample,
            with_short_texts=short is not None,
            seed=SEED,
            progress=lambda done, total: progress("choosing a transform", done, total),
        )
        choice = chosen.to_json() if chosen else None
        transform = fit(
            chosen.chosen if chosen else plan.transform,
            sample,
            seed=SEED,
            device=device,
            progress=lambda done, total: progress("fitting the transform", done, total),
        )
        if without and transform.family != "none":
            transform = type(transform)(replace(transform.state, notes=(*transform.notes, without)))
        counts = {
            "passages": len(passages),
            "short_texts": len(short.texts) if short and transform.family != "none" else 0,
        }
        queries = None if short is None else short.vectors.astype(np.float16)
        del sample, evidence
        progress("measuring ordinary text", 0, 1)
        novelty = _measured(collection, numbers, passages, short)
        progress("measuring ordinary text", 1, 1)
        del passages
        _return_free_memory()

    def write_files(folder: Path) -> list[str]:
        written = [*transform.save(folder), *(novelty.save(folder) if novelty else [])]
        if queries is not None:
            save_array(folder / QUERIES_FILE, queries)
            written.append(QUERIES_FILE)
        return written

    _publish(collection, plan, transform, write_files, choice, counts, queries, compact, kept is None, progress, engine)
    return transform


def republish(
    collection: AnyCollection,
    plan: Plan,
    files: Mapping[str, bytes],
    counts: dict[str, int] | None,
    *,
    settings: Mapping[str, Any] | None = None,
    progress: Progress = silent,
) -> Transform:
    """Build the generation again with the very transform it had, whose files are given.

    `settings` are changed together with the publication. `counts` is what it was fitted on, None where the manifest
    that knew is lost: then short texts count as passages.
    """

    def write_files(folder: Path) -> list[str]:
        for name, data in files.items():
            (folder / name).write_bytes(data)
        return list(files)

    with TemporaryDirectory() as folder:
        write_files(Path(folder))
        transform = load(Path(folder))
        if NOVELTY_FILE in files:
            Novelty.load(Path(folder))  # refused if damaged
        queries = _queries(Path(folder), collection.dimension)
    choice = collection.store.setting("choice")
    counts = counts or {"passages": transform.fitted_on}
    _publish(
        collection, plan, transform, write_files, choice, counts, queries, False, False, progress, settings=settings
    )
    return transform


def _publish(
    collection: AnyCollection,
    plan: Plan,
    transform: Transform,
    write_transform: Callable[[Path], list[str]],
    choice: dict[str, Any] | None,
    counts: dict[str, int],
    queries: NDArray[np.float16] | None,
    compact: bool,
    reconsider: bool,
    progress: Progress,
    engine: Engine | None = None,
    settings: Mapping[str, Any] | None = None,
) -> None:
    publication = Publication(
        transform.apply,
        transform.dimension_out,
        plan.index,
        write_transform,
        {
            "made_by": made_by(),
            "encoder": collection.encoder,
            "asked": plan.transform,
            "transform": transform.describe(),
            "fitted_on": counts,
        },
        {
            "transform": plan.transform,
            "index_type": plan.index.type,
            "recall": plan.index.recall,
            "memory": plan.index.memory,
            "choice": choice,
            **(settings or {}),
        },
        compact=compact,
        queries=None if queries is None else queries.astype(np.float32),
        reconsider=reconsider,
        apply_each=partial(engine.mapped, transform) if engine else None,
    )
    collection.publish(publication, progress)


def _return_free_memory() -> None:
    """Give back to the system what the encoder and the fit have freed, where the C library is glibc.

    glibc keeps it for later; the index, which is as large as the collection, would come on top of it.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def made_by() -> str:
    try:
        return f"flow-retriever {version('flow-retriever')}"
    except PackageNotFoundError:
        return "flow-retriever (not installed)"


def _as_planned(generation: Generation, plan: Plan) -> bool:
    manifest = generation.manifest
    return bool(manifest["asked"] == plan.transform and generation.requested == plan.index)


def _queries(folder: Path, dimension: int) -> NDArray[np.float16] | None:
    """The raw vectors of short texts that an index is measured with; None in a generation of an older version."""
    path = folder / QUERIES_FILE
    if not path.exists():
        return None
    try:
        queries = np.asarray(np.load(path, allow_pickle=False), np.float16)
        if queries.ndim != 2 or queries.shape[1] != dimension or not np.isfinite(queries).all():
            raise ValueError(f"its vectors are not {dimension} finite numbers each")
    except (ValueError, EOFError, OSError) as error:
        raise Damaged(f"{path} cannot be read: {first_line(error)}; run: retriever verify --repair") from error
    return queries


def _kept_transform(
    collection: AnyCollection, plan: Plan
) -> tuple[Transform, Novelty | None, dict[str, int], NDArray[np.float16] | None] | None:
    generation = collection.generation()
    if generation is None or generation.manifest["asked"] != plan.transform:
        return None
    if _outgrown(collection, generation):
        return None
    queries = _queries(generation.folder, collection.dimension)
    return load_transform(generation), Novelty.of(generation), fitted_on(generation), queries


def fitted_on(generation: Generation) -> dict[str, int]:
    """How many passages and short texts the transform was fitted on; older manifests know of passages only."""
    manifest = generation.manifest
    return dict(manifest.get("fitted_on") or {"passages": manifest["transform"]["fitted_on"]})


def _outgrown(collection: AnyCollection, generation: Generation) -> bool:
    """Whether the transform was fitted on so few that fitting it again is worth it."""
    passages = fitted_on(generation)["passages"]
    return passages < FIT_SAMPLE and collection.store.count_used_after(0) >= REFIT_GROWTH * passages


def _sample(collection: AnyCollection) -> NDArray[np.int64]:
    """The numbers of the vectors in use: all of them or, past FIT_SAMPLE, a seeded random choice.

    Every vector of the whole corpus is as likely to be in it as any other, and every set of so many as any other set:
    what a reservoir would hold after the corpus has passed by, without the need to have seen it in one pass.
    """
    numbers = collection.store.used_vectors()
    if len(numbers) > FIT_SAMPLE:
        rng = np.random.default_rng(SEED)
        numbers = np.sort(rng.choice(numbers, FIT_SAMPLE, replace=False))
    return numbers


def _short_texts(evidence: Evidence, plan: Plan, encode: Encode, progress: Progress) -> tuple[ShortTexts | None, str]:
    """Texts as short as queries, cut from the passages; None where there are none, or the encoder is not to be had,
    and then what to say of it."""
    texts = short_texts(evidence.texts, min(SHORT_TEXTS, len(evidence.texts)), SEED + 1)
    if not texts:
        return None, ""
    progress("embedding short texts", 0, len(texts))
    try:
        vectors = encode(texts)
    except (EncoderUnavailable, Mismatch):
        if plan.transform == AUTO:
            raise
        return None, WITHOUT_SHORT
    progress("embedding short texts", len(texts), len(texts))
    return ShortTexts(texts, vectors), ""


def _measured(
    collection: AnyCollection, numbers: NDArray[np.int64], sample: NDArray[np.float32], short: ShortTexts | None
) -> Novelty | None:
    """What ordinary text scores, for the alarm."""
    store = collection.store
    found = store.passages_of_vectors(numbers.tolist())
    passages = [found[number][0] for number in numbers.tolist()]

    def texts_of(rows: NDArray[np.int64]) -> list[str]:
        chosen = [passages[row] for row in rows]
        return [text for _, text in _texts(store, [(p.document, p.start, p.end) for p in chosen])]

    documents = np.array([passage.document for passage in passages], np.int64)
    return measured(sample, documents, texts_of, short, last_vector=store.last_vector(), seed=SEED)


def _evidence(collection: AnyCollection) -> Evidence:
    """Some passages with their texts, documents and raw vectors: a seeded random choice."""
    store = collection.store
    chosen = store.passage_sample(POOL, SEED)
    places = [(passage.document, passage.start, passage.end) for passage in chosen]
    return Evidence(
        [encoded_text(title, text) for title, text in _texts(store, places)],
        np.array([passage.document for passage in chosen], np.int64),
        store.vectors([passage.vector for passage in chosen], collection.dimension, checked=True),
    )


def _texts(store: AnyStore, places: Sequence[tuple[int, int, int]]) -> list[tuple[str, str]]:
    """The title and the passage at each place: (document, start, end). One document is held at a time: it may be one
    of megabytes."""
    found: list[tuple[str, str]] = [("", "")] * len(places)
    in_order = sorted(range(len(places)), key=lambda place: places[place][0])
    for number, own in groupby(in_order, key=lambda place: places[place][0]):
        fields = store.documents([number])[number]
        for place in own:
            _, start, end = places[place]
            found[place] = (fields["title"][:LONGEST_TITLE], fields["text"][start:end])
    return found
