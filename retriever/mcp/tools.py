"""The tools for language models (search, similar, document and collections) and their descriptions."""

import logging
import re
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from mcp_types import CallToolResult, TextContent, Tool, ToolAnnotations
from pydantic import BaseModel, ValidationError

from retriever.errors import Misuse, NoSuchDocument, RetrieverError, first_line
from retriever.info import summary
from retriever.mcp import answers
from retriever.mcp.answers import CollectionsAnswer, DocumentAnswer, HitsAnswer
from retriever.mcp.quoting import visible, visible_value
from retriever.recovery.damage import detect_damage
from retriever.retriever import Retriever
from retriever.search.facets import Facet, FieldValue, facets
from retriever.terminal import cut, lines, one_line

log = logging.getLogger(__name__)

DOCUMENTS_READ = 1_000
FIELDS_SHOWN = 20
VALUES_SHOWN = 8
# A language model trusts the description of a tool. Only field names that match this pattern appear there.
PLAIN_NAME = re.compile(r"[\w.-]{1,40}")
SCALE = "Relevance is 0 to 100; 0 is no better than a random document."
HINTS = {"read_only_hint": True, "destructive_hint": False, "idempotent_hint": True, "open_world_hint": False}
TOOLS: dict[str, tuple[str, type[BaseModel], type[BaseModel]]] = {
    "search": ("Search documents", answers.SearchArguments, HitsAnswer),
    "similar": ("Similar documents", answers.SimilarArguments, HitsAnswer),
    "document": ("Read a document", answers.DocumentArguments, DocumentAnswer),
    "collections": ("List collections", answers.NoArguments, CollectionsAnswer),
}
"""For each tool: its title, the class of its arguments, and the class of its answer.

The docstring of the arguments is the description of the tool.
"""


class Toolbox:
    """The tools for some collections. The first collection is the default. Threads may share a toolbox."""

    def __init__(self, collections: Mapping[str, Retriever]) -> None:
        self._collections = collections
        self._default = next(iter(self._collections))

    def described(self) -> list[Tool]:
        """Return the tools with their descriptions. The tool `search` also describes the current collections."""
        there = "\n".join(self._summary(name) for name in self._collections)
        collection = {
            "type": "string",
            "enum": list(self._collections),
            "default": self._default,
            "description": "The collection.",
        }
        described = []
        for name, (title, takes, gives) in TOOLS.items():
            schema = takes.model_json_schema()
            description = " ".join(schema.pop("description").split())
            if issubclass(takes, answers.Arguments):
                schema["properties"]["collection"] = collection
            described.append(
                Tool(
                    name=name,
                    title=title,
                    description=f"{description}\n\n{there}" if name == "search" else description,
                    input_schema=schema,
                    output_schema=gives.model_json_schema(),
                    annotations=ToolAnnotations(title=title, **HINTS),
                )
            )
        return described

    def _summary(self, name: str) -> str:
        default = " (default)" if name == self._default and len(self._collections) > 1 else ""
        start = f"Collection {one_line(name)!r}{default}: "
        try:
            retriever = self._collections[name]
            connection = retriever.local.store.db.conn
            some = "SELECT metadata FROM documents ORDER BY number LIMIT ?"
            query = f"SELECT key, count(*) FROM ({some}), json_each(metadata) GROUP BY key ORDER BY 2 DESC, 1"  # noqa: S608 - constant text
            fields = [str(row[0]) for row in connection.execute(query, [DOCUMENTS_READ])]
            count = f"{len(retriever):,} documents"
        except (RetrieverError, sqlite3.Error):
            return f"{start}cannot be read; the tool `collections` says why."
        plain = [field for field in fields if PLAIN_NAME.fullmatch(field)][:FIELDS_SHOWN]
        more = f" and {len(fields) - len(plain):,} more" if len(fields) > len(plain) else ""
        return f"{start}{count}; metadata fields: {', '.join(plain)}{more}." if fields else f"{start}{count}."

    def call(self, name: str, given: Mapping[str, Any]) -> CallToolResult:
        """Run a tool. Return errors as text, so that the language model can correct its call."""
        takes = TOOLS[name][1]
        try:
            answer: Any = getattr(self, name)(takes.model_validate(given))
            text, data = answer.readable(), answer.model_dump(mode="json")
            return CallToolResult(content=[TextContent(text=text)], structured_content=data)
        except ValidationError as error:
            return _failed("\n".join(_problem(one, takes) for one in error.errors()))
        except NoSuchDocument as error:
            collection = given.get("collection") or self._default
            return _failed(f"there is no document {cut(error.id, 100)!r} in the collection {collection!r}.")
        except RetrieverError as error:
            return _failed(str(error))
        except (sqlite3.Error, OSError) as error:
            log.warning("%s: %s", name, first_line(error))
            return _failed(
                f"the collection cannot be read: {first_line(error)}. Try again. If it still fails, its owner can "
                "check the collection with: retriever verify --index DIR"
            )
        except Exception:
            log.exception("the tool %s failed", name)
            return _failed("the server failed; the request is not at fault. The server's log says more.")

    def search(self, given: answers.SearchArguments) -> HitsAnswer:
        name, retriever = self._named(given.collection)
        (answer,) = retriever.answer_many(
            [given.query], given.k, mode=given.mode, where=given.where, min_score=given.min_score
        )
        notes = [note for note in (SCALE if answer.hits else "", answer.note) if note]
        if answer.strange:
            notes.append("The query is unlike the collection's texts: the hits may be irrelevant.")
        return HitsAnswer.of(name, answer.hits, notes, answer.suggestion)

    def similar(self, given: answers.SimilarArguments) -> HitsAnswer:
        name, retriever = self._named(given.collection)
        return HitsAnswer.of(name, retriever.similar(given.id, given.k, where=given.where), [SCALE])

    def document(self, given: answers.DocumentArguments) -> DocumentAnswer:
        name, retriever = self._named(given.collection)
        document = retriever.document(given.id)
        if given.offset and given.offset >= len(document.text):
            raise Misuse(
                f"offset {given.offset:,} is beyond the end of the text, which has {len(document.text):,} characters."
            )
        whole, end = len(document.text), given.offset + given.length
        return DocumentAnswer.of(
            document,
            collection=name,
            text=visible(document.text[given.offset : end]),
            start=given.offset,
            end=min(end, whole),
            characters=whole,
            next_offset=end if end < whole else None,
        )

    def collections(self, given: answers.NoArguments) -> CollectionsAnswer:
        answer = CollectionsAnswer(collections=[], problems=[])
        for name in self._collections:
            try:
                answer.collections.append(_facts(self._collections[name], name, name == self._default))
            except (RetrieverError, sqlite3.Error) as error:
                answer.problems.append(f"{name} cannot be read: {lines(str(error))}")
        return answer

    def _named(self, name: str | None) -> tuple[str, Retriever]:
        name = self._default if name is None else name
        if name not in self._collections:
            there = ", ".join(map(repr, self._collections))
            raise Misuse(f"there is no collection {cut(name, 100)!r}; the collections are: {there}.")
        return name, self._collections[name]


@detect_damage
def _facts(retriever: Retriever, name: str, default: bool) -> answers.CollectionFacts:
    known = visible_value(asdict(summary(retriever.local)))
    fields = [_visible_facet(facet) for facet in facets(retriever.local.store)[:FIELDS_SHOWN]]
    return answers.CollectionFacts(name=name, default=default, **known, fields=fields)


def _visible_facet(facet: Facet) -> Facet:
    shown = facet.with_first(VALUES_SHOWN)
    values = [FieldValue(visible_value(one.value), one.count) for one in shown.values]
    return Facet(cut(facet.name, 200), shown.documents, values, shown.more)


def _failed(message: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=f"Error: {lines(message)}")], is_error=True)


def _problem(error: Any, takes: type[BaseModel]) -> str:
    """Describe what is wrong with an argument."""
    field = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"there is no argument {cut(field, 60)!r}; the arguments are: {', '.join(takes.model_fields)}."
    if error["type"] == "missing":
        return f"the argument {field!r} is missing."
    wrong = f"{field}: {error['msg'][0].lower()}{error['msg'][1:]}"
    if error["type"] == "too_long":
        return f"{wrong}."
    value = error["input"]
    what = f"has {len(value):,}" if error["type"] == "string_too_long" else f"is {cut(repr(value), 60)}"
    return f"{wrong}; it {what}."
