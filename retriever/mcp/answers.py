"""What the tools for language models take and give: arguments, answers as data, and the same answers as text."""

import json
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from retriever.corpus import Document
from retriever.hits import Hit, Mode
from retriever.mcp.quoting import (
    LONGEST_ID,
    LONGEST_PASSAGE,
    LONGEST_TITLE,
    NOTICE,
    Quotation,
    bounded,
    literal,
    visible,
)
from retriever.terminal import cut, one_line

MOST_HITS = 50
LONGEST_QUERY = 10_000
MOST_FILTERS = 32
PAGE = 4_000
LONGEST_PAGE = 20_000

WHERE = (
    "Filters over metadata, all of which must fit: a field, one of = != < <= > >= or in (…), and a value. Examples: "
    "'year >= 2020', 'lang in (en, de)', 'author.name = Ada', 'date >= 2020-01-31', 'done = true', 'field != null'."
)


def _filters(given: Any) -> Any:
    """One filter without a list, or a list written as text, which some clients send."""
    if not isinstance(given, str):
        return given
    if given.lstrip().startswith("["):  # no filter does
        try:
            return json.loads(given)
        except ValueError:
            return given
    return [given]


class NoArguments(BaseModel):
    """Of a tool that takes none; some clients send one nevertheless, which is passed over."""


class Arguments(BaseModel):
    """What every other tool may be told."""

    model_config = ConfigDict(extra="forbid")

    collection: str | None = None


Number = Annotated[int, Field(ge=1, le=MOST_HITS, description="How many documents at most.")]
Filters = Annotated[list[str], Field(max_length=MOST_FILTERS, description=WHERE), BeforeValidator(_filters)]
Id = Annotated[str, Field(description="The id of a document, exactly as a hit gave it.")]


class SearchArguments(Arguments):
    query: str = Field(
        max_length=LONGEST_QUERY, description="What to look for, as a question, a sentence or words that describe it."
    )
    k: Number = 5
    mode: Mode = Field(
        "dense",
        description="dense: by meaning. lexical: by words (BM25), for names, codes and exact terms. hybrid: by both, "
        "which mostly finds best. Scores of different modes cannot be compared.",
    )
    where: Filters = []


class SimilarArguments(Arguments):
    id: Id
    k: Number = 5
    where: Filters = []


class DocumentArguments(Arguments):
    id: Id
    offset: int = Field(0, ge=0, description="The first character of the text to read; a hit's start is one.")
    length: int = Field(PAGE, ge=1, le=LONGEST_PAGE, description="How many characters of the text to read.")


class QuotedHit(BaseModel):
    rank: int
    score: float
    id: str
    title: str
    passage: str = Field(description="The passage of the document that fits best.")
    start: int = Field(description="Where the passage starts in the document's text, in characters.")
    end: int
    metadata: dict[str, Any]
    cut: list[str] = Field(description="What is too long and not given whole.")

    @classmethod
    def of(cls, hit: Hit) -> "QuotedHit":
        metadata, left_out = bounded(hit.metadata)
        longest = {"id": (hit.id, LONGEST_ID), "title": (hit.title, LONGEST_TITLE)}
        longest["passage"] = (hit.passage, LONGEST_PASSAGE)
        return cls(
            rank=hit.rank,
            score=hit.score,
            id=cut(hit.id, LONGEST_ID),
            title=cut(one_line(hit.title), LONGEST_TITLE),
            passage=visible(cut(hit.passage, LONGEST_PASSAGE)),
            start=hit.start,
            end=hit.end,
            metadata=metadata,
            cut=[name for name, (text, most) in longest.items() if len(text) > most] + left_out,
        )

    def readable(self, quotation: Quotation) -> str:
        own = _fields(self.id, self.title, self.metadata, self.cut)
        head = f"{self.rank}. score {self.score:.3f}, characters {self.start:,} to {self.end:,} of its text"
        return f"{head}\n{quotation.quoted([*own, 'passage:', self.passage])}"


class HitsAnswer(BaseModel):
    """What a search or a look for similar documents found, best first."""

    collection: str
    hits: list[QuotedHit]
    notes: list[str] = Field(description="What to know about the hits.")
    notice: str = NOTICE

    @classmethod
    def of(cls, collection: str, hits: Sequence[Hit], notes: Sequence[str]) -> "HitsAnswer":
        return cls(collection=collection, hits=[QuotedHit.of(hit) for hit in hits], notes=list(notes))

    def readable(self) -> str:
        if not self.hits:
            return "\n".join([f"Nothing found in {self.collection!r}.", *self.notes])
        quotation = Quotation()
        count = f"{len(self.hits)} document{'' if len(self.hits) == 1 else 's'} of {self.collection!r}, best first."
        return "\n\n".join(
            [" ".join([count, *self.notes]), quotation.notice(), *(hit.readable(quotation) for hit in self.hits)]
        )


class DocumentAnswer(BaseModel):
    """A part of a stored document."""

    collection: str
    id: str
    title: str
    metadata: dict[str, Any]
    cut: list[str] = Field(description="What is too long and not given whole.")
    text: str
    start: int
    end: int
    characters: int = Field(description="How many the whole text has.")
    next_offset: int | None = Field(description="The offset to read on with; null at the end.")
    notice: str = NOTICE

    @classmethod
    def of(cls, collection: str, document: Document, offset: int, length: int) -> "DocumentAnswer":
        whole = len(document.text)
        end = min(offset + length, whole)
        metadata, left_out = bounded(document.metadata)
        return cls(
            collection=collection,
            id=cut(document.id, LONGEST_ID),
            title=cut(one_line(document.title), LONGEST_TITLE),
            metadata=metadata,
            cut=["title"] * (len(document.title) > LONGEST_TITLE) + left_out,
            text=visible(document.text[offset:end]),
            start=offset,
            end=end,
            characters=whole,
            next_offset=end if end < whole else None,
        )

    def readable(self) -> str:
        quotation = Quotation()
        more = "the end" if self.next_offset is None else f"read on with offset={self.next_offset}"
        head = f"Characters {self.start:,} to {self.end:,} of {self.characters:,} in {self.collection!r}; {more}."
        own = _fields(self.id, self.title, self.metadata, self.cut)
        return "\n\n".join([head, quotation.notice(), quotation.quoted([*own, "text:", self.text])])


def _fields(id_: str, title: str, metadata: dict[str, Any], left_out: Sequence[str]) -> list[str]:
    found = [f"id: {literal(id_)}"]
    if title:
        found.append(f"title: {title}")
    if metadata:
        found.append(f"metadata: {json.dumps(metadata, ensure_ascii=False)}")
    if left_out:
        found.append(f"not given whole: {', '.join(left_out)}")
    return found


class FieldValue(BaseModel):
    value: str | int | float | bool
    documents: int


class FieldFacts(BaseModel):
    name: str
    documents: int
    values: list[FieldValue] = Field(description="The commonest.")
    more: bool = Field(description="Whether there are other values.")


class CollectionFacts(BaseModel):
    name: str
    default: bool = Field(description="Whether it is taken where no collection is named.")
    documents: int
    passages: int
    encoder: str
    transform: str
    generation: int | None = Field(description="Goes up when its index is made anew.")
    fields: list[FieldFacts] = Field(description="The metadata fields to filter by, commonest first.")

    def readable(self, quotation: Quotation) -> str:
        head = (
            f"{self.name}{' (default)' if self.default else ''}: {self.documents:,} documents in {self.passages:,} "
            f"passages, encoder {self.encoder}, transform {self.transform}"
        )
        if not self.fields:
            return f"{head}; no metadata to filter by."
        return f"{head}; metadata fields:\n{quotation.quoted([_field_line(field) for field in self.fields])}"


def _field_line(field: FieldFacts) -> str:
    values = [f"{json.dumps(one.value, ensure_ascii=False)} ({one.documents:,})" for one in field.values]
    return f"{literal(field.name)} in {field.documents:,}: {', '.join(values + ['…'] * field.more)}"


class CollectionsAnswer(BaseModel):
    """The collections there are."""

    collections: list[CollectionFacts]
    problems: list[str] = Field(description="What cannot be read, and why.")
    notice: str = NOTICE

    def readable(self) -> str:
        quotation = Quotation()
        found = [one.readable(quotation) for one in self.collections]
        return "\n\n".join([quotation.notice(), *found, *self.problems])
