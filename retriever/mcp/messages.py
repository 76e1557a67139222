"""The messages of the client, with lone surrogates replaced.

A language model may cut a text in the middle of a character. The JSON of the message then has half a surrogate pair.
The library drops every message that it cannot read, so the client would wait for an answer forever.
"""

import re

from anyio.streams.memory import MemoryObjectSendStream
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter
from pydantic import ValidationError

Message = SessionMessage | Exception

ESCAPES = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a surrogate pair
    r"|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\."
)


async def repair(
    incoming: ReadStream[Message], repaired: MemoryObjectSendStream[Message], outgoing: WriteStream[SessionMessage]
) -> None:
    """Pass messages on until the client disconnects. A message with lone surrogates is repaired first.

    If a message is still invalid, e.g. because it is nested too deeply, the client receives an error.
    """
    async with repaired:
        async for message in incoming:
            understood = _read_again(message) if isinstance(message, ValidationError) else message
            if isinstance(understood, Exception):
                error = ErrorData(
                    code=PARSE_ERROR, message="the message cannot be read as JSON-RPC, or is nested too deeply."
                )
                await outgoing.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=None, error=error)))
            else:
                await repaired.send(understood)


def _read_again(error: ValidationError) -> Message:
    """Parse a line that could not be parsed, with lone surrogates replaced by the replacement character."""
    (first, *_) = error.errors()
    line = str(first["input"])
    whole = ESCAPES.sub(lambda escape: r"\ufffd" if escape["lone"] else escape[0], line)
    if first["type"] != "json_invalid" or whole == line:
        return error
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(whole, by_name=False))
    except ValidationError as again:
        return again
