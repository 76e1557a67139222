"""Read e-mail: single messages, and mailboxes of many (mbox)."""

import email
import email.policy
import email.utils
from collections.abc import Iterator
from email.message import EmailMessage
from typing import BinaryIO

from retriever.corpus.content import Content, Refused, described, without_headings

MOST_PARTS = 1000


def read_message(data: bytes) -> Content:
    """Read a message: its plain text or, if it has none, its HTML.

    The subject is the title. Only the names of attachments are read.
    """
    message = email.message_from_bytes(data, policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    if not message.keys():
        raise Refused("is not an e-mail: it has no headers")
    parts = [part for _, part in zip(range(MOST_PARTS), message.walk(), strict=False)]
    body = without_headings(_body(parts, "text/plain")) or _html_body(parts)
    attachments = [name for part in parts if (name := part.get_filename())]
    metadata = described(
        author=_header(message, "from"),
        to=_header(message, "to"),
        date=_date(message),
        message_id=_header(message, "message-id"),
        attachments=attachments,
    )
    return Content(body.replace("\r\n", "\n").strip("\n"), _header(message, "subject"), metadata, line=0)


def _body(parts: list[EmailMessage], kind: str) -> str:
    texts = []
    for part in parts:
        if part.get_content_type() == kind and not part.get_filename():
            try:
                texts.append(str(part.get_content()))
            except (LookupError, ValueError, AssertionError):  # an unknown charset or a broken encoding
                payload = part.get_payload(decode=True)
                texts.append(payload.decode("utf-8", "replace") if isinstance(payload, bytes) else "")
    return "\n\n".join(text for text in texts if text.strip())


def _html_body(parts: list[EmailMessage]) -> str:
    from retriever.corpus.readers.html import html_content

    html = _body(parts, "text/html")
    return html_content(html).text if html else ""


def _header(message: EmailMessage, name: str) -> str:
    try:
        return str(message.get(name, "") or "").strip()
    except (ValueError, IndexError, AttributeError, TypeError):  # a header that the parser cannot read
        return ""


def _date(message: EmailMessage) -> str:
    try:
        return email.utils.parsedate_to_datetime(_header(message, "date")).isoformat()
    except (ValueError, TypeError, IndexError, OverflowError):
        return ""


def messages(stream: BinaryIO, largest: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield the first line and the bytes of each message of a mailbox. The bytes are None if it is too large.

    A message begins with a line `From ` at the start of the file or after a blank line.
    """
    begin, number, size = 1, 0, 0
    lines: list[bytes] = []
    blank, met = True, False
    while line := stream.readline(largest + 1):
        number += 1
        if blank and line.startswith(b"From "):
            if met:
                yield begin, b"".join(lines) if size <= largest else None
            begin, lines, size, met = number, [], 0, True
        elif met:
            size += len(line)
            if size <= largest:
                lines.append(line[1:] if line.startswith(b">From ") else line)
            else:
                lines = []
        blank = line in (b"\n", b"\r\n")
    if met:
        yield begin, b"".join(lines) if size <= largest else None
    elif number:
        raise Refused("is not a mailbox: it does not begin with a line `From `")
