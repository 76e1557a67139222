"""The formats that can be read, by the ending of a file's name, and the libraries that they need."""

from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of file."""

    name: str
    endings: tuple[str, ...]
    reader: Literal["records", "text", "process"]
    """What reads it: a reader of many documents, a reader of one text, or the process for foreign formats."""
    largest: int = 64 << 20
    """Maximum size of a file that is read as a whole, in bytes."""


PACKED = 256 << 20
"""Maximum size of a file that consists of more than text, such as a PDF with pictures."""
ALL = (
    Format("jsonl", ("jsonl", "ndjson"), "records"),
    Format("json", ("json",), "records"),
    Format("csv", ("csv",), "records"),
    Format("tsv", ("tsv",), "records"),
    Format("parquet", ("parquet",), "records"),
    Format("mbox", ("mbox",), "records"),
    Format("txt", ("txt", "text"), "text"),
    Format("md", ("md", "markdown"), "text"),
    Format("rst", ("rst",), "text"),
    Format("ipynb", ("ipynb",), "text"),
    Format("html", ("html", "htm", "xhtml"), "process"),
    Format("eml", ("eml",), "process"),
    Format("pdf", ("pdf",), "process", PACKED),
    Format("docx", ("docx",), "process", PACKED),
    Format("pptx", ("pptx",), "process", PACKED),
    Format("epub", ("epub",), "process", PACKED),
)
FORMATS = {format.name: format for format in ALL}
ENDINGS = {ending: format.name for format in ALL for ending in format.endings}
"""The format of each ending. Every ending may be followed by .gz."""
KNOWN = f"the known types are {', '.join(f'.{ending}' for ending in ENDINGS)}, each also with .gz"


def format_of(file_name: str) -> str:
    """Return the format of a file by the ending of its name, without .gz. Return an empty string if it is unknown."""
    ending = PurePath(file_name.lower().removesuffix(".gz")).suffix.removeprefix(".")
    return ENDINGS.get(ending, "")
