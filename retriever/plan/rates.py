"""What a rehearsal measured: the only numbers that the laws start from. No rate is a constant of ours."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self


@dataclass(frozen=True)
class Encoded:
    """Texts that went through the encoder in one precision; CPU seconds are of all threads, tokenising among them."""

    texts: int
    tokens: int
    cpu_seconds: float
    wall_seconds: float

    @property
    def cpu_a_text(self) -> float:
        return self.cpu_seconds / self.texts


@dataclass(frozen=True)
class Sampled:
    """What the sample is, and what its documents are like."""

    what: str
    documents: int
    passages: int
    texts: int
    """Different ones: each has one vector."""
    tokens: int
    characters: int
    read_cpu_seconds: float


@dataclass(frozen=True)
class Stored:
    """Documents stored by the ingestion pipeline with their vectors given: all of its costs but the encoder's."""

    documents: int
    vectors: int
    cpu_seconds: float
    bytes: Mapping[str, float]
    """By table, what one more document takes, of tables that grow; vectors have a law of their own."""
    fixed_bytes: float
    cache_bytes: int
    """What one connection to the database keeps of it in memory at most."""


@dataclass(frozen=True)
class Fitted:
    """The transform chosen and fitted, and what ordinary text scores; on as many passages as a fit ever sees."""

    transform: str
    passages: int
    dimension: int
    cpu_seconds: float
    peak_bytes: int


@dataclass(frozen=True)
class Published:
    """An exact index built of the stored vectors, written and switched to."""

    vectors: int
    cpu_seconds: float
    peak_bytes: int
    fixed_bytes: int
    """Files of a generation that do not grow: the transform, queries, what ordinary text scores; SQLite has a copy."""


@dataclass(frozen=True)
class Searched:
    """Queries asked of the rehearsed collection in a process of its own, one at a time."""

    vectors: int
    cpu_ms: float
    """Without the encoder: the index, the exact scores, the documents."""
    encoder_ms: float
    peak_bytes: int


@dataclass(frozen=True)
class Trial:
    """An index type tried: what it costs on vectors made up for it, what it finds among the sample's own."""

    factory: str
    vectors: int
    lists: int
    train_cpu_seconds: float
    add_cpu_seconds: float
    scan_ms: float
    """CPU of one query in FAISS alone, with these settings."""
    scan_twice_ms: float
    """The same of twice as many vectors."""
    settings: Mapping[str, int] = field(default_factory=dict)
    judged_on: int = 0
    """Vectors of the sample that recall was measured on; 0 where they were too few for this type."""
    recall: float | None = None
    low: float | None = None
    high: float | None = None
    reaches: bool = False


@dataclass(frozen=True)
class Rates:
    """All of it."""

    encoder: Mapping[str, Any]
    precision: str
    precision_reason: str
    start_cpu_seconds: float
    """From the start of a process to an encoder that is loaded."""
    choosing_cpu_seconds: float
    """For the choice of precision, and of pooling where that was asked for."""
    sample: Sampled
    encoded: Mapping[str, Encoded]
    """By precision."""
    stored: Stored
    fitted: Fitted
    published: Published
    searched: Searched
    scans: Sequence[tuple[int, float]]
    """Vectors in an exact index and the CPU milliseconds of one query, rising."""
    truth_cpu_a_vector: float
    """For the true nearest of the queries that tune and judge an approximate index."""
    fetch_ms: float
    """To read one candidate from SQLite and score it exactly."""
    trials: Mapping[str, Trial]
    cores: int
    gpu: bool = False

    @property
    def dimension(self) -> int:
        """Of the encoder's vectors, which SQLite keeps."""
        return int(self.encoder["dimension"])

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """From what `to_json` gave, through JSON."""
        parts: dict[str, Any] = dict(found)
        kinds = {"sample": Sampled, "stored": Stored, "fitted": Fitted, "published": Published, "searched": Searched}
        parts |= {name: kind(**parts[name]) for name, kind in kinds.items()}
        parts["encoded"] = {name: Encoded(**one) for name, one in parts["encoded"].items()}
        parts["trials"] = {name: Trial(**one) for name, one in parts["trials"].items()}
        parts["scans"] = tuple((int(count), float(ms)) for count, ms in parts["scans"])
        return cls(**parts)
