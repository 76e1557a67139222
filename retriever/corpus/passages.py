"""Split long documents into passages that fit the encoder. Passages end at sentence ends and overlap a little."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate, pairwise
from typing import Any, Protocol

from retriever.corpus.document import Document
from retriever.corpus.structure import WITH_HEADINGS, Span, format_of_whole, no_prose, sections
from retriever.errors import Misuse

CountTokens = Callable[[list[str]], list[int]]
"""A function that counts the tokens of each text, without special tokens."""


class Tokenizes(Protocol):
    """The part of an encoder that splitting needs."""

    @property
    def token_budget(self) -> int:
        """Maximum number of tokens in an input, without special tokens."""

    def count_tokens(self, texts: list[str]) -> list[int]:
        """Count the tokens of each text, without special tokens."""


SPLIT_AT_ONCE = 250_000
"""Maximum number of characters that are split at once.

Their sentences and tokens can need some hundred times the memory of the text.
"""

_SPACE = re.compile(r"\s+")
_LINE = re.compile(r"[^\n]*\n?")
ITEM = re.compile(r"[ \t]*(?:[-*+•‣◦–]|\(?\d{1,3}[.)]|#{1,6})[ \t]")
# Matches a whole run of marks, so that every character is examined once. The code decides if a sentence ends there.
_STOP = re.compile(r"[.!?…。！？｡؟۔।]+[\"'”’»)\]}」』）】]*")
_ENDS_WITHOUT_SPACE = frozenset("。！？｡")
_WORD_BEFORE = re.compile(r"[^\s(\[{\"'“‘«]*\Z")
_NEVER_LAST = (
    " dr mr mrs ms mx prof rev hon gen col sgt capt lt st mt fig figs eq eqs sec ch vol pp eds ref refs"
    " e.g eg i.e ie cf vs viz approx ca resp incl al jan feb apr jun jul aug sep sept oct nov dept est"
    " bzw z.b d.h u.a "
)
_LAST_BEFORE_CAPITALS = " etc inc ltd co corp jr sr bros a.m p.m u.s u.k u.n e.u ph.d b.a m.a "
_NOT_BEFORE_NUMBERS = " no nr nos art mar dec ed "


def encoded_passages(document: Document, encoder: Tokenizes) -> Iterator[tuple[int, int, str]]:
    """Yield the start and end of each passage of a document, and the text that is encoded for the passage."""
    title, spans = passage_spans(document, encoder)
    for start, end in spans:
        yield start, end, encoded_text(title, document.text[start:end])


def passage_spans(document: Document, encoder: Tokenizes) -> tuple[str, list[Span]]:
    """Return the title as it is encoded, and the passages of a document. No passage goes over a heading or a page."""
    budget, count_tokens = encoder.token_budget, encoder.count_tokens
    title = fit_title(document.title, budget, count_tokens)
    found = []
    for first, last in sections(document.text, document.metadata, document.source):
        part = document.text[first:last] if last - first < len(document.text) else document.text
        found += [Span(first + start, first + end) for start, end in split(part, title, budget, count_tokens)]
    return title, found


def encoded_text(title: str, passage: str) -> str:
    """Return the text that is encoded for a passage. `title` is the result of `fit_title`."""
    return f"{title}\n{passage}" if title else passage


def fit_title(title: str, budget: int, count_tokens: CountTokens) -> str:
    """Cut the title at the end of a word, to at most half of the token budget.

    The title is encoded with every passage, so it must leave room for the passage.
    """
    if not title:
        return ""
    half = budget // 2
    title = title[:SPLIT_AT_ONCE]
    if len(title.encode()) <= half:
        return title
    while title and (cost := count_tokens([title])[0]) > half:
        title = title[: min(len(title) - 1, len(title) * half // cost)]
        title = (title[: title.rfind(" ")] if " " in title.strip() else title).strip()
    return title


def split(text: str, title: str, budget: int, count_tokens: CountTokens, overlap: float = 0.125) -> list[Span]:
    """Split a text into passages, in order. Together, the passages cover the whole text except white space.

    `budget` is the maximum number of tokens of title and passage together, without special tokens. Each
    `encoded_text(fit_title(title, budget, count_tokens), passage)` has at most `budget` tokens, unless a single
    character has more. If a text has at most `budget` bytes, its tokens are not counted, because a token has at least
    one byte.

    A passage is filled with sentences until the budget is used up. It begins with the last sentences of the previous
    passage, up to `overlap * budget` tokens. A sentence above the budget is cut between words, and a word above the
    budget is cut between characters.
    """
    if budget < 1:
        raise Misuse(f"a passage needs room for at least one token, not {budget}")
    start, end = _stripped(text, 0, len(text))
    if start == end:
        return []
    title = fit_title(title, budget, count_tokens)
    whole = encoded_text(title, text[start:end])
    size = len(whole.encode())
    # In most languages, a token has fewer than eight bytes. A text with more bytes will not fit, so it is not counted.
    if size <= budget or (size <= 8 * budget and count_tokens([whole])[0] <= budget):
        return [Span(start, end)]

    room = max(1, budget - (count_tokens([encoded_text(title, "")])[0] if title else 0))
    passages: list[Span] = []
    for first, last in _sections(text, start, end):
        section = text[first:last]
        units, costs = _units(section, room, max(1, int(room * overlap)), count_tokens)
        groups = [units[a:b] for a, b in _packed(costs, room, overlap * budget)]
        found = _within_budget(section, title, groups, budget, count_tokens)
        for span in sorted(found, key=lambda span: (span.start, -span.end)):
            if not passages or first + span.end > passages[-1].end:
                passages.append(Span(first + span.start, first + span.end))
    return passages


def _sections(text: str, start: int, end: int) -> Iterator[Span]:
    """Yield sections of at most `SPLIT_AT_ONCE` characters, cut between lines or words where possible."""
    while end - start > SPLIT_AT_ONCE:
        last = start + SPLIT_AT_ONCE
        gaps = (text.rfind(space, start + SPLIT_AT_ONCE // 2, last) for space in ("\n", " "))
        cut = next((gap for gap in gaps if gap > 0), last)
        yield Span(start, cut)
        start = cut
    yield Span(start, end)


def _units(text: str, room: int, piece: int, count_tokens: CountTokens) -> tuple[list[Span], list[int]]:
    """Return the units that passages are made of, and the number of tokens of each unit.

    A unit is a sentence, or a piece of a sentence that is too long. A piece has about `piece` tokens, which is small
    enough to be used as overlap. The white space before a unit is counted too, because some tokenizers make it a token.
    """
    units = sentences(text)
    known: dict[Span, int] = {}
    while True:
        befores = [max(end, start - 4) for (_, end), (start, _) in zip([(0, 0), *units], units, strict=False)]
        new = [(unit, before) for unit, before in zip(units, befores, strict=True) if unit not in known]
        counts = count_tokens([text[before : unit.end] for unit, before in new])
        known.update((unit, count) for (unit, _), count in zip(new, counts, strict=True))
        too_long = {unit for unit, _ in new if known[unit] > room and unit.end - unit.start > 1}
        if not too_long:
            return units, [min(known[unit], room) for unit in units]
        cut = (_cut(text, unit, -(-known[unit] // piece)) if unit in too_long else [unit] for unit in units)
        units = [part for parts in cut for part in parts]


def _cut(text: str, span: Span, parts: int) -> list[Span]:
    """Cut a span of at least two characters into about `parts` parts, but at least two.

    The cuts are between words. If the span is a single word, the cuts can be anywhere.
    """
    start, end = span
    parts = max(2, min(parts, end - start))
    targets = [start + (end - start) * part // parts for part in range(1, parts)]
    cuts = []
    position = start
    for target in targets:
        if target > position and (gap := _SPACE.search(text, target, end)):
            position = gap.end()
            cuts.append(position)
        elif target > position:
            break
    if not cuts:
        # There is no white space after the first target. Cut at the last one before it, or a single word anywhere.
        before = max((gap.end() for gap in _SPACE.finditer(text, start, targets[0])), default=None)
        cuts = targets if before is None else [before]
    return [_stripped(text, *pair) for pair in pairwise([start, *cuts, end])]


def _packed(costs: list[int], room: int, shared: float) -> Iterator[tuple[int, int]]:
    """Yield ranges of units that fit into a passage. Each range has at least one unit that the previous range lacks."""
    sums = [0, *accumulate(costs)]
    first = last = 0
    while last < len(costs):
        last = max(last + 1, bisect_right(sums, sums[first] + room) - 1)
        yield first, last
        if last < len(costs):
            # Go back over the units that fit into the overlap, as long as there is room for the next unit.
            least = max(sums[last] - shared, sums[last + 1] - room)
            back = last
            while back - 1 > first and sums[back - 1] >= least:
                back -= 1
            first = back


def _within_budget(
    text: str, title: str, groups: list[list[Span]], budget: int, count_tokens: CountTokens
) -> Iterator[Span]:
    """Count the tokens of each passage as it will be encoded. Cut passages that are too long in half."""
    counts = count_tokens([encoded_text(title, text[group[0].start : group[-1].end]) for group in groups])
    for group, count in zip(groups, counts, strict=True):
        start, end = group[0].start, group[-1].end
        if count <= budget or end - start == 1:
            yield Span(start, end)
            continue
        middle = len(group) // 2
        halves = [group[:middle], group[middle:]] if middle else [[part] for part in _cut(text, group[0], 2)]
        yield from _within_budget(text, title, halves, budget, count_tokens)


def sentences(text: str) -> list[Span]:
    """Find the sentences of a text in order, without the white space between them. This takes linear time.

    A blank line, a list item and a heading always end a sentence. A full stop that may belong to an abbreviation does
    not end a sentence, because for passages, two joined sentences are better than one that is cut in two.
    """
    found: list[Span] = []
    for start, end in _blocks(text):
        for stop in _STOP.finditer(text, start, end):
            if _ends_sentence(text, start, stop, end):
                found.append(Span(start, stop.end()))
                gap = _SPACE.match(text, stop.end(), end)
                start = gap.end() if gap else stop.end()
        if start < end:
            found.append(Span(start, end))
    return found


def prose(passage: str, metadata: Mapping[str, Any]) -> list[Span]:
    """Return the sentences of a passage that can be marked: without headings, code blocks and rows of tables.

    Return none if the passage is one sentence, because there is nothing to choose.
    """
    found = sentences(passage)
    if len(found) < 2:
        return []
    if format_of_whole(metadata) not in WITH_HEADINGS:
        return found
    left_out = no_prose(passage)
    return [span for span in found if not any(span.start < end and start < span.end for start, end in left_out)]


def _blocks(text: str) -> Iterator[Span]:
    """Yield the paragraphs, list items and headings, without white space around them."""
    start = end = 0
    heading = False
    for line in _LINE.finditer(text):
        blank = not line[0].strip()
        item = not blank and ITEM.match(text, line.start(), line.end())
        if blank or item or heading:
            if start < end:
                yield _stripped(text, start, end)
            start = line.start() if not blank else line.end()
            heading = False
        if not blank:
            heading = bool(item) and line[0].lstrip().startswith("#")
        end = line.end()
    if start < end:
        yield _stripped(text, start, end)


def _ends_sentence(text: str, start: int, stop: re.Match[str], end: int) -> bool:
    mark = stop[0]
    if not _ENDS_WITHOUT_SPACE.isdisjoint(mark):
        return True
    if stop.end() == end or not text[stop.end()].isspace():
        return False  # At the end of a block, the sentence ends anyway.
    gap = _SPACE.match(text, stop.end(), end)
    following = text[gap.end()] if gap and gap.end() < end else ""
    if mark[-1] in "!?":
        return True
    if mark[0] != "." or mark.startswith(".."):
        return not following.islower()  # "Really?" he asked … and left.
    before = _WORD_BEFORE.search(text[max(start, stop.start() - 24) : stop.start()])
    word = before[0] if before else ""
    if len(word) == 1 and word.isupper():
        return False  # An initial.
    if word.isdigit() and stop.start() - len(word) == start:
        return False  # The number of a list item.
    word = f" {word.lower()} "
    if word in _LAST_BEFORE_CAPITALS:
        return not following.islower()
    if word in _NOT_BEFORE_NUMBERS:
        return not following.isdigit()
    return word not in _NEVER_LAST


def _stripped(text: str, start: int, end: int) -> Span:
    """Return the span without white space at its ends. It is empty if the span has only white space."""
    part = text[start:end]
    start += len(part) - len(part.lstrip())
    return Span(start, max(start, start + len(part.strip())))


# In scripts without spaces between words, every character counts as a word. The expression is compiled when it is first
# used, because this takes milliseconds, and a search does not need it.
_WORD = r"[\u2e80-\u9fff\uf900-\ufaff]|[^\W\u2e80-\u9fff\uf900-\ufaff]+"


def words(text: str) -> list[str]:
    """Return the words of a text in lower case. In scripts without spaces, every character is a word."""
    return re.findall(_WORD, text.lower())
