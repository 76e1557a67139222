"""Power failures: what a job wrote is recorded, and the folders that a power failure could have left are made from it.

strace records every call that changes a file, with its bytes. Between two syncs the system may write what is pending
in any order, or not at all. So a folder after a power failure has everything that was synced, and any part of the
rest:

- the bytes of a file are certain after fsync or fdatasync of that file; a pending write may be there, not there, or
  torn at a multiple of 512 bytes,
- a name in a folder (made, renamed or removed) is certain after fsync of that folder. Names of one folder change in
  their order, as in any journal. Names of different folders change in any order. A rename is done as a whole.

Reads are not recorded, though they move the place of the next write. Here no descriptor does both.

A recording is complete if all its calls together make the folder that the job left. `Recording.final` shows that.
"""

import random
import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

SECTOR = 512
CALLS = (
    "open,openat,creat,close,dup,dup2,dup3,lseek,write,pwrite64,writev,pwritev,ftruncate,truncate,fallocate,"
    "fsync,fdatasync,sync_file_range,rename,renameat,renameat2,link,linkat,symlink,symlinkat,unlink,unlinkat,mkdir,"
    "mkdirat,rmdir"
)
OPTIONS = ["-y", "-xx", "-s", "100000000", "-e", f"trace={CALLS}"]

LINE = re.compile(r"^(\d+) +(?:(\w+)\((.*)|<\.\.\. (\w+) resumed>(.*))$")
RESULT = re.compile(r"^(.*)\) += (-?\d+|\?)(?:<([^>]*)>)?(?: .*)?$")
STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
DESCRIPTOR = re.compile(r"^(\d+)<([^>]*)>(?:\(deleted\))?")


@dataclass
class File:
    data: bytearray = field(default_factory=bytearray)


@dataclass
class Folder:
    names: dict[str, int] = field(default_factory=dict)


@dataclass
class Operation:
    """One change: of the bytes of an inode, or of names in folders, which are inodes too."""

    kind: str
    inodes: tuple[int, ...]
    offset: int = 0
    data: bytes = b""
    changes: tuple[tuple[int, str, int | None], ...] = ()
    """Folders, names in them, and what they stand for from then on. None if for nothing."""
    synced_at: int | None = None
    """The number of operations after which this one is certain."""


class Recording:
    """What was done to a folder, as operations on inodes."""

    def __init__(self, root: Path) -> None:
        """Read the folder as it is before the job. Everything in it is on disk."""
        self.root = root
        self.nodes: dict[int, File | Folder] = {0: Folder()}
        self._new: dict[int, type[File] | type[Folder]] = {}
        self.operations: list[Operation] = []
        self.syncs: list[int] = []
        """The numbers of operations at which something was synced."""
        self._read(root, 0)
        self._now = deepcopy(self.nodes)
        self._next = len(self.nodes)

    def _read(self, path: Path, inode: int) -> None:
        folder = self.nodes[inode]
        assert isinstance(folder, Folder)
        for entry in sorted(path.iterdir()) if path.exists() else ():
            own = len(self.nodes)
            folder.names[entry.name] = own
            self.nodes[own] = Folder() if entry.is_dir() else File(bytearray(entry.read_bytes()))
            if entry.is_dir():
                self._read(entry, own)

    # ---- the log of strace ----------------------------------------------------------------------------------------

    def replay(self, log: Path) -> None:
        """Take the calls of a log of strace."""
        begun: dict[str, str] = {}
        offsets: dict[int, int] = {}
        files: dict[int, int] = {}
        for line in log.read_text(errors="replace").splitlines():
            found = LINE.match(line)
            if found is None:
                continue
            thread, call, rest, resumed, end = found.groups()
            if call and rest.endswith("<unfinished ...>"):
                begun[thread] = rest.removesuffix("<unfinished ...>").rstrip()
                continue
            if resumed:
                call, rest = resumed, begun.pop(thread, "") + end.lstrip()
            result = RESULT.match(rest)
            if result and not result[2].startswith("-") and result[2] != "?":
                self._take(call, result[1], int(result[2]), _unhex(result[3] or ""), offsets, files)

    def _take(
        self, call: str, given: str, result: int, opened: str, offsets: dict[int, int], files: dict[int, int]
    ) -> None:
        paths = [_absolute(given, text) for text in STRING.findall(given)] if call in NAMING else []
        if call in ("open", "openat", "creat"):
            files.pop(result, None)
            if (place := self._place(opened)) is not None:
                inode = self._inode(*place)
                if inode is None:
                    inode = self._make(place, File)
                elif "O_TRUNC" in given and isinstance(self._now[inode], File):
                    self._data("truncate", inode, 0)
                files[result] = inode
                offsets[result] = -1 if "O_APPEND" in given else 0
            return
        if call in NAMING:
            places = [self._place(path) for path in paths]
            assert not call.startswith(("link", "symlink", "truncate")) or places[-1] is None, f"{call} is not replayed"
            self._named(call, places)
            return
        descriptor = DESCRIPTOR.match(given)
        number = int(descriptor[1]) if descriptor else -1
        if number not in files:
            return
        inode = files[number]
        if call == "close":
            del files[number]
        elif call in ("dup", "dup2", "dup3"):
            files[result], offsets[result] = inode, offsets[number]
        elif call == "lseek":
            offsets[number] = result if offsets[number] >= 0 else -1
        elif call in ("fsync", "fdatasync"):
            self._sync(inode)
        elif call in ("ftruncate", "fallocate"):
            numbers = [int(one) for one in re.findall(r", (\d+)", given)]
            size = numbers[0] if call == "ftruncate" else sum(numbers[-2:])
            now = self._now[inode]
            assert isinstance(now, File)
            if call == "ftruncate" or size > len(now.data):
                self._data("truncate", inode, size)
        elif call in WRITES:
            data = b"".join(map(_bytes, STRING.findall(given)))[:result]
            assert len(data) == result, f"strace did not record the {result} bytes of {call}"
            now = self._now[inode]
            assert isinstance(now, File)
            if call.startswith("p"):
                self._data("write", inode, int(given.rpartition(", ")[2]), data)
                return
            offset = offsets[number] if offsets[number] >= 0 else len(now.data)
            self._data("write", inode, offset, data)
            offsets[number] += result if offsets[number] >= 0 else 0

    def _place(self, path: str) -> tuple[int, str] | None:
        """The folder and the name of a path. None if it is not below the root."""
        if not path.startswith(f"{self.root}/"):
            return (-1, "") if path == str(self.root) else None
        *folders, name = Path(path).relative_to(self.root).parts
        inode = 0
        for part in folders:
            folder = self._now[inode]
            assert isinstance(folder, Folder)
            inode = folder.names[part]
        return inode, name

    def _inode(self, folder: int, name: str) -> int | None:
        if folder < 0:
            return 0
        own = self._now[folder]
        assert isinstance(own, Folder)
        return own.names.get(name)

    def _make(self, place: tuple[int, str], kind: type[File] | type[Folder]) -> int:
        inode, self._next = self._next, self._next + 1
        self._new[inode] = kind
        self._now[inode] = kind()
        self._names((*place, inode))
        return inode

    def _named(self, call: str, places: list[tuple[int, str] | None]) -> None:
        if call.startswith("mkdir"):
            if places[0] is not None and places[0][0] >= 0:
                self._make(places[0], Folder)
        elif call.startswith("rename"):
            if places[0] is None and places[-1] is None:
                return
            source, target = places[0], places[-1]
            assert source is not None and target is not None, "renamed into the folder or out of it"
            self._names((*target, self._inode(*source)), (*source, None))
        elif call.startswith(("unlink", "rmdir")) and places[0] is not None:
            self._names((*places[0], None))

    def _data(self, kind: str, inode: int, offset: int, data: bytes = b"") -> None:
        self._add(Operation(kind, (inode,), offset, data))

    def _names(self, *changes: tuple[int, str, int | None]) -> None:
        self._add(Operation("names", tuple(folder for folder, _, _ in changes), changes=changes))

    def _add(self, operation: Operation) -> None:
        self.operations.append(operation)
        _apply(self._now, operation)

    def _sync(self, inode: int) -> None:
        self.syncs.append(len(self.operations))
        for operation in self.operations:
            if inode in operation.inodes and operation.synced_at is None:
                operation.synced_at = len(self.operations)

    # ---- what a power failure leaves -------------------------------------------------------------------------------

    def points(self) -> list[int]:
        """Moments that differ in what is certain or pending: around every sync and every change of names."""
        names = [place for place, operation in enumerate(self.operations) if operation.kind == "names"]
        around = {max(0, place + step) for place in (*self.syncs, *names) for step in (-1, 0, 1)}
        return sorted(place for place in around | {len(self.operations)} if place <= len(self.operations))

    def image(self, moment: int, order: str, rng: random.Random, target: Path) -> None:
        """Write the folder that a power failure after so many operations leaves.

        `order` is what became of the pending operations: "none" or "all" of them was written, "names first" (as a file
        system does that does not order data before names), "data first", or "some" by chance.
        """
        nodes: dict[int, File | Folder] = deepcopy(self.nodes)
        for inode, kind in self._new.items():
            nodes[inode] = kind()
        stopped: set[int] = set()  # folders whose next names are not on disk
        for operation in self.operations[:moment]:
            certain = operation.synced_at is not None and operation.synced_at <= moment
            if certain or order == "all":
                _apply(nodes, operation)
            elif order == "some" and operation.kind == "names":
                if stopped.intersection(operation.inodes) or rng.random() < 0.4:
                    stopped.update(operation.inodes)
                else:
                    _apply(nodes, operation)
            elif order == "some":
                _apply(nodes, operation, torn=rng)
            elif (order == "names first") == (operation.kind == "names") and order != "none":
                _apply(nodes, operation)
        _write(nodes, 0, target)

    def final(self, target: Path) -> None:
        """Write the folder that the job left, if the recording is complete."""
        _write(self._now, 0, target)


WRITES = ("write", "pwrite64", "writev", "pwritev")
NAMING = tuple(call for call in CALLS.split(",") if call.startswith(("rename", "link", "symlink", "unlink", "mkdir")))
NAMING += ("rmdir", "truncate")
ORDERS = ("none", "all", "names first", "data first", "some", "some", "some")


def _apply(nodes: dict[int, File | Folder], operation: Operation, torn: random.Random | None = None) -> None:
    for folder, name, inode in operation.changes:
        above = nodes[folder]
        assert isinstance(above, Folder)
        names = above.names
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode
    if operation.kind == "names":
        return
    node = nodes[operation.inodes[0]]
    assert isinstance(node, File)
    if operation.kind == "truncate":
        if torn is None or torn.random() < 0.5:
            size = operation.offset
            del node.data[size:]
            node.data.extend(bytes(size - len(node.data)))
        return
    data, offset = operation.data, operation.offset
    parts = range(0, len(data), SECTOR)
    fate = torn.random() if torn else 0.0  # whole, missing, or some of its sectors
    for place in parts:
        if torn is None or fate < 0.35 or (fate > 0.7 and torn.random() < 0.5):
            part = data[place : place + SECTOR]
            begin = offset + place
            node.data.extend(bytes(max(0, begin - len(node.data))))
            node.data[begin : begin + len(part)] = part


def _write(nodes: dict[int, File | Folder], inode: int, target: Path) -> None:
    node = nodes[inode]
    if isinstance(node, File):
        target.write_bytes(node.data)
        return
    target.mkdir()
    for name, own in node.names.items():
        _write(nodes, own, target / name)


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _unhex(text: str) -> str:
    return re.sub(r"(?:\\x[0-9a-f]{2})+", lambda found: _bytes(found[0]).decode(), text)


def _absolute(given: str, text: str) -> str:
    """The path of a call: absolute, or below the folder that its descriptor names."""
    path = _bytes(text).decode("utf-8", "surrogateescape")
    if path.startswith("/"):
        return path
    folder = re.search(r"<((?:\\x[0-9a-f]{2})+)>[^<]*" + re.escape(f'"{text}"'), given)
    return f"{_unhex(folder[1])}/{path}" if folder else path


def images(recording: Recording, count: int, seed: int) -> Iterator[tuple[int, str, random.Random]]:
    """So many failures: moments evenly over the recording, a tenth of them after its end, in all orders."""
    rng = random.Random(seed)
    points = recording.points()
    for number in range(count):
        ended = number % 10 == 9  # what is told to be done is on disk
        moment = points[-1 if ended else int(number * len(points) / count)]
        yield moment, ORDERS[(number + number // 10) % len(ORDERS)], random.Random(rng.random())
