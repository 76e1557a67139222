"""The settings of a collection: its encoder, transform and index, and the evidence for every automatic choice.

A collection stores these settings as JSON values under the keys that `to_json` returns. `retriever.info.describe`
returns them together with the contents of the collection.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self

from indexes.checksums import is_unicode
from indexes.faiss.types import AUTO as AUTO_INDEX
from indexes.faiss.types import IndexRequest
from indexes.protocol import AnyCollection
from indexes.terms import NO_STEMS
from retriever.encoder.base import AnyEncoder
from retriever.encoder.encoder import Encoder, check_device, require_same_encoder
from retriever.encoder.functions import (
    NoEncoder,
    check_source,
    encoder_of_object,
    is_brought,
    is_endpoint,
    is_function,
    refuse_absent,
)
from retriever.encoder.model_files import DEFAULT_ENCODER, LEARNED, EncoderIdentity
from retriever.errors import Misuse, require_type
from retriever.progress import Progress, silent
from retriever.transforms.spec import AUTO, parse

if TYPE_CHECKING:
    from retriever.encoder.functions import EncoderSource

Evidence = Mapping[str, Any]
"""The alternatives that an automatic choice compared and the reason for its decision, as JSON."""


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

    name: "EncoderSource | None" = None
    """The name or folder of a BERT, an endpoint, or a function or an object of the caller."""
    pooling: str | None = None
    max_length: int | None = None
    batch_tokens: int | None = None
    device: str = "auto"
    precision: str | None = None
    query_prompt: str | None = None
    document_prompt: str | None = None

    def __post_init__(self) -> None:
        if self.name is not None:
            check_source(self.name)
        for name in ("pooling", "precision", "query_prompt", "document_prompt"):
            if (given := getattr(self, name)) is not None:
                require_type(name, given, "a text", str)
        for name in ("max_length", "batch_tokens"):
            if (given := getattr(self, name)) is not None:
                require_type(name, given, "a whole number of tokens", Integral)
                object.__setattr__(self, name, int(given))

    @property
    def is_model(self) -> bool:
        """Whether the given encoder is a model, or none is given. Only a model has settings to choose."""
        return self.name is None or not (is_function(self.name) or is_endpoint(self.name))

    def encoder(self, stored: EncoderIdentity | None = None, progress: Progress = silent) -> AnyEncoder:
        """Find the encoder. `stored` is the identity in the settings of a collection, if there is one."""
        if self.is_model and (self.name is not None or stored is None or stored.is_model):
            return self.model(stored, progress)
        if given := [name for name in ("pooling", "precision", "batch_tokens") if getattr(self, name) is not None]:
            raise Misuse(
                f"`{given[0]}` is a setting of a model; leave it out for a function, an object or an endpoint."
            )
        check_device(self.device)
        if self.name is None and stored is not None and is_brought(stored):
            return NoEncoder(stored)
        wanted: dict[str, Any] = {"max_length": self.max_length, "stored": stored}
        wanted |= {"query_prompt": self.query_prompt, "document_prompt": self.document_prompt}
        source = self.name if self.name is not None else stored.name if stored else ""
        if is_endpoint(source):
            from retriever.encoder.endpoint import EndpointEncoder  # a cold search needs no HTTP

            return EndpointEncoder(str(source), named=self.name is not None, **wanted)
        return encoder_of_object(source, **wanted)

    def model(self, stored: EncoderIdentity | None = None, progress: Progress = silent) -> Encoder:
        """Find the encoder, which is a model."""
        return Encoder(
            str(self.name) if self.name is not None else (stored.name if stored else DEFAULT_ENCODER),
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

    def encoder_of(self, collection: AnyCollection, progress: Progress = silent) -> AnyEncoder:
        """Find the encoder of a collection. Raise `Mismatch` if another encoder made the stored vectors."""
        stored, options = EncoderIdentity.from_json(collection.encoder), self
        if self.name is None:
            refuse_absent(stored, collection.name)
        if stored.pooling == LEARNED and self.is_model:
            from retriever.encoder.static.folder import find_folder

            place = collection.encoder_place(collection.name)
            given = None if self.name is None else str(self.name)
            options = replace(self, name=find_folder(stored, place, given, collection.name))
        encoder = options.encoder(stored, progress)
        require_same_encoder(stored, encoder.identity, collection.name)
        encoder.refuse_too_long(collection.name)
        return encoder


@dataclass(frozen=True)
class IndexSettings:
    """The transform and the FAISS index that a collection is published with."""

    transform: str = AUTO
    """The spec of a transform, or "auto" to choose one from the text."""
    index: IndexRequest = field(default_factory=lambda: IndexRequest(AUTO_INDEX))

    def __post_init__(self) -> None:
        require_type("transform", self.transform, "a text", str)
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
        wanted = self.transform if transform is None else transform
        return IndexSettings(wanted, IndexRequest(index_type, recall, memory))

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
    pieces_per_word: float | None = None
    """Into how many pieces the tokenizer cuts a word of the first documents on average. None if unknown."""
    learning: Evidence | None = None
    """How the word table was learned. None for any other encoder."""
    choice: Evidence | None = None
    """How the transform was chosen. None until the first index is published, or if the transform was given."""
    language: str = NO_STEMS
    """The language by whose stems words are compared, as a code of `indexes.terms.LANGUAGES`."""
    title: str | None = None
    """The title of the collection. If it is None, the name of its folder is shown."""
    description: str | None = None
    """A description of the collection in a few sentences."""
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
        return {"encoder": self.encoder.to_json(), **self.index.to_json(), **own}

    @classmethod
    def from_json(cls, setting: Callable[[str], Any]) -> Self:
        """Build the settings from a function that returns the JSON value of a key."""
        encoder = EncoderIdentity.from_json(setting("encoder"))
        index = IndexSettings.from_json({key: setting(key) for key in INDEX_KEYS})
        return cls(encoder, index, **{name: setting(name) for name in OTHER_KEYS})


OTHER_KEYS = (
    *("pooling_choice", "precision_choice", "pieces_per_word", "learning", "choice", "language"),
    *("title", "description", "made_by", "created"),
)

LONGEST_TITLE, LONGEST_DESCRIPTION = 200, 2_000


def described(title: str | None, description: str | None) -> dict[str, str | None]:
    """Check a title and a description, and return them as settings. None is left out, an empty text becomes None."""
    found: dict[str, str | None] = {}
    for name, text, most in (("title", title, LONGEST_TITLE), ("description", description, LONGEST_DESCRIPTION)):
        if text is None:
            continue
        if not isinstance(text, str):
            raise Misuse(f"`{name}` is a text, not {type(text).__name__}.")
        text = " ".join(text.split()) if name == "title" else text.strip()
        if len(text) > most:
            raise Misuse(f"`{name}` has {len(text):,} characters; at most {most:,} are stored.")
        if not is_unicode(text):
            raise Misuse(f"`{name}` contains half of a surrogate pair, which is not a character.")
        found[name] = text or None
    return found
