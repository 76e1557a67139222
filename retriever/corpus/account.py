"""An account of the files of a corpus: how many were read, by kind, and how many were not, by kind and reason."""

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field

UNKNOWN_KIND = "unknown kind"
NAMES_KEPT = 5
"""The number of files that are named for each kind and reason."""
REASONS_SHOWN = 12
"""The number of kinds and reasons that are reported.

Files that are damaged in their own way each have their own reason.
"""


@dataclass
class Unread:
    """Files or folders that were not read for the same reason."""

    count: int = 0
    names: list[str] = field(default_factory=list)
    """The first of them."""

    def add(self, name: str) -> None:
        self.count += 1
        if len(self.names) < NAMES_KEPT:
            self.names.append(name)

    def __str__(self) -> str:
        return ", ".join(self.names) + (", …" if self.count > len(self.names) else "")


@dataclass
class Account:
    """Counts every file that a corpus has met. A hidden or ignored folder counts once, because it is not opened."""

    read: Counter[str] = field(default_factory=Counter)
    """How many files were read, by kind, e.g. `md`."""
    unread: dict[tuple[str, str], Unread] = field(default_factory=dict)
    """The files that were not read, by kind and reason, e.g. `(".png", "unknown kind")`."""
    notes: dict[str, Unread] = field(default_factory=dict)
    """The files of which something was not read, by what it was."""

    def add_unread(self, kind: str, reason: str, name: str) -> None:
        self.unread.setdefault((kind, reason), Unread()).add(name)

    def add_note(self, note: str, name: str) -> None:
        self.notes.setdefault(note, Unread()).add(name)

    def copy(self) -> "Account":
        unread = {key: Unread(entry.count, list(entry.names)) for key, entry in self.unread.items()}
        return Account(self.read.copy(), unread)

    def sentences(self, told: Set[str] = frozenset()) -> list[str]:
        """Return sentences about what was read and what was not, the most frequent first. Return none for a single
        file.

        `told` holds the names of files that were already named elsewhere.
        """
        found = [f"Read, but {note}: {entry}" for note, entry in self.notes.items()]
        if sum(self.read.values()) + sum(entry.count for entry in self.unread.values()) < 2:
            return found
        if self.read:
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in self.read.most_common())
            found.append(f"Read {_files(sum(self.read.values()))}: {kinds}.")
        new = [
            item for item in self.unread.items() if item[1].count > len(item[1].names) or not told >= {*item[1].names}
        ]
        if skipped := sum(entry.count for entry in self.unread.values()) - sum(entry.count for _, entry in new):
            found.append(f"Not read: {_files(skipped)}, named as skipped.")
        ranked = sorted(new, key=lambda item: -item[1].count)
        for (kind, reason), entry in ranked[:REASONS_SHOWN]:
            what = f"{entry.count:,} {kind}".strip()
            as_text = (
                f' (`include=["*{kind}"]` reads it as text)' if reason == UNKNOWN_KIND and _may_be_text(kind) else ""
            )
            found.append(f"Not read: {what}, {reason}{as_text}: {entry}")
        if rest := [entry for _, entry in ranked[REASONS_SHOWN:]]:
            count, names = sum(entry.count for entry in rest), [name for entry in rest for name in entry.names]
            more = ", …" if count > NAMES_KEPT else ""
            found.append(f"Not read: {count:,} more, for other reasons: {', '.join(names[:NAMES_KEPT])}{more}")
        return found


def _may_be_text(ending: str) -> bool:
    import mimetypes

    kind, _ = mimetypes.guess_type(f"a{ending}")
    return ending.startswith(".") and (kind is None or kind.startswith("text/"))


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count:,} files"
