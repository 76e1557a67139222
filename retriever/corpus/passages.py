"""Long documents as passages an encoder can take whole: cut at sentence ends, with some overlap."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from retriever.errors import Misuse

if TYPE_CHECKING:
    from retriever.corpus import Document
    from retriever.encoder.encoder import Encoder

CountTokens = Callable[[list[str]], list[int]]
"""How many tokens each text has for the encoder, special tokens not counted."""

Span = tuple[int, int]

SPLIT_AT_ONCE = 250_000
"""Characters of a text whose sentences and tokens are held together: they take up to some hundred times its memory."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a document's text: `text[start:end]`, without white space around it, never empty."""

    start: int
    end: int


def encoded_passages(document: "Document", encoder: "Encoder") -> Iterator[tuple[int, int, str]]:
    """Where the passages of a document begin and end, and what the encoder is given for each."""
    budget, count_tokens = encoder.token_budget, encoder.count_tokens
    title = fit_title(document.title, budget, count_tokens)
    for passage in split(document.text, title, budget, count_tokens):
        yield passage.start, passage.end, encoded_text(title, document.text[passage.start : passage.end])


def encoded_text(title: str, passage: str) -> str:
    """What the encoder is given for a passage; `title` as `fit_title` leaves it."""
    return f"{title}\n{passage}" if title else passage


def fit_title(title: str, budget: int, count_tokens: CountTokens) -> str:
    """The title as it is encoded with every passage: cut at a word's end to at most half of the budget."""
    half = budget // 2
    title = title[:SPLIT_AT_ONCE]
    if len(title.encode()) <= half:
        return title
    while title and (cost := count_tokens([title])[0]) > half:
        title = title[: min(len(title) - 1, len(title) * half // cost)]
        title = (title[: title.rfind(" ")] if " " in title.strip() else title).strip()
    return title


def split(text: str, title: str, budget: int, count_tokens: CountTokens, overlap: float = 0.125) -> list[Passage]:
    """Passages in order that together cover all of the text but white space.

    `budget` is the number of tokens for title and passage together, special tokens already taken off:
    `encoded_text(fit_title(title, budget, count_tokens), passage)` has at most so many, unless a single
    character has more. A text with no more bytes than that is not counted, as a token has at least a byte.

    Sentences are packed until the budget is used up, and a passage begins with the last sentences of the one
    before as far as they have at most `overlap * budget` tokens. A sentence too long for the budget is cut
    between words, a word too long between characters.
    """
    if budget < 1:
        raise Misuse(f"a passage needs room for at least one token, not {budget}")
    start, end = _stripped(text, 0, len(text))
    if start == end:
        return []
    title = fit_title(title, budget, count_tokens)
    whole = encoded_text(title, text[start:end])
    size = len(whole.encode())
    # Of most languages a token has fewer than eight bytes: beyond that, counting the whole text is wasted.
    if size <= budget or (size <= 8 * budget and count_tokens([whole])[0] <= budget):
        return [Passage(start, end)]

    room = max(1, budget - (count_tokens([encoded_text(title, "")])[0] if title else 0))
    passages: list[Passage] = []
    for first, last in _parts(text, start, end):
        part = text[first:last]
        units, costs = _units(part, room, max(1, int(room * overlap)), count_tokens)
        groups = [units[a:b] for a, b in _packed(costs, room, overlap * budget)]
        found = _verified(part, title, groups, budget, count_tokens)
        for passage in sorted(found, key=lambda p: (p.start, -p.end)):
            if not passages or first + passage.end > passages[-1].end:
                passages.append(Passage(first + passage.start, first + passage.end))
    return passages


def _parts(text: str, start: int, end: int) -> Iterator[Span]:
    """Parts of a long text that are split one after the other, cut between words if there is more than one."""
    while end - start > SPLIT_AT_ONCE:
        last = start + SPLIT_AT_ONCE
        gaps = (text.rfind(space, start + SPLIT_AT_ONCE // 2, last) for space in ("\n", " "))
        cut = next((gap for gap in gaps if gap > 0), last)
        yield start, cut
        start = cut
    yield start, end


def _units(text: str, room: int, piece: int, count_tokens: CountTokens) -> tuple[list[Span], list[int]]:
    """What passages are made of, with their costs: sentences, and pieces of those too long by themselves.

    Pieces have about `piece` tokens, small enough to serve as overlap. All are counted with the white space
    before them, which is a token to some tokenizers.
    """
    units = sentences(text)
    known: dict[Span, int] = {}
    while True:
        befores = [max(end, start - 4) for (_, end), (start, _) in zip([(0, 0), *units], units, strict=False)]
        new = [(unit, before) for unit, before in zip(units, befores, strict=True) if unit not in known]
        counts = count_tokens([text[before : unit[1]] for unit, before in new])
        known.update((unit, count) for (unit, _), count in zip(new, counts, strict=True))
        too_long = {unit for unit, _ in new if known[unit] > room and unit[1] - unit[0] > 1}
        if not too_long:
            return units, [min(known[unit], room) for unit in units]
        units = [
            part
            for unit in units
            for part in (_cut(text, unit, -(-known[unit] // piece)) if unit in too_long else [unit])
        ]


def _cut(text: str, span: Span, parts: int) -> list[Span]:
    """At least two and at most about `parts` parts of a span of two or more characters, cut between words if
    there is more than one, else between characters."""
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
        # No white space after the first target: the last one before it, or there is only one word.
        before = max((gap.end() for gap in _SPACE.finditer(text, start, targets[0])), default=None)
        cuts = targets if before is None else [before]
    bounds = [start, *cuts, end]
    return [_stripped(text, *pair) for pair in pairwise(bounds)]


def _packed(costs: list[int], room: int, shared: float) -> Iterator[Span]:
    """Ranges of units that fit together; each takes at least one unit that the one before did not have."""
    sums = [0, *accumulate(costs)]
    first = last = 0
    while last < len(costs):
        last = max(last + 1, bisect_right(sums, sums[first] + room) - 1)
        yield first, last
        if last < len(costs):
            back = last
            while (
                back - 1 > first and sums[last] - sums[back - 1] <= shared and sums[last + 1] - sums[back - 1] <= room
            ):
                back -= 1
            first = back


def _verified(
    text: str, title: str, groups: list[list[Span]], budget: int, count_tokens: CountTokens
) -> Iterator[Passage]:
    """The passages, each counted as it will be encoded; those that came out too long, in halves."""
    counts = count_tokens([encoded_text(title, text[group[0][0] : group[-1][1]]) for group in groups])
    for group, count in zip(groups, counts, strict=True):
        start, end = group[0][0], group[-1][1]
        if count <= budget or end - start == 1:
            yield Passage(start, end)
        elif len(group) > 1:
            middle = len(group) // 2
            yield from _verified(text, title, [group[:middle], group[middle:]], budget, count_tokens)
        else:
            halves = [[part] for part in _cut(text, group[0], 2)]
            yield from _verified(text, title, halves, budget, count_tokens)


_SPACE = re.compile(r"\s+")
_LINE = re.compile(r"[^\n]*\n?")
_ITEM = re.compile(r"[ \t]*(?:[-*+•‣◦–]|\(?\d{1,3}[.)]|#{1,6})[ \t]")
# Always matches a whole run, so that every character is looked at once; what follows is decided in code.
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


def sentences(text: str) -> list[Span]:
    """Where the sentences of a text begin and end, in order, without the white space between them.

    Blank lines, list items and headings always end one. Made for packing passages: where a full stop may
    belong to an abbreviation, it is taken not to end a sentence. Takes time linear in the text.
    """
    found: list[Span] = []
    for block_start, block_end in _blocks(text):
        start = block_start
        for stop in _STOP.finditer(text, block_start, block_end):
            if _ends_sentence(text, start, stop, block_end):
                found.append((start, stop.end()))
                gap = _SPACE.match(text, stop.end(), block_end)
                start = gap.end() if gap else stop.end()
        if start < block_end:
            found.append((start, block_end))
    return found


def _blocks(text: str) -> Iterator[Span]:
    """Paragraphs, list items and headings, without white space around them."""
    start = end = 0
    heading = False
    for line in _LINE.finditer(text):
        blank = not line[0].strip()
        item = not blank and _ITEM.match(text, line.start(), line.end())
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
    if stop.end() == end:
        return False  # The block's end is one anyway.
    if not text[stop.end()].isspace():
        return False
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
    """The span without white space at its ends; empty if there is nothing else."""
    part = text[start:end]
    start += len(part) - len(part.lstrip())
    return start, max(start, start + len(part.strip()))
