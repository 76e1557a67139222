"""The tools a language model gets: search, similar, document and collections, and what it is told about them."""

import logging
import re
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

from mcp_types import CallToolResult, TextContent, Tool, ToolAnnotations
from pydantic import BaseModel, ValidationError

from retriever.encoder.model_files import public_name
from retriever.errors import Misuse, NoSuchDocument, RetrieverError, first_line
from retriever.mcp.answers import (
    Arguments,
    CollectionFacts,
    CollectionsAnswer,
    DocumentAnswer,
    DocumentArguments,
    FieldFacts,
    FieldValue,
    HitsAnswer,
    NoArguments,
    SearchArguments,
    SimilarArguments,
)
from retriever.mcp.quoting import visible
from retriever.recovery.damage import detect_damage
from retriever.retriever import Retriever
from retriever.search.facets import facets
from retriever.terminal import cut, lines, one_line

log = logging.getLogger(__name__)

LOOKED_AT = 1_000
FIELDS_NAMED = 20
FIELDS_SHOWN = 20
VALUES_SHOWN = 8
# What stands in a description is believed, so a field's name must be one and no sentence.
PLAIN_NAME = re.compile(r"[\w.-]{1,40}")
SCORES = {"dense": "cosines, at most 1", "lexical": "BM25", "hybrid": "nats of evidence"}


class Toolbox:
    """The tools over some collections by name, the first of which is the default. Threads may share it."""

    def __init__(self, collections: Mapping[str, Retriever]) -> None:
        self._collections = collections
        self._default = next(iter(self._collections))
        self._tools: dict[str, tuple[Callable[[Any], BaseModel], type[BaseModel], type[BaseModel]]] = {
            "search": (self.search, SearchArguments, HitsAnswer),
            "similar": (self.similar, SimilarArguments, HitsAnswer),
            "document": (self.document, DocumentArguments, DocumentAnswer),
            "collections": (self.collections, NoArguments, CollectionsAnswer),
        }

    @property
    def names(self) -> list[str]:
        return list(self._tools)

    # ---- what a model is told -----------------------------------------------------------------------------

    def described(self) -> list[Tool]:
        """The tools with what the collections hold now."""
        there = "\n".join(self._summary(name) for name in self._collections)
        descriptions = {
            "search": (
                "Search documents",
                "Finds the documents of a collection that answer a query best, each with its best passage, id, score "
                "and metadata. Read more of one with the tool document. If the hits do not fit, try other words, "
                f"another mode or fewer filters.\n\n{there}",
            ),
            "similar": (
                "Similar documents",
                "Finds the documents of a collection that are most like one of its own, given by the id of a hit.",
            ),
            "document": (
                "Read a document",
                "Reads a stored document by the id of a hit: its text from an offset on, a page at a time, and its "
                "metadata. The answer says how long the text is and where to read on.",
            ),
            "collections": (
                "List collections",
                "Lists the collections with what they hold and the metadata fields to filter by, with their commonest "
                "values. Look here before the first filter.",
            ),
        }
        return [self._tool(name, *described) for name, described in descriptions.items()]

    def _summary(self, name: str) -> str:
        default = " (default)" if name == self._default and len(self._collections) > 1 else ""
        start = f"Collection {one_line(name)!r}{default}: "
        try:
            retriever = self._collections[name]
            connection = retriever.local.store.db.conn
            some = "SELECT metadata FROM documents ORDER BY number LIMIT ?"
            query = f"SELECT key, count(*) FROM ({some}), json_each(metadata) GROUP BY key ORDER BY 2 DESC, 1"  # noqa: S608 - constant text
            fields = [str(row[0]) for row in connection.execute(query, [LOOKED_AT])]
            count = f"{len(retriever):,} documents"
        except (RetrieverError, sqlite3.Error):
            return f"{start}cannot be read; the tool collections says why."
        plain = [field for field in fields if PLAIN_NAME.fullmatch(field)][:FIELDS_NAMED]
        more = f" and {len(fields) - len(plain):,} more" if len(fields) > len(plain) else ""
        return f"{start}{count}; metadata fields: {', '.join(plain)}{more}." if fields else f"{start}{count}."

    def _tool(self, name: str, title: str, description: str) -> Tool:
        _, takes, gives = self._tools[name]
        schema = takes.model_json_schema()
        schema.pop("description", None)
        if issubclass(takes, Arguments):
            schema["properties"]["collection"] = {
                "type": "string",
                "enum": list(self._collections),
                "default": self._default,
                "description": "Which collection.",
            }
        return Tool(
            name=name,
            title=title,
            description=description,
            input_schema=schema,
            output_schema=gives.model_json_schema(),
            annotations=ToolAnnotations(
                title=title, read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
            ),
        )

    # ---- what a model asks for ----------------------------------------------------------------------------

    def call(self, name: str, given: Mapping[str, Any]) -> CallToolResult:
        """The answer of a tool; what goes wrong is told as people are told it, for the model to do better."""
        act, takes, _ = self._tools[name]
        try:
            answer: Any = act(takes.model_validate(given))
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
                f"the collection cannot be read now: {first_line(error)}. Try again; if it stays so, its owner can "
                "look with: retriever verify --index DIR"
            )
        except Exception:
            log.exception("the tool %s failed", name)
            return _failed("something went wrong in the server and not with the request; its log has it.")

    def search(self, asked: SearchArguments) -> HitsAnswer:
        name, retriever = self._named(asked.collection)
        (answer,) = retriever.answer_many([asked.query], asked.k, mode=asked.mode, where=asked.where)
        notes = [f"Scores are {SCORES[asked.mode]}."]
        if answer.strange:
            notes.append("The query is unlike anything in the collection: the hits may have nothing to do with it.")
        if not answer.hits and asked.where:
            notes = ["No document that fits the filters was found."]
        return HitsAnswer.of(name, answer.hits, notes)

    def similar(self, asked: SimilarArguments) -> HitsAnswer:
        name, retriever = self._named(asked.collection)
        return HitsAnswer.of(name, retriever.similar(asked.id, asked.k, where=asked.where), ["Scores are cosines."])

    def document(self, asked: DocumentArguments) -> DocumentAnswer:
        name, retriever = self._named(asked.collection)
        document = retriever.document(asked.id)
        if asked.offset and asked.offset >= len(document.text):
            raise Misuse(f"offset {asked.offset:,} is beyond the text, which has {len(document.text):,} characters.")
        return DocumentAnswer.of(name, document, asked.offset, asked.length)

    def collections(self, asked: NoArguments) -> CollectionsAnswer:
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
            raise Misuse(f"there is no collection {cut(name, 100)!r}; there are: {there}.")
        return name, self._collections[name]


@detect_damage
def _facts(retriever: Retriever, name: str, default: bool) -> CollectionFacts:
    collection, store = retriever.local, retriever.local.store
    generation = collection.generation()
    transform = generation.manifest["transform"]["spec"] if generation else store.setting("transform")
    return CollectionFacts(
        name=name,
        default=default,
        documents=store.count("documents"),
        passages=store.count("passages"),
        encoder=one_line(public_name(str(collection.encoder["name"]))),
        transform=one_line(str(transform)),
        generation=generation.number if generation else None,
        fields=[
            FieldFacts(
                name=cut(facet.name, 200),
                documents=facet.documents,
                values=[
                    FieldValue(value=visible(value) if isinstance(value, str) else value, documents=count)
                    for value, count in facet.values[:VALUES_SHOWN]
                ],
                more=facet.more or len(facet.values) > VALUES_SHOWN,
            )
            for facet in facets(store.db.conn)[:FIELDS_SHOWN]
        ],
    )


def _failed(message: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=f"Error: {lines(message)}")], is_error=True)


def _problem(error: Any, takes: type[BaseModel]) -> str:
    """What is wrong with an argument, and what it was."""
    field = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"there is no argument {cut(field, 60)!r}; there are: {', '.join(takes.model_fields)}."
    if error["type"] == "missing":
        return f"the argument {field!r} is missing."
    wrong = f"{field}: {error['msg'][0].lower()}{error['msg'][1:]}"
    if error["type"] == "too_long":
        return f"{wrong}."
    given = error["input"]
    what = f"has {len(given):,}" if error["type"] == "string_too_long" else f"is {cut(repr(given), 60)}"
    return f"{wrong}; it {what}."
