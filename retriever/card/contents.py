"""The contents of a card, collected from a collection. All values can be written as JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from indexes.folder.collection import Collection
from retriever.card.space import IsotropyReport, isotropy_report
from retriever.encoder.model_files import public_name
from retriever.search.facets import RangedFacet, facets
from retriever.transforms import Transform

FIELDS = 20
VALUES = 5


@dataclass(frozen=True)
class Card:
    """The facts about a collection that a card shows."""

    name: str
    made: str
    """When the card was made."""
    info: dict[str, Any]
    """What `Retriever.info` returns, without paths of this machine."""
    space: IsotropyReport | None
    """The isotropy of the vectors; None if there are too few vectors, or no transform yet."""
    fields: list[RangedFacet]
    """The most frequent metadata fields with their most frequent values."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def collect_card(collection: Collection, info: Mapping[str, Any], transform: Transform | None) -> Card:
    """Collect the card of a collection from its `info` and its published transform (None if there is none)."""
    public = {key: value for key, value in info.items() if key != "folder"}
    public["encoder"] = {**info["encoder"], "name": public_name(str(info["encoder"]["name"]))}
    return Card(
        name=Path(collection.folder).resolve().name,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        info=public,
        space=isotropy_report(collection, transform) if transform else None,
        fields=[facet.with_first(VALUES) for facet in facets(collection.store)[:FIELDS]],
    )
