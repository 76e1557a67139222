"""Detect whether bytes are text, and in which encoding, and convert them to UTF-8."""

import codecs
import io
from typing import Any, BinaryIO, cast

from retriever.corpus.content import Refused
from retriever.errors import Misuse

SAMPLE = 1 << 16
"""The number of bytes that are examined."""

SIGNATURES = {
    b"%PDF-": "a PDF",
    b"PK\x03\x04": "a zip archive or an Office document",
    b"PK\x05\x06": "a zip archive",
    b"\x1f\x8b": "a gzip file",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ\0": "an xz file",
    b"\x28\xb5\x2f\xfd": "a zstd file",
    b"7z\xbc\xaf": "a 7z archive",
    b"PAR1": "a Parquet file",
    b"SQLite format 3\0": "an SQLite database",
    b"\xd0\xcf\x11\xe0": "an old Office document",
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF8": "a GIF image",
    b"\x7fELF": "a program",
    b"MZ\x90": "a program",
    b"\xca\xfe\xba\xbe": "a program",
}
"""The first bytes of files that are often given by mistake."""
# Control characters that texts do not have. NUL is one of them, but a few NULs are no reason to refuse a text.
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b\b")) + b"\x7f"
FEW_CONTROLS = 4
MOST_CONTROLS = 0.3
MOST_CONTROLS_UNDECODED = 0.02
"""Maximum share of control characters in bytes that are not UTF-8. Random bytes have 10 %."""


def binary_kind(sample: bytes) -> str:
    """Return what the bytes look like if they are not text, e.g. `a PDF`. Return an empty string for text."""
    for signature, kind in SIGNATURES.items():
        if sample.startswith(signature):
            return kind
    if wide_encoding(sample):
        return ""
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    most = MOST_CONTROLS if is_utf8(sample) else MOST_CONTROLS_UNDECODED
    return "binary data" if controls > max(FEW_CONTROLS, most * len(sample)) else ""


def is_utf8(sample: bytes) -> bool:
    """Return whether bytes are UTF-8. The last character may be cut off."""
    try:
        sample.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data" and error.start > len(sample) - 4 and len(sample) > 3
    return True


def wide_encoding(sample: bytes) -> str:
    """Return the name of the UTF-16 or UTF-32 encoding of a text, or an empty string if it has neither."""
    if sample.startswith((b"\xff\xfe\0\0", b"\0\0\xfe\xff")):
        return "utf-32"
    if sample.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    even, odd = sample[::2], sample[1::2]
    if len(odd) < 8:
        return ""
    zeros = even.count(0) / len(even), odd.count(0) / len(odd)
    if zeros[0] < 0.05 and zeros[1] > 0.4:
        return "utf-16-le"
    return "utf-16-be" if zeros[1] < 0.05 and zeros[0] > 0.4 else ""


FAMILIES = [
    *("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "iso8859_2", "iso8859_5"),
    *("koi8_r", "shift_jis", "euc_jp", "iso2022_jp", "gb18030", "big5", "euc_kr"),
]
"""The encodings that are tried if a text is not Unicode: those of Windows, ISO, and of East Asia."""
FEW_LETTERS = 16
"""With fewer characters beyond ASCII, there is too little to compare, and cp1252 is taken, the most frequent by far."""
DETECTED_ON = 1 << 14


def checked_encoding(name: str) -> str:
    """Return the name of a text encoding as Python knows it. Raise `Misuse` if there is none of this name."""
    try:
        "".encode(name)
        return codecs.lookup(name).name
    except (LookupError, ValueError) as error:
        raise Misuse(
            f"unknown encoding {name!r}; known are e.g. utf-8, utf-16, cp1252, iso-8859-15, shift_jis"
        ) from error


def detected(sample: bytes) -> str:
    """Return the name of the encoding of bytes that are text but not UTF-8."""
    if wide := wide_encoding(sample):
        return wide
    beyond = sum(byte > 127 for byte in sample)
    if beyond < FEW_LETTERS and _decodes(sample, "cp1252"):
        return "cp1252"
    import charset_normalizer

    first = next((place for place, byte in enumerate(sample) if byte > 127), 0)
    part = sample[max(0, first - DETECTED_ON // 4) :][:DETECTED_ON]
    best = charset_normalizer.from_bytes(part, cp_isolation=FAMILIES, threshold=0.5).best()
    if best is not None and best.encoding != "ascii":
        return str(best.encoding)
    return "cp1252" if _decodes(sample, "cp1252") else "latin-1"


def _decodes(sample: bytes, encoding: str) -> bool:
    try:
        sample.decode(encoding)
    except ValueError:
        return False
    return True


def decoded(data: bytes, encoding: str | None = None, declared: str | None = None) -> tuple[str, str]:
    """Decode a whole text. Return it with the name of its encoding, which is empty for UTF-8.

    If `encoding` is given, no other is tried, and text that it cannot decode raises `Refused`. `declared` is the
    encoding that the file declares. It is ignored if the bytes contradict it.
    """
    if encoding:
        try:
            return data.decode(encoding).removeprefix("\ufeff"), encoding
        except ValueError as error:
            raise Refused(f"is not {encoding}: {error}") from error
    if wide := wide_encoding(data[:SAMPLE]):
        return data.decode(wide, "replace").removeprefix("\ufeff"), wide
    try:
        return data.decode("utf-8").removeprefix("\ufeff"), ""
    except UnicodeDecodeError as error:
        start = max(0, error.start - SAMPLE // 2)
    if declared:
        try:
            return data.decode(declared), codecs.lookup(declared).name
        except (LookupError, ValueError):
            pass
    found = detected(data[start : start + SAMPLE])
    return data.decode(found, "replace").removeprefix("\ufeff"), found


def _marked(error: UnicodeError) -> tuple[str, int]:
    """Replace bytes that cannot be decoded by bytes that are invalid UTF-8.

    ASCII bytes, e.g. of half a UTF-16 character, are replaced too.
    """
    assert isinstance(error, UnicodeDecodeError)
    return "".join(chr(0xDC00 + max(byte, 0x80)) for byte in error.object[error.start : error.end]), error.end


codecs.register_error("retriever.marked", _marked)


class Transcoded(io.RawIOBase):
    """A stream that converts text to UTF-8.

    Bytes that cannot be decoded become invalid UTF-8, so that their line is reported.
    """

    def __init__(self, stream: BinaryIO, encoding: str) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)("retriever.marked")
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            data = self._stream.read(SAMPLE)
            self._left = self._decoder.decode(data, not data).encode("utf-8", "surrogateescape")
            if not data:
                break
        size = min(len(buffer), len(self._left))
        buffer[:size], self._left = self._left[:size], self._left[size:]
        return size


class Prefixed(io.RawIOBase):
    """A stream whose beginning was already read."""

    def __init__(self, beginning: bytes, rest: BinaryIO) -> None:
        self._beginning = memoryview(beginning)
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._beginning:
            data = self._rest.read1(len(buffer)) if hasattr(self._rest, "read1") else self._rest.read(len(buffer))
            buffer[: len(data)] = data
            return len(data)
        size = min(len(buffer), len(self._beginning))
        buffer[:size] = self._beginning[:size]
        self._beginning = self._beginning[size:]
        return size


class LateEncoding(io.RawIOBase):
    """A stream of text that begins in ASCII. Its encoding is decided at the first character beyond ASCII."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._decided = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        if not self._decided and not data.isascii():
            self._decided = True
            sample = data + self._stream.read(SAMPLE)
            encoding = "" if is_utf8(sample) else detected(sample)
            rest = cast(BinaryIO, io.BufferedReader(Prefixed(sample, self._stream)))
            self._stream = cast(BinaryIO, Transcoded(rest, encoding)) if encoding else rest
            data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def utf16_marked(stream: BinaryIO) -> tuple[BinaryIO, str]:
    """Return a stream of the same bytes, and its encoding if its byte order mark is that of UTF-16 or UTF-32."""
    mark = stream.read(4)
    encoding = wide_encoding(mark)
    return cast(BinaryIO, io.BufferedReader(Prefixed(mark, stream))), encoding


def utf8_stream(stream: BinaryIO, encoding: str | None = None) -> BinaryIO:
    """Return a stream of the same text as UTF-8. Without `encoding`, look at the beginning of the stream.

    Raise `Refused` if the stream begins like a binary file.
    """
    sample = stream.read(SAMPLE)
    if kind := binary_kind(sample):
        raise Refused(f"is not text: it looks like {kind}")
    if not encoding and (wide_encoding(sample) or not is_utf8(sample)):
        encoding = detected(sample)
    whole = cast(BinaryIO, io.BufferedReader(Prefixed(sample, stream)))
    if not encoding and sample.isascii():
        return cast(BinaryIO, io.BufferedReader(LateEncoding(whole), SAMPLE))
    if not encoding or encoding in ("utf-8", "ascii"):
        return whole
    return cast(BinaryIO, io.BufferedReader(Transcoded(whole, encoding)))
