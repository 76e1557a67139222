"""The routes for who watches the server: is it alive, does it answer, and what has it done."""

from fastapi import APIRouter, Request
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST

from retriever.serve import models
from retriever.serve.limits import Readiness
from retriever.serve.problems import Problem, documented
from retriever.serve.search_routes import json_response


def router() -> APIRouter:
    routes = APIRouter(tags=["state"])

    @routes.get("/health", response_model=models.State, responses=documented(400, 431))
    async def health() -> Response:
        """Whether the process lives."""
        return json_response({"state": "ok"})

    @routes.get("/ready", response_model=models.State, responses=documented(400, 431, 503))
    async def ready(request: Request) -> Response:
        """Whether it answers: not before all is loaded, nor while it shuts down."""
        readiness: Readiness = request.app.state.readiness
        if readiness.waiting_for:
            raise Problem(503, f"{readiness.waiting_for}.")
        return json_response({"state": "ok"})

    @routes.get(
        "/metrics",
        response_class=Response,
        responses={
            **documented(400, 401, 431),
            200: {"description": "Figures for Prometheus.", "content": {"text/plain": {"schema": {"type": "string"}}}},
        },
    )
    async def metrics(request: Request) -> Response:
        """What the server has done and what it holds."""
        facts = {one.name: await one.facts() for one in request.app.state.collections}
        return Response(request.app.state.metrics.text(facts), media_type=CONTENT_TYPE_LATEST)

    return routes
