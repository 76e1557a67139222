"""Read Markdown: front matter in YAML or TOML becomes metadata, and the first top-level heading becomes the title."""

import datetime
import json
import re
import tomllib
from typing import Any

import yaml

from retriever.corpus.content import Content, Refused, described, without_first_heading

LARGEST_FRONT_MATTER = 64 << 10
DEEPEST = 100
_YAML = re.compile(r"(?:[ \t]*\n)*---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_TOML = re.compile(r"(?:[ \t]*\n)*\+\+\+[ \t]*\n(.*?)^\+\+\+[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_KEY_LINE = re.compile(r"\s*([^\W\d][\w.-]*)[ \t]*:(|[ \t].*)")
INVALID = "the front matter is not valid YAML, and was read as lines `key: value`"
_FENCE_OR_UNDERLINED = re.compile(
    r"^ {0,3}(?:(`{3,}|~{3,})|((?![-*+>#|=]|\d{1,9}[.)][ \t])\S[^\n]*)\n {0,3}(=+|-{3,})[ \t]*$)", re.MULTILINE
)
_FENCE_OR_HEADING = re.compile(r"^ {0,3}(?:(```|~~~)|#[ \t]+(\S[^\n]*))", re.MULTILINE)


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads YAML without references, because a few of them can stand for billions of values."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.YAMLError("has references")
        return super().compose_node(parent, index)


def read_markdown(text: str) -> Content:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    facts, begin, note = front_matter(text)
    content = Content(underlined_headings(text[begin:]), line=1 + text.count("\n", 0, begin), note=note)
    title = facts.pop("title", None)
    content.title = "" if title is None or isinstance(title, list | dict) else str(title)
    content.metadata = facts | described(date=facts.get("date"), language=facts.get("language", facts.get("lang")))
    if not content.title:
        content = without_first_heading(content)
    content.title = content.title or first_heading(content.text)
    return content


def underlined_headings(text: str) -> str:
    """Write headings that are underlined with = or - as `# heading` and a blank line, so that every line stays."""
    fence = ""
    parts: list[str] = []
    done = 0
    for found in _FENCE_OR_UNDERLINED.finditer(text):
        mark, heading, line = found.groups()
        if mark:
            fence = mark if not fence else "" if mark.startswith(fence) else fence
        elif not fence and not text[text.rfind("\n", 0, max(found.start() - 1, 0)) + 1 : found.start()].strip():
            parts += [text[done : found.start()], f"{'#' if line[0] == '=' else '##'} {heading.strip()}\n"]
            done = found.end()
    return "".join(parts) + text[done:]


def front_matter(text: str) -> tuple[dict[str, Any], int, str]:
    """Return the front matter of a text as values for JSON, the offset at which the text itself begins, and a note if
    the front matter is not valid.

    Front matter that is not valid YAML is read as lines `key: value`. Text between the marks that is not front matter,
    e.g. after a horizontal line, stays in the text.
    """
    for pattern, load in ((_YAML, _load_yaml), (_TOML, tomllib.loads)):
        found = pattern.match(text, 0, LARGEST_FRONT_MATTER)
        if not found:
            continue
        try:
            loaded = load(found[1])
            if isinstance(loaded, dict):
                facts = {str(key): value for key, value in loaded.items()}
                return json.loads(json.dumps(facts, default=_plain, allow_nan=False)), found.end(), ""
        except (yaml.YAMLError, ValueError, TypeError, RecursionError):
            if pattern is _YAML and (lines := _key_lines(found[1])):
                return lines, found.end(), INVALID
    return {}, 0, ""


def _key_lines(text: str) -> dict[str, Any]:
    """Return the values of lines `key: value`. Return none if another line begins at the margin: that is text."""
    facts = {}
    for line in text.splitlines():
        if found := _KEY_LINE.fullmatch(line):
            facts[found[1]] = found[2].strip().strip("\"'")
        elif line.strip() and not line[0].isspace() and line[0] not in "-#":
            return {}
    return {key: value for key, value in facts.items() if value}


def _load_yaml(text: str) -> Any:
    depth = 0
    for event in yaml.parse(text, _Loader):  # composing is recursive in C, and would end the process
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise Refused(f"has front matter of more than {DEEPEST} levels")
    return yaml.load(text, _Loader)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return sorted(value, key=str) if isinstance(value, set | frozenset) else str(value)


def first_heading(text: str) -> str:
    """Return the first `# heading` outside of code blocks."""
    fence = None
    for found in _FENCE_OR_HEADING.finditer(text):
        mark, heading = found.groups()
        if mark:
            fence = mark if fence is None else None if fence == mark else fence
        elif fence is None and (title := re.sub(r"(?:^|[ \t])#+$", "", heading.rstrip()).rstrip()):
            return title
    return ""
