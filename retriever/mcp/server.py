"""Collections for language models: the Model Context Protocol over standard input and output.

Standard output carries the protocol and nothing else; whatever else is said goes to standard error. The process ends
when its input does.
"""

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import anyio
from anyio import CapacityLimiter, to_thread
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams

from retriever.mcp.opened import Opened
from retriever.mcp.quoting import NOTICE
from retriever.mcp.tools import Toolbox
from retriever.progress import Progress, silent
from retriever.terminal import cut

AT_ONCE = 4
"""How many tools run at the same time: each has a thread, and a thread its own connection to the database."""
INSTRUCTIONS = f"Search and read collections of documents. {NOTICE}"


def serve(
    folders: Sequence[Path], *, encoder: str | None = None, device: str = "auto", progress: Progress = silent
) -> None:
    """Answer the client at the other end of standard input and output until it leaves."""
    with closing(Opened(folders, encoder, device, progress)) as collections:
        try:
            anyio.run(_answer, Toolbox(collections))
        except* (BrokenPipeError, ConnectionResetError):
            pass  # the client left while it was being answered


async def _answer(toolbox: Toolbox) -> None:
    limiter = CapacityLimiter(AT_ONCE)

    async def list_tools(context: ServerRequestContext[Any], asked: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=await to_thread.run_sync(toolbox.described, limiter=limiter))

    async def call_tool(context: ServerRequestContext[Any], asked: CallToolRequestParams) -> CallToolResult:
        if asked.name not in toolbox.names:
            there = ", ".join(toolbox.names)
            raise MCPError(INVALID_PARAMS, f"there is no tool {cut(asked.name, 100)!r}; there are: {there}.")
        return await to_thread.run_sync(partial(toolbox.call, asked.name, asked.arguments or {}), limiter=limiter)

    server: Server[Any] = Server(
        "retriever",
        title="Retriever",
        version=_version(),
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def _version() -> str:
    try:
        return version("flow-retriever")
    except PackageNotFoundError:
        return ""
