"""The tools for language models: search, similar, document and collections, with their descriptions."""

import logging
import re
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

from mcp_types import CallToolResult, TextContent, Tool, ToolAnnotations
from pydantic import BaseModel, ValidationError

from retriever.encoder.model_files import public_name
from retriever.errors import Misuse, NoSuchDocument, RetrieverError, first_line
from retriever.mcp import answers
from retriever.mcp.answers import CollectionFacts, DocumentAnswer, HitsAnswer
from retriever.mcp.quoting import visible
from retriever.recovery.damage import detect_damage
from retriever.retriever import Retriever
from retriever.search.facets import facets
from retriever.terminal import cut, lines, one_line

log = logging.getLogger(__name__)

DOCUMENTS_READ = 1_000
FIELDS_SHOWN = 20
VALUES_SHOWN = 8
# A model trusts a tool's description, so only plain field names appear there, no sentences.
PLAIN_NAME = re.compile(r"[\w.-]{1,40}")
SCORES = {"dense": "cosines, at most 1", "lexical": "BM25", "hybrid": "nats of evidence"}


class Toolbox:
    """The tools over some collections, of which the first is the default. Threads may share a toolbox."""

    def __init__(self, collections: Mapping[str, Retriever]) -> None:
        self._collections = collections
        self._default = next(iter(self._collections))
        self._tools: dict[str, tuple[Callable[[Any], BaseModel], type[BaseModel], type[BaseModel]]] = {
            "search": (self.search, answers.SearchArguments, HitsAnswer),
            "similar": (self.similar, answers.SimilarArguments, HitsAnswer),
            "document": (self.document, answers.DocumentArguments, DocumentAnswer),
            "collections": (self.collections, answers.NoArguments, answers.CollectionsAnswer),
        }

    @property
    def names(self) -> list[str]:
        return list(self._tools)

    def described(self) -> list[Tool]:
        """Return the tools, with descriptions of the current collections."""
        there = "\n".join(self._summary(name) for name in self._collections)
        descriptions = {
            "search": (
                "Search documents",
                "Finds the documents of a collection that match a query best. Returns the best passage, id, score and "
                "metadata of each. The tool `document` reads more of a document. If the hits do not match, try other "
                f"words, another mode or fewer filters.\n\n{there}",
            ),
            "similar": (
                "Similar documents",
                "Finds the documents of a collection that are most similar to one of them, given by the id of a hit.",
            ),
            "document": (
                "Read a document",
                "Reads a stored document by the id of a hit: its metadata, and a part of its text from an offset. The "
                "answer gives the length of the text and the offset of the next part.",
            ),
            "collections": (
                "List collections",
                "Lists the collections with their metadata fields and the most frequent values. Call it before you use "
                "a filter.",
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
            fields = [str(row[0]) for row in connection.execute(query, [DOCUMENTS_READ])]
            count = f"{len(retriever):,} documents"
        except (RetrieverError, sqlite3.Error):
            return f"{start}cannot be read; the tool `collections` says why."
        plain = [field for field in fields if PLAIN_NAME.fullmatch(field)][:FIELDS_SHOWN]
        more = f" and {len(fields) - len(plain):,} more" if len(fields) > len(plain) else ""
        return f"{start}{count}; metadata fields: {', '.join(plain)}{more}." if fields else f"{start}{count}."

    def _tool(self, name: str, title: str, description: str) -> Tool:
        _, takes, gives = self._tools[name]
        schema = takes.model_json_schema()
        schema.pop("description", None)
        if issubclass(takes, answers.Arguments):
            schema["properties"]["collection"] = {
                "type": "string",
                "enum": list(self._collections),
                "default": self._default,
                "description": "The collection.",
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

    def call(self, name: str, given: Mapping[str, Any]) -> CallToolResult:
        """Run a tool. Errors are returned as text, so that the model can correct its call."""
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
                f"the collection cannot be read: {first_line(error)}. Try again. If it still fails, its owner can "
                "check the collection with: retriever verify --index DIR"
            )
        except Exception:
            log.exception("the tool %s failed", name)
            return _failed("the server failed; the request is not at fault. The server's log says more.")

    def search(self, given: answers.SearchArguments) -> HitsAnswer:
        name, retriever = self._named(given.collection)
        (answer,) = retriever.answer_many([given.query], given.k, mode=given.mode, where=given.where)
        notes = [f"Scores are {SCORES[given.mode]}."]
        if answer.strange:
            notes.append("The query is unlike the collection's texts: the hits may be irrelevant.")
        if not answer.hits and given.where:
            notes = ["No document matches the filters."]
        return HitsAnswer.of(name, answer.hits, notes)

    def similar(self, given: answers.SimilarArguments) -> HitsAnswer:
        name, retriever = self._named(given.collection)
        return HitsAnswer.of(name, retriever.similar(given.id, given.k, where=given.where), ["Scores are cosines."])

    def document(self, given: answers.DocumentArguments) -> DocumentAnswer:
        name, retriever = self._named(given.collection)
        document = retriever.document(given.id)
        if given.offset and given.offset >= len(document.text):
            raise Misuse(
                f"offset {given.offset:,} is beyond the end of the text, which has {len(document.text):,} characters."
            )
        return DocumentAnswer.of(name, document, given.offset, given.length)

    def collections(self, given: answers.NoArguments) -> answers.CollectionsAnswer:
        answer = answers.CollectionsAnswer(collections=[], problems=[])
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
            answers.FieldFacts(
                name=cut(facet.name, 200),
                documents=facet.documents,
                values=[
                    answers.FieldValue(value=visible(value) if isinstance(value, str) else value, documents=count)
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
    """Describe what is wrong with an argument."""
    field = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"there is no argument {cut(field, 60)!r}; there are: {', '.join(takes.model_fields)}."
    if error["type"] == "missing":
        return f"the argument {field!r} is missing."
    wrong = f"{field}: {error['msg'][0].lower()}{error['msg'][1:]}"
    if error["type"] == "too_long":
        return f"{wrong}."
    value = error["input"]
    what = f"has {len(value):,}" if error["type"] == "string_too_long" else f"is {cut(repr(value), 60)}"
    return f"{wrong}; it {what}."
