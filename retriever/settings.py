"""The settings of a collection: its encoder, transform and index, and the evidence for every automatic choice.

A collection stores these settings as JSON values under the keys that `to_json` returns. `retriever.info.describe`
returns them together with the contents of the collection.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Self

from indexes.faiss.types import IndexRequest
from indexes.protocol import AnyCollection
from retriever.encoder.encoder import Encoder, require_same_encoder
from retriever.encoder.model_files import DEFAULT_ENCODER, LEARNED, EncoderIdentity
from retriever.errors import Misuse
from retriever.progress import Progress, silent
from retriever.transforms.spec import AUTO, parse

Evidence = Mapping[str, Any]
"""The alternatives that an automatic choice compared and the reason for its decision, as JSON."""
UNTUNED_WEIGHT = 0.1
"""The weight of the vectors in a hybrid search, if the encoder was never tuned for similarity."""
LEARNED_WEIGHT = 0.2
"""The weight of the vectors in a hybrid search, if the encoder is a learned word table."""


def made_by() -> str:
    """Return the name and version of this software."""
    try:
        return f"flow-retriever {version('flow-retriever')}"
    except PackageNotFoundError:
        return "flow-retriever (not installed)"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class EncoderOptions:
    """How to find and run an encoder. None means the value stored in the collection, or the default of the model."""

    name: str | None = None
    pooling: str | None = None
    max_length: int | None = None
    batch_tokens: int | None = None
    device: str = "auto"
    precision: str | None = None
    query_prompt: str | None = None
    document_prompt: str | None = None

    def encoder(self, stored: EncoderIdentity | None = None, progress: Progress = silent) -> Encoder:
        """Find the encoder. `stored` is the identity in the settings of a collection, if there is one."""
        return Encoder(
            self.name if self.name is not None else (stored.name if stored else DEFAULT_ENCODER),
            pooling=self.pooling,
            max_length=self.max_length,
            precision=self.precision,
            batch_tokens=self.batch_tokens,
            device=self.device,
            query_prompt=self.query_prompt,
            document_prompt=self.document_prompt,
            stored=stored,
            progress=progress,
        )

    def encoder_of(self, collection: AnyCollection, progress: Progress = silent) -> Encoder:
        """Find the encoder of a collection. Raise `Mismatch` if another encoder made the stored vectors."""
        stored, options = EncoderIdentity.from_json(collection.encoder), self
        if stored.pooling == LEARNED:
            from retriever.encoder.static.folder import find_folder

            place = collection.encoder_place(collection.name)
            options = replace(self, name=find_folder(stored, place, self.name, collection.name))
        encoder = options.encoder(stored, progress)
        require_same_encoder(stored, encoder.identity, collection.name)
        encoder.refuse_too_long(collection.name)
        return encoder


@dataclass(frozen=True)
class IndexSettings:
    """The transform and the FAISS index that a collection is published with."""

    transform: str = AUTO
    """The spec of a transform, or "auto" to choose one from the text."""
    index: IndexRequest = field(default_factory=lambda: IndexRequest("flat"))

    def __post_init__(self) -> None:
        if self.transform != AUTO:
            object.__setattr__(self, "transform", str(parse(self.transform)))

    def to_json(self) -> dict[str, Any]:
        index = self.index
        return {"transform": self.transform, "index_type": index.type, "recall": index.recall, "memory": index.memory}

    @classmethod
    def from_json(cls, settings: Mapping[str, Any]) -> Self:
        index = IndexRequest(settings["index_type"], settings["recall"], settings["memory"])
        return cls(str(settings["transform"]), index)

    @classmethod
    def of(cls, collection: AnyCollection) -> Self:
        """Read the settings of a collection."""
        return cls.from_json({key: collection.store.setting(key) for key in INDEX_KEYS})

    def changed(
        self,
        transform: str | None = None,
        index_type: str | None = None,
        recall: float | None = None,
        memory: int | None = None,
    ) -> "IndexSettings":
        """Return a copy with the given values. If the index type changes, `recall` and `memory` are not kept."""
        if index_type is None or index_type == self.index.type:
            index_type = self.index.type
            recall = self.index.recall if recall is None else recall
            memory = self.index.memory if memory is None else memory
        return IndexSettings(transform or self.transform, IndexRequest(index_type, recall, memory))

    def check(self, dimension: int, device: str, kind: type[AnyCollection]) -> None:
        """Raise `Misuse` if the transform or the index is impossible.

        It may be impossible for vectors of this dimension, on this device, or in this kind of collection. Call this
        before anything is embedded.
        """
        options = {} if self.transform == AUTO else parse(self.transform).options
        kept = int(options.get("dimension", dimension))
        if kept > dimension:
            raise Misuse(f"`transform={self.transform}`: the encoder's vectors have only {dimension} dimensions.")
        kind.check_index(self.index, kept, device)


INDEX_KEYS = ("transform", "index_type", "recall", "memory")


@dataclass(frozen=True)
class CollectionSettings:
    """All settings of a collection."""

    encoder: EncoderIdentity
    index: IndexSettings
    pooling_choice: Evidence | None = None
    precision_choice: Evidence | None = None
    learning: Evidence | None = None
    """How the word table was learned. None for any other encoder."""
    choice: Evidence | None = None
    """How the transform was chosen. None until the first index is published, or if the transform was given."""
    made_by: str = field(default_factory=made_by)
    created: str = field(default_factory=_now)

    @classmethod
    def new(cls, kind: type[AnyCollection], options: EncoderOptions, wanted: IndexSettings, progress: Progress) -> Self:
        """Make the settings of a new collection. Raise `Misuse` if the index is impossible with this encoder."""
        encoder = options.encoder(progress=progress).identity
        wanted.check(encoder.dimension, options.device, kind)
        return cls(encoder, wanted)

    def to_json(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in OTHER_KEYS}
        return {"encoder": asdict(self.encoder), **self.index.to_json(), **own}

    @classmethod
    def from_json(cls, setting: Callable[[str], Any]) -> Self:
        """Build the settings from a function that returns the JSON value of a key."""
        encoder = EncoderIdentity.from_json(setting("encoder"))
        index = IndexSettings.from_json({key: setting(key) for key in INDEX_KEYS})
        return cls(encoder, index, **{name: setting(name) for name in OTHER_KEYS})


OTHER_KEYS = ("pooling_choice", "precision_choice", "learning", "choice", "made_by", "created")


def trust(choice: Evidence | None, family: str, pooling: str) -> float:
    """Return the weight of the vectors in a hybrid search; the weight of the words is 1.

    `choice` is the evidence by which the transform was chosen. It holds the verdict whether the encoder was tuned for
    similarity. `family` is the family of the transform, and `pooling` is that of the encoder. Without a verdict, any
    family other than "none" counts as a sign of an untuned encoder.
    """
    if pooling == LEARNED:
        return LEARNED_WEIGHT
    if verdict := (choice or {}).get("verdict"):
        return 1.0 if verdict["tuned"] else UNTUNED_WEIGHT
    return 1.0 if family == "none" else UNTUNED_WEIGHT
