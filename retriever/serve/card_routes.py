"""The routes of the card: as JSON, as a page of its own, and as a part of the search page."""

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.responses import HTMLResponse, Response

from retriever.card.contents import Card
from retriever.card.rendering import article, page
from retriever.serve.document_routes import READING, NamedCollection
from retriever.serve.places import chosen
from retriever.serve.problems import problem_of
from retriever.serve.search_routes import json_response
from retriever.serve.served import Served

POLICY = "default-src 'none'; style-src {style}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


class Cards:
    """The cards of the collections, each made again when its collection has changed, in one thread beside searches."""

    def __init__(self) -> None:
        self._reading = ThreadPoolExecutor(1, "cards")
        self._made: dict[str, tuple[tuple[int, ...], Card]] = {}

    async def of(self, served: Served) -> Card:
        """The card of a collection as it is now."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reading, self._card, served)
        except Exception as error:
            raise problem_of(error, served.name) from error

    def _card(self, served: Served) -> Card:
        version = served.retriever.local.store.data_version
        known = self._made.get(served.name)
        if known is None or known[0] != version:
            known = self._made[served.name] = (version, served.retriever.card())
        return known[1]

    def close(self) -> None:
        self._reading.shutdown()


def router() -> APIRouter:
    cards = Cards()

    @asynccontextmanager
    async def closing(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(cards.close)

    routes = APIRouter(prefix="/v1", tags=["card"], lifespan=closing)

    @routes.get("/card", response_model=Card, responses=READING)
    async def as_json(request: Request, name: NamedCollection = None) -> Response:
        """What a collection is, what made it, and what was measured of it."""
        return json_response((await cards.of(await chosen(request, name))).to_json())

    @routes.get("/card.html", response_class=HTMLResponse, responses=READING)
    async def as_html(
        request: Request,
        name: NamedCollection = None,
        part: Annotated[bool, Query(description="Only the article, to be styled by /card.css.")] = False,
    ) -> HTMLResponse:
        """The same to be looked at."""
        card = await cards.of(await chosen(request, name))
        if part:
            return HTMLResponse(article(card))
        text = page(card)
        return HTMLResponse(text, headers={"Content-Security-Policy": POLICY.format(style=_hash_of_style(text))})

    return routes


def _hash_of_style(text: str) -> str:
    """What lets a browser apply the page's one style, and no other."""
    style = text.partition("<style>")[2].partition("</style>")[0]
    return f"'sha256-{base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()}'"
