"""The Model Context Protocol over standard input and output.

Standard output carries the protocol only; everything else is written to standard error. The process ends when its input
is closed.
"""

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio
from anyio import CapacityLimiter, to_thread
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams

from retriever.mcp.open_collections import OpenCollections
from retriever.mcp.quoting import NOTICE
from retriever.mcp.tools import Toolbox
from retriever.progress import Progress, silent
from retriever.terminal import cut

MOST_THREADS = 4
"""Tools that run at once. Each has a thread, and every thread its own connection to the database."""


def serve(
    folders: Sequence[Path], *, encoder: str | None = None, device: str = "auto", progress: Progress = silent
) -> None:
    """Answer the client on standard input and output until it disconnects."""
    with closing(OpenCollections(folders, encoder, device, progress)) as collections:
        try:
            anyio.run(_serve, Toolbox(collections))
        except* (BrokenPipeError, ConnectionResetError):
            pass  # the client disconnected during an answer


async def _serve(toolbox: Toolbox) -> None:
    limiter = CapacityLimiter(MOST_THREADS)

    async def list_tools(context: ServerRequestContext[Any], given: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=await to_thread.run_sync(toolbox.described, limiter=limiter))

    async def call_tool(context: ServerRequestContext[Any], given: CallToolRequestParams) -> CallToolResult:
        if given.name not in toolbox.names:
            there = ", ".join(toolbox.names)
            raise MCPError(INVALID_PARAMS, f"there is no tool {cut(given.name, 100)!r}; there are: {there}.")
        return await to_thread.run_sync(partial(toolbox.call, given.name, given.arguments or {}), limiter=limiter)

    server: Server[Any] = Server(
        "retriever",
        title="Retriever",
        version=version("flow-retriever"),
        instructions=f"Search and read collections of documents. {NOTICE}",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())
