"""The arguments and answers of the tools. An answer is sent both as data and as the text that `readable` returns."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from retriever.corpus import Document
from retriever.hits import Hit, Mode
from retriever.mcp.quoting import LONGEST, LONGEST_PASSAGE, NOTICE, Quotation, literal, shortened, visible
from retriever.search.facets import Facet
from retriever.terminal import cut, one_line, plural

MOST_HITS = 50
LONGEST_QUERY = 10_000
MOST_FILTERS = 32
PAGE = 4_000
LONGEST_PAGE = 20_000


def _filters(given: Any) -> Any:
    """Convert filters to a list. Some clients send a single filter as a text, or a list as JSON text."""
    if not isinstance(given, str):
        return given
    if not given.lstrip().startswith("["):  # no filter begins with [
        return [given]
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(given)
    return given


class NoArguments(BaseModel):
    """Lists the collections with their metadata fields and the most frequent values. Call it before you use a
    filter."""

    # Some clients send arguments anyway. These are ignored.


class Arguments(BaseModel):
    """The argument that all other tools have. The docstring of a subclass describes its tool to language models."""

    model_config = ConfigDict(extra="forbid")

    collection: str | None = None


HitCount = Annotated[int, Field(ge=1, le=MOST_HITS, description="The maximum number of documents.")]
Filters = Annotated[
    list[str],
    Field(
        max_length=MOST_FILTERS,
        description="Filters on metadata; a document must match all. A filter is a field, one of = != < <= > >= or "
        "in (…), and a value. Examples: 'year >= 2020', 'lang in (en, de)', 'author.name = Ada', "
        "'date >= 2020-01-31', 'done = true', 'field != null'.",
    ),
    BeforeValidator(_filters),
]
Id = Annotated[str, Field(description="The id of a document, exactly as in a hit.")]


class SearchArguments(Arguments):
    """Finds the documents of a collection that match a query best. Returns the best passage, id, relevance and
    metadata of each. The tool `document` reads more of a document. If the hits do not match, try other words, another
    mode or fewer filters."""

    query: str = Field(
        max_length=LONGEST_QUERY,
        description="What to search for: a question, a sentence, or descriptive words. Words in double quotes must "
        "occur together, unless the mode is dense or no document has them.",
    )
    k: HitCount = 5
    mode: Mode = Field(
        "hybrid",
        description="hybrid: by meaning and words, usually the best. dense: by meaning. lexical: by words (BM25), for "
        "names, codes and exact terms.",
    )
    where: Filters = []
    min_score: float | None = Field(
        None, ge=0, le=100, description="Leave out hits with a lower relevance, which is 0 to 100. Null: none."
    )


class SimilarArguments(Arguments):
    """Finds the documents of a collection that are most similar to a given document of it. The document is
    given by its id, as shown in a hit."""

    id: Id
    k: HitCount = 5
    where: Filters = []


class DocumentArguments(Arguments):
    """Reads a stored document by the id of a hit: its metadata, and a part of its text from an offset. The answer
    gives the length of the text and the offset of the next part."""

    id: Id
    offset: int = Field(0, ge=0, description="The first character of the text to read, e.g. the start of a hit.")
    length: int = Field(PAGE, ge=1, le=LONGEST_PAGE, description="The number of characters to read.")


class Quoted(BaseModel):
    """The parts of a document that an answer quotes."""

    id: str
    title: str
    metadata: dict[str, Any]
    cut: list[str] = Field(description="Fields that are too long and were shortened or left out.")

    @classmethod
    def of(cls, found: Hit | Document, longest: Mapping[str, int] = LONGEST, **more: Any) -> Self:
        """Quote a hit or a document. `longest` has the maximum length of each field, and `more` has further fields."""
        metadata, left_out = shortened(found.metadata)
        return cls(
            id=cut(found.id, longest["id"]),
            title=cut(one_line(found.title), longest["title"]),
            metadata=metadata,
            cut=sorted(name for name, most in longest.items() if len(getattr(found, name)) > most) + left_out,
            **more,
        )

    def lines(self) -> list[str]:
        found = [f"id: {literal(self.id)}"]
        if self.title:
            found.append(f"title: {self.title}")
        if self.metadata:
            found.append(f"metadata: {json.dumps(self.metadata, ensure_ascii=False)}")
        if self.cut:
            found.append(f"shortened or left out: {', '.join(self.cut)}")
        return found


class QuotedHit(Quoted):
    rank: int
    relevance: float = Field(
        description="0 to 100 in every mode: 0 is no better than a random document, 100 is a perfect match."
    )
    score: float = Field(description="The exact score, by which hits are ordered. Its scale depends on the mode.")
    passage: str = Field(description="The passage of the document that matches best.")
    start: int = Field(description="Where the passage starts in the document's text, in characters.")
    end: int
    place: str = Field(description="The file of the passage, its line, its page, and the headings it is under.")

    def readable(self, quotation: Quotation) -> str:
        head = f"{self.rank}. relevance {self.relevance:.0f}, characters {self.start:,} to {self.end:,} of its text"
        place = [f"place: {self.place}"] if self.place else []
        return f"{head}\n{quotation.quoted([*self.lines(), *place, 'passage:', self.passage])}"


class HitsAnswer(BaseModel):
    """The documents that were found. The best comes first."""

    collection: str
    hits: list[QuotedHit]
    notes: list[str] = Field(description="Notes about the hits.")
    suggestion: str | None = Field(description="A corrected query, if no document has a word of the query.")
    notice: str = NOTICE

    @classmethod
    def of(cls, collection: str, hits: Sequence[Hit], notes: list[str], suggestion: str | None = None) -> Self:
        longest = {**LONGEST, "passage": LONGEST_PASSAGE}
        quoted = [
            QuotedHit.of(
                hit,
                longest,
                place=visible(cut(one_line(str(hit.place)), longest["title"])),
                passage=visible(cut(hit.passage, LONGEST_PASSAGE)),
                **{name: getattr(hit, name) for name in ("rank", "relevance", "score", "start", "end")},
            )
            for hit in hits
        ]
        return cls(collection=collection, hits=quoted, notes=notes, suggestion=suggestion and visible(suggestion))

    def readable(self) -> str:
        notes = [*self.notes, f"Did you mean: {literal(self.suggestion)}?"] if self.suggestion else self.notes
        if not self.hits:
            return "\n".join([f"Nothing found in {self.collection!r}.", *notes])
        quotation = Quotation()
        head = f"{plural(len(self.hits), 'document')} of {self.collection!r}, best first."
        hits = [hit.readable(quotation) for hit in self.hits]
        return "\n\n".join([" ".join([head, *notes]), quotation.notice(), *hits])


class DocumentAnswer(Quoted):
    """A part of a stored document."""

    collection: str
    text: str
    start: int
    end: int
    characters: int = Field(description="The length of the whole text.")
    next_offset: int | None = Field(description="The offset of the next part; null at the end.")
    notice: str = NOTICE

    def readable(self) -> str:
        quotation = Quotation()
        more = "this is the end" if self.next_offset is None else f"continue with offset={self.next_offset}"
        head = f"Characters {self.start:,} to {self.end:,} of {self.characters:,} in {self.collection!r}; {more}."
        return "\n\n".join([head, quotation.notice(), quotation.quoted([*self.lines(), "text:", self.text])])


class CollectionFacts(BaseModel):
    name: str
    default: bool = Field(description="True for the collection that is used if none is named.")
    title: str | None
    description: str | None
    documents: int
    passages: int
    encoder: str
    transform: str
    generation: int | None = Field(description="Increases when the index is published again.")
    fields: list[Facet] = Field(description="The metadata fields to filter by, most frequent first.")

    def readable(self, quotation: Quotation) -> str:
        head = (
            f"{self.name}{' (default)' if self.default else ''}: {self.documents:,} documents in {self.passages:,} "
            f"passages, encoder {self.encoder}, transform {self.transform}"
        )
        about = [f"{name}: {text}" for name in ("title", "description") if (text := getattr(self, name))]
        said = f"described as:\n{quotation.quoted(about)}\n" if about else ""
        if not self.fields:
            return f"{head}; {said}no metadata to filter by."
        return f"{head}; {said}metadata fields:\n{quotation.quoted([_field_line(field) for field in self.fields])}"


def _field_line(field: Facet) -> str:
    values = [f"{json.dumps(one.value, ensure_ascii=False)} ({one.count:,})" for one in field.values]
    return f"{literal(field.name)} in {field.documents:,}: {', '.join(values + ['…'] * field.more)}"


class CollectionsAnswer(BaseModel):
    """The answer of the tool `collections`."""

    collections: list[CollectionFacts]
    problems: list[str] = Field(description="Collections that cannot be read, and why.")
    notice: str = NOTICE

    def readable(self) -> str:
        quotation = Quotation()
        found = [one.readable(quotation) for one in self.collections]
        return "\n\n".join([quotation.notice(), *found, *self.problems])
