"""A process that reads files of foreign formats, with limits on its memory, its time and what it may write.

A damaged or malicious file can make the library that reads it crash, or run without end. Then only this process ends,
the file is named, and the next file gets a new process. The process is kept between files, because a start takes longer
than most files. It gets the bytes of a file, never its path, and cannot write to files.
"""

import contextlib
import json
import os
import selectors
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from retriever.corpus.content import Content, Refused
from retriever.corpus.readers.lines import LARGEST_DOCUMENT
from retriever.errors import MissingExtra, first_line, requires_extra

MEMORY = 2 << 30
CPU_SECONDS = 60
# The process may have to wait for a processor. So the limit on the clock is longer.
SECONDS = 600
LENGTHS = struct.Struct("<QQ")
START = "import sys; sys.path[:] = sys.argv[1:]; from retriever.corpus.readers.process import serve; serve()"


class ReaderProcess:
    """The process. It is started for the first file."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def read(self, format: str, data: bytes, encoding: str | None = None) -> Content:
        """Read a file. Raise `Refused` with the reason if that is not possible."""
        process = self._process = self._process or _started()
        request = json.dumps({"format": format, "encoding": encoding}).encode()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(LENGTHS.pack(len(request), len(data)))
            process.stdin.write(request)
            process.stdin.write(data)
            process.stdin.flush()
            written, text = _answer(process.stdout)
            answer = json.loads(written)
        except (OSError, EOFError, TimeoutError) as error:
            raise Refused(self._reason(error)) from error
        if "missing" in answer:
            raise MissingExtra(answer["missing"])
        if "refused" in answer:
            if answer.get("last"):
                self.close()
            raise Refused(answer["refused"])
        return Content(text.decode("utf-8"), **answer)

    def _reason(self, error: Exception) -> str:
        """End the process and say why it could not read the file."""
        process, self._process = self._process, None
        assert process is not None
        if isinstance(error, TimeoutError):
            process.kill()
        _end(process)
        if isinstance(error, TimeoutError):
            return f"took longer than {SECONDS} s to read"
        if process.returncode == -getattr(signal, "SIGXCPU", 0):
            return f"takes more than {CPU_SECONDS} s of processor time to read"
        return f"cannot be read: it made its reader crash (exit code {process.returncode})"

    def close(self) -> None:
        if self._process is not None:
            _end(self._process)
            self._process = None


def _started() -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", START, *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C ends it through its parent
    )


def _end(process: "subprocess.Popen[bytes]") -> None:
    for stream in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            if stream is not None:
                stream.close()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _answer(stream: Any) -> tuple[bytes, bytes]:
    """Read an answer: JSON, and the text, which would take long as JSON."""
    deadline = time.monotonic() + SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        sizes = LENGTHS.unpack(_exactly(stream, LENGTHS.size, selector, deadline))
        written, text = (_exactly(stream, size, selector, deadline) for size in sizes)
        return written, text


def _exactly(stream: Any, size: int, selector: selectors.BaseSelector, deadline: float) -> bytes:
    found = bytearray()
    while len(found) < size:
        if not selector.select(max(0.0, deadline - time.monotonic())):
            raise TimeoutError
        data = os.read(stream.fileno(), min(size - len(found), 1 << 20))
        if not data:
            raise EOFError
        found += data
    return bytes(found)


# ---- in the process --------------------------------------------------------------------------------------------


def serve() -> None:
    """Answer requests until the parent closes its end."""
    answers = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # libraries may print
    requests = sys.stdin.buffer
    _limit_writing_and_memory()
    while head := requests.read(LENGTHS.size):
        sizes = LENGTHS.unpack(head)
        request, data = json.loads(requests.read(sizes[0])), requests.read(sizes[1])
        _limit_time()
        answer, text = _read(request["format"], data, request["encoding"])
        del data
        written = json.dumps(answer).encode()
        answers.write(LENGTHS.pack(len(written), len(text)) + written)
        answers.write(text)
        answers.flush()


def _read(format: str, data: bytes, encoding: str | None) -> tuple[dict[str, Any], bytes]:
    try:
        with requires_extra("files", f"reading .{format}"):
            read = _reader(format, encoding)
        content = read(data)
    except MissingExtra as error:
        return {"missing": str(error)}, b""
    except Refused as error:
        return {"refused": str(error)}, b""
    except MemoryError:
        return {"refused": f"needs more than {MEMORY >> 30} GiB of memory to read", "last": True}, b""
    except Exception as error:  # of any library, for a damaged file
        return {"refused": f"is not a readable .{format} file: {type(error).__name__}: {first_line(error)[:200]}"}, b""
    if len(content.text) > LARGEST_DOCUMENT:
        return {"refused": f"has more than {LARGEST_DOCUMENT >> 20} MiB of text"}, b""
    facts = {
        "title": _unicode(content.title),
        "metadata": json.loads(_unicode(json.dumps(content.metadata, ensure_ascii=False, default=str))),
        "line": content.line,
    }
    return facts, content.text.encode("utf-8", "replace")


def _unicode(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _reader(format: str, encoding: str | None) -> Callable[[bytes], Content]:
    if format == "html":
        from retriever.corpus.readers.html import read_html

        return lambda data: read_html(data, encoding)
    if format == "eml":
        from retriever.corpus.readers.mail import read_message

        return read_message
    if format == "pdf":
        from retriever.corpus.readers.pdf import read_pdf

        return read_pdf
    from retriever.corpus.readers import packed

    return {"docx": packed.read_docx, "pptx": packed.read_pptx, "epub": packed.read_epub}[format]


def _limit_writing_and_memory() -> None:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    for which, value in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(which, (value, value))


def _limit_time() -> None:
    """Give the next file its own time limit."""
    try:
        import resource
    except ImportError:
        return
    used = time.process_time()
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used) + CPU_SECONDS + 1, hard))
