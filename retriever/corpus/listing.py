"""Find the files of a corpus: those named by the user, and those in folders.

Every file that is left out is recorded in the account: hidden, ignored and excluded files, and those of unknown kinds.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pathspec import GitIgnoreSpec

from retriever.corpus.account import UNKNOWN_KIND, Account
from retriever.corpus.document import Skipped
from retriever.corpus.formats import KNOWN, format_of
from retriever.errors import Misuse

BEIR_CORPUS = ("corpus.jsonl", "corpus.jsonl.gz")
STDIN = "-"
IGNORE_FILE = ".gitignore"
LARGEST_IGNORE_FILE = 1 << 20
PLAIN_TEXT = "txt"
DATABASE = "documents.sqlite"
"""A folder with this file is a collection. What it holds was read before."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read.

    Ids and messages use its `name`: its path below the source folder. If the user named the file itself, this is its
    name without a folder. The name therefore does not depend on the current folder.
    """

    path: Path
    name: str
    format: str
    gzipped: bool
    size: int
    walked: bool
    """True if the file was found in a folder. It may then contain something other than documents."""

    @property
    def kind(self) -> str:
        """The format. For a file of an unknown kind that is read as text, the ending of its name."""
        if format_of(self.path.name):
            return self.format
        return self.path.suffix.lower().removeprefix(".") or self.format


@dataclass(frozen=True)
class Patterns:
    """Which files of a folder are read. The patterns are those of .gitignore, relative to the source folder."""

    include: tuple[str, ...] = ()
    """If there are any, only files that match one are read. A file of an unknown kind is then read as text."""
    exclude: tuple[str, ...] = ()

    @cached_property
    def included(self) -> GitIgnoreSpec | None:
        return GitIgnoreSpec.from_lines(self.include) if self.include else None

    @cached_property
    def excluded(self) -> GitIgnoreSpec | None:
        return GitIgnoreSpec.from_lines(self.exclude) if self.exclude else None


Place = SourceFile | Skipped | str
"""A file, a folder that cannot be listed, or standard input."""


def find_files(sources: Sequence[str | Path], patterns: Patterns, account: Account) -> list[Place]:
    """List the files of all sources in order, each file once. A folder that cannot be listed becomes a `Skipped`.

    If two files have the same name, parent folders are put before the name of the second one until it is unique.
    """
    if not sources:
        raise Misuse("no source given: name a file, a folder, or - for standard input")
    missing = [str(source) for source in sources if str(source) != STDIN and size_of(Path(source)) is None]
    if missing:
        raise Misuse(f"no such file or folder: {', '.join(missing)}")

    places: list[Place] = []
    seen: set[str] = set()
    names: set[str] = set()
    for source in dict.fromkeys(map(str, sources)):
        if source == STDIN:
            places.append(STDIN)
            continue
        is_folder = Path(source).is_dir()
        base = Path(source) if is_folder else Path(source).parent
        found = _Walk(base, patterns, account).files() if is_folder else iter([_checked(Path(source), patterns)])
        for item in found:
            if isinstance(item, Skipped):
                places.append(item)
                continue
            path, format = item
            real = os.path.realpath(path)
            if real in seen:
                continue
            seen.add(real)
            name = _unique_name(path, base, names)
            names.add(name)
            gzipped = path.name.lower().endswith(".gz")
            places.append(SourceFile(path, name, format, gzipped, size_of(path) or 0, walked=is_folder))
    return places


def size_of(path: Path) -> int | None:
    """Return the size in bytes, or None if the path does not exist or is not accessible."""
    try:
        return path.stat().st_size
    except (OSError, ValueError):
        return None


def resolved(sources: Iterable[str]) -> list[str]:
    """Return the absolute paths of sources, sorted. Standard input stays `-`."""
    return sorted({one if one == STDIN else utf8_path(os.path.realpath(one)) for one in sources})


def utf8_path(path: str) -> str:
    """Return the path as text that can be encoded as UTF-8, with / between its parts."""
    return os.fsencode(path.replace(os.sep, "/")).decode("utf-8", "backslashreplace")


def _unique_name(path: Path, base: Path, names: set[str]) -> str:
    """Return the path below `base`. Parent folders are put before it until the name is new."""
    name = utf8_path(str(path.relative_to(base)))
    if name not in names:
        return name
    resolved = base.resolve()
    for folder in (resolved, *resolved.parents):
        name = f"{utf8_path(folder.name)}/{name}"
        if name not in names:
            break
    return name


def _checked(path: Path, patterns: Patterns) -> tuple[Path, str]:
    """Return a file that the user named, with its format. Raise `Misuse` if it has none or is not regular.

    A file of an unknown kind that matches a pattern of `include` is text.
    """
    if not path.is_file():
        raise Misuse(f"{path}: not a regular file; pipe it to standard input instead: -")
    format = format_of(path.name)
    if not format and patterns.included and patterns.included.match_file(path.name):
        format = PLAIN_TEXT
    if not format:
        pattern = f"*{path.suffix}" if path.suffix else path.name
        raise Misuse(f'{path}: unknown type of file; {KNOWN}. To read it as text, give `include=["{pattern}"]`')
    return path, format


@dataclass(frozen=True)
class _Ignore:
    """The rules of one .gitignore."""

    spec: GitIgnoreSpec
    folder: Path
    """The folder of the rules, or the source folder if the rules are above it."""
    prefix: str = ""
    """The path from the folder of the rules to `folder`, with a / at its end."""

    def decide(self, path: Path, is_folder: bool) -> bool | None:
        """Return whether the path is ignored. None if no rule says anything about it."""
        below = self.prefix + path.relative_to(self.folder).as_posix()
        return self.spec.check_file(f"{below}/" if is_folder else below).include


@dataclass
class _Walk:
    """A walk through a folder, in sorted order. It never goes through the same folder twice."""

    folder: Path
    patterns: Patterns
    account: Account
    failures: list[OSError] = field(default_factory=list)

    def files(self) -> Iterator[tuple[Path, str] | Skipped]:
        """Yield the files to read with their formats.

        In a BEIR folder (a folder with a corpus.jsonl), only the corpus is read, because queries and judgements are
        not documents.
        """
        found = False
        visited: set[tuple[int, int]] = set()
        waiting = [(self.folder, _rules_above(self.folder))]
        while waiting:  # not os.walk, which is recursive in Python 3.11
            here, rules = waiting.pop()
            try:
                status = here.stat()
                if (status.st_dev, status.st_ino) in visited:
                    continue
                visited.add((status.st_dev, status.st_ino))
                with os.scandir(here) as entries:
                    listed = sorted((entry.name, _is_folder(entry)) for entry in entries)
            except OSError as error:
                self.failures.append(error)
                continue
            if (DATABASE, False) in listed:
                self.account.add_unread("", "a collection", self._shown(here) + "/")
                continue
            if (IGNORE_FILE, False) in listed and (spec := _rules_of(here)):
                rules = [*rules, _Ignore(spec, here)]
            folders, readable = [], []
            for name, is_folder in listed:
                if reason := self._reason_against(here / name, is_folder, rules):
                    kind = "" if is_folder or reason != UNKNOWN_KIND else Path(name.lower()).suffix or "without ending"
                    self.account.add_unread(kind, reason, self._shown(here / name) + "/" * is_folder)
                elif is_folder:
                    folders.append(here / name)
                else:
                    readable.append(name)
            corpora = [name for name in BEIR_CORPUS if name in readable][:1]
            for name in readable:
                if corpora and name not in corpora:
                    self.account.add_unread("", "beside a BEIR corpus", self._shown(here / name))
                    continue
                found = True
                yield here / name, format_of(name) or PLAIN_TEXT
            if corpora:
                for folder in folders:
                    self.account.add_unread("", "beside a BEIR corpus", self._shown(folder) + "/")
            else:
                waiting += [(folder, rules) for folder in reversed(folders)]
        for failure in self.failures:
            name = utf8_path(str(failure.filename))
            yield Skipped(name, f"cannot be listed: {failure.strerror}", self._shown(Path(failure.filename)))
        if not found and not self.failures:
            passed_over = "".join(f"\n  {sentence}" for sentence in self.account.sentences())
            raise Misuse(f"{self.folder}: no readable file in this folder; {KNOWN}{passed_over}")

    def _shown(self, path: Path) -> str:
        return utf8_path(str(path.relative_to(self.folder)))

    def _reason_against(self, path: Path, is_folder: bool, rules: Sequence[_Ignore]) -> str:
        """Return the reason why a file or folder is left out, or an empty string."""
        if path.name.startswith("."):
            return "hidden"
        below = path.relative_to(self.folder).as_posix() + "/" * is_folder
        if self.patterns.excluded and self.patterns.excluded.match_file(below):
            return "excluded"
        for rule in reversed(rules):
            decided = rule.decide(path, is_folder)
            if decided:
                return f"ignored by {IGNORE_FILE}"
            if decided is not None:
                break
        if is_folder:
            return ""
        if self.patterns.included:
            return "" if self.patterns.included.match_file(below) else "not included"
        return "" if format_of(path.name) else UNKNOWN_KIND


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a loop of links
        return False


def _rules_of(folder: Path) -> GitIgnoreSpec | None:
    path = folder / IGNORE_FILE
    try:
        if not path.is_file() or path.stat().st_size > LARGEST_IGNORE_FILE:
            return None
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    return GitIgnoreSpec.from_lines(filter(_is_pattern, lines))


def _is_pattern(line: str) -> bool:
    """Return whether a line can be parsed. Git ignores other lines too, such as a lone exclamation mark."""
    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True


def _rules_above(folder: Path) -> list[_Ignore]:
    """Return the rules of the folders above, up to the root of the git repository that the folder is in, if any.

    They do not count if they would ignore the folder itself, because the user named it.
    """
    resolved = folder.resolve()
    root = next((parent for parent in (resolved, *resolved.parents) if (parent / ".git").exists()), resolved)
    above = [parent for parent in resolved.parents if parent.is_relative_to(root)]
    rules: list[_Ignore] = []
    for parent in reversed(above):
        if spec := _rules_of(parent):
            prefix = resolved.relative_to(parent).as_posix() + "/"
            if spec.match_file(prefix):
                return []
            rules.append(_Ignore(spec, folder, prefix))
    return rules
