"""What is to be rehearsed, and how: from a source, from a collection that exists, or from what is built in."""

from collections.abc import Mapping
from pathlib import Path

from indexes.faiss.types import DEFAULT_RECALL
from indexes.folder.collection import Collection
from indexes.places import in_milvus
from retriever.corpus.source import Documents, OnError
from retriever.encoder.encoder import Encoder, require_same_encoder
from retriever.encoder.model_files import DEFAULT_ENCODER, EncoderIdentity
from retriever.errors import Misuse
from retriever.plan.planning import Wanted
from retriever.plan.sample import Sample, built_in, from_collection, from_source
from retriever.transforms.spec import AUTO

OF_THE_COLLECTION = ("pooling", "max_length", "precision", "transform")


def gathered(
    documents: Documents | None,
    index: Path | None,
    *,
    on_error: OnError = "skip",
    encoder: str | None = None,
    pooling: str | None = None,
    max_length: int | None = None,
    precision: str | None = None,
    transform: str | None = None,
    recall: float | None = None,
) -> tuple[Sample, Wanted]:
    """The sample and what is wanted of it; refuses what could not be indexed before anything is measured."""
    recall = DEFAULT_RECALL if recall is None else recall
    if index is not None:
        asked = dict(zip(OF_THE_COLLECTION, (pooling, max_length, precision, transform), strict=True))
        return _of_collection(documents, index, encoder, asked, recall)
    fixed = Encoder(
        encoder or DEFAULT_ENCODER,
        pooling=None if pooling == AUTO else pooling,
        max_length=max_length,
        precision=None if precision == AUTO else precision,
        device="cpu",
    )
    wanted = Wanted(encoder or DEFAULT_ENCODER, pooling, max_length, precision, transform or AUTO, recall)
    wanted.check(fixed.identity.dimension)
    return (built_in() if documents is None else from_source(documents, on_error)), wanted


def _of_collection(
    documents: Documents | None, index: Path, encoder: str | None, asked: Mapping[str, object], recall: float
) -> tuple[Sample, Wanted]:
    if documents is not None:
        raise Misuse("give a SOURCE or --index, not both: each is a sample of the corpus to come.")
    if given := [name.replace("_", "-") for name, value in asked.items() if value is not None]:
        raise Misuse(f"--{given[0]} goes with a SOURCE; {index} has its own, and is planned with it.")
    if in_milvus(index):
        raise Misuse(f"{index} lies in Milvus, and a plan needs a folder; copy it first: retriever copy {index} DIR")
    with Collection.open(index) as collection:
        stored = EncoderIdentity.from_json(collection.encoder)
        own = Encoder(encoder or stored.name, stored=stored, device="cpu")
        require_same_encoder(stored, own.identity, index)
        if not collection.store.count("passages"):
            raise Misuse(f"{index} has no document to plan by; index some first, or give a SOURCE.")
        transform = str(collection.store.setting("transform"))
        name = encoder or stored.name
        wanted = Wanted(name, stored.pooling, stored.max_length, stored.precision, transform, recall, index)
        wanted.check(stored.dimension)
        return from_collection(collection), wanted
