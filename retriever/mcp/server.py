"""A server for the Model Context Protocol (MCP) over standard input and output.

Standard output is used only for the protocol. Everything else is written to standard error. The process ends when its
standard input is closed.
"""

import threading
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

from retriever.files import folders_by_name
from retriever.mcp.messages import Message, repair
from retriever.mcp.quoting import NOTICE
from retriever.mcp.tools import TOOLS, Toolbox
from retriever.progress import Progress, silent
from retriever.retriever import Retriever
from retriever.terminal import cut

MOST_THREADS = 4
"""Maximum number of tool calls that run at once. Each runs in a thread with its own connection to the database."""


class OpenCollections(dict[str, Retriever]):
    """The open collections, by the names of their folders.

    If the collection in a folder was replaced by another one, the next access opens the new collection.
    """

    def __init__(self, folders: Sequence[Path], encoder: str | None, device: str, progress: Progress) -> None:
        super().__init__()
        self._folders = folders_by_name(folders)
        self._open = partial(Retriever.open, encoder=encoder, device=device, progress=progress)
        self._lock = threading.Lock()
        self._replaced: list[Retriever] = []
        """Collections that were replaced. They stay open, because another thread may still read them."""
        try:
            for name, folder in self._folders.items():
                self[name] = self._open(folder)
        except BaseException:
            self.close()
            raise

    def __getitem__(self, name: str) -> Retriever:
        with self._lock:
            current = super().__getitem__(name)
            if current.local.store.replaced:
                self[name] = self._open(self._folders[name])
                self._replaced.append(current)
            return super().__getitem__(name)

    def close(self) -> None:
        for retriever in (*self.values(), *self._replaced):
            retriever.close()


def serve(
    folders: Sequence[Path], *, encoder: str | None = None, device: str = "auto", progress: Progress = silent
) -> None:
    """Answer the client on standard input and output until it disconnects."""
    with closing(OpenCollections(folders, encoder, device, progress)) as collections:
        try:
            anyio.run(_serve, Toolbox(collections))
        except* (BrokenPipeError, ConnectionResetError):
            pass  # the client disconnected while an answer was sent


async def _serve(toolbox: Toolbox) -> None:
    limiter = CapacityLimiter(MOST_THREADS)

    async def list_tools(context: ServerRequestContext[Any], given: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=await to_thread.run_sync(toolbox.described, limiter=limiter))

    async def call_tool(context: ServerRequestContext[Any], given: CallToolRequestParams) -> CallToolResult:
        if given.name not in TOOLS:
            there = ", ".join(TOOLS)
            raise MCPError(INVALID_PARAMS, f"there is no tool {cut(given.name, 100)!r}; the tools are: {there}.")
        return await to_thread.run_sync(partial(toolbox.call, given.name, given.arguments or {}), limiter=limiter)

    server: Server[Any] = Server(
        "retriever",
        title="Retriever",
        version=version("flow-retriever"),
        instructions=f"Search and read collections of documents. {NOTICE}",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    async with stdio_server() as (incoming, outgoing), anyio.create_task_group() as group:
        repaired, messages = anyio.create_memory_object_stream[Message]()
        group.start_soon(repair, incoming, repaired, outgoing)
        await server.run(messages, outgoing, server.create_initialization_options())
