"""The routes that OpenAI's clients use: the vectors of texts, made by a collection's encoder and transform."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic_core import to_json

from retriever.encoder.runtimes.onnx_runtime import cores
from retriever.errors import TextTooLong
from retriever.serve import models
from retriever.serve.batching import SearchThreads
from retriever.serve.bodies import LargeBodiesRoute
from retriever.serve.collections import ServedCollection, requested_collection
from retriever.serve.jobs import EmbedResult, parts
from retriever.serve.problems import BODY_PROBLEMS, INVALID, Problem

AHEAD = cores() + 1
"""Number of parts of a request that wait or are embedded at once: one for each thread, and one that is next."""
ATTEMPTS = 3

router = APIRouter(prefix="/v1", tags=["embeddings"], route_class=LargeBodiesRoute)


@router.post("/embeddings", response_model=models.Embeddings, responses=BODY_PROBLEMS)
async def embeddings(request: Request, body: models.EmbeddingsRequest) -> Response:
    """Return the vectors of one or several texts, as OpenAI's API does. A text that is too long is refused, not cut."""
    served = await requested_collection(request, body.model)
    threads: SearchThreads = request.app.state.threads
    if body.dimensions is not None:
        dimension = await threads.call(served, lambda: served.retriever.embed([]).vectors.shape[1])
        if body.dimensions != dimension:
            reason = f"the vectors of {served.name!r} have {dimension:,} dimensions and cannot be shortened."
            raise Problem(422, INVALID, [("dimensions", reason)])
    # Texts of similar length share a batch, which saves padding.
    order = sorted(range(len(body.input)), key=lambda number: len(body.input[number]))
    for _ in range(ATTEMPTS):
        found = await _embed(threads, served, order, body)
        if len({result.fingerprint for result in found}) == 1:
            return _response(served.name, order, found)
    raise Problem(503, "the collection was published again while the texts were embedded; try again.")


async def _embed(
    threads: SearchThreads, served: ServedCollection, order: Sequence[int], body: models.EmbeddingsRequest
) -> list[EmbedResult]:
    """Embed the texts in this order, part by part."""
    groups = list(parts([body.input[number] for number in order]))
    free = asyncio.Semaphore(AHEAD)

    async def embed(begin: int, group: Sequence[str]) -> EmbedResult:
        queries, encoding = body.input_type == "query", body.encoding_format
        async with free:
            try:
                return await threads.embed(served, group, queries=queries, encoding=encoding, long=len(groups) > 1)
            except Problem as problem:
                if isinstance(cause := problem.__cause__, TextTooLong):
                    raise Problem(422, INVALID, [(f"input.{order[begin + cause.place]}", str(cause))]) from cause
                raise

    begins = itertools.accumulate(map(len, groups), initial=0)
    tasks = [asyncio.create_task(embed(begin, group)) for begin, group in zip(begins, groups, strict=False)]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _response(name: str, order: Sequence[int], found: Sequence[EmbedResult]) -> Response:
    vectors = dict(zip(order, (vector for result in found for vector in result.vectors), strict=True))
    data = b",".join(
        b'{"object":"embedding","index":%d,"embedding":%b}' % (index, vectors[index]) for index in range(len(order))
    )
    tokens = sum(result.tokens for result in found)
    facts: dict[str, Any] = {"model": name, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}
    facts["fingerprint"] = found[0].fingerprint
    return Response(b'{"object":"list","data":[%b],%b' % (data, to_json(facts)[1:]), media_type="application/json")
