"""Protect reads of memory-mapped files that another program may truncate or change.

A read beyond the new end of a mapped file, or from a failing disk, ends a process by the signal SIGBUS. No check before
a read can prevent that. Therefore a handler of this signal replaces the lost part by zeros and records that. A change
of the content gives no signal. Therefore code that reads a mapped file checks afterwards whether the file has changed
since it was opened, and discards the results if it has.

The handler can be a Python function, because the signal arrives only at a read of a mapped file. The memory allocator
and the interpreter do not read mapped files, so the handler never interrupts them. The lost part of the index of
SQLite's log (`-shm`) cannot be replaced, because other processes share it. The process then ends with a message.
"""

import ctypes
import os
import platform
import signal
import sys
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PAGE = 4096 if sys.platform == "win32" else os.sysconf("SC_PAGE_SIZE")
SUPPORTED = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64") and sys.maxsize > 2**32
"""The handler is written for the C structures of these systems. On others, a truncated file ends the process."""
# From <sys/mman.h> and <signal.h> of Linux.
PROT_READ, PROT_WRITE = 1, 2
PRIVATE_FIXED_ANONYMOUS = 0x02 | 0x10 | 0x20
SA_SIGINFO = 4
ADDRESS_IN_SIGINFO = 16


class MappedFile:
    """A file that is mapped, or will be. Create this object before the file is mapped."""

    def __init__(self, path: Path) -> None:
        _install()
        self.path = path
        self.lost = False
        """True if a part of the file could not be read, so that zeros are in its place."""
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        weakref.finalize(self, os.close, descriptor)
        self._descriptor = descriptor
        # As the system names the mapping: the cache of the Hugging Face hub consists of links.
        self.inode, self.name = os.fstat(descriptor).st_ino, _as_in_maps(path.resolve().name)
        self._state = self._current_state()
        _files[id(self)] = self

    def _current_state(self) -> tuple[int, int]:
        found = os.fstat(self._descriptor)
        return found.st_size, found.st_mtime_ns  # not the ctime, which changes if the file is renamed or removed

    @property
    def changed(self) -> bool:
        """True if the file was cut or written to, so that what was read from it may be wrong."""
        return self.lost or self._current_state() != self._state


def changed(files: Iterable[MappedFile]) -> Path | None:
    """Return the first of the files that has changed since it was opened, or None."""
    return next((file.path for file in files if file.changed), None)


def end_if_cut(path: Path) -> None:
    """End the process with a message if another program truncates this file, because the process cannot continue."""
    _install()
    _vital.add(_as_in_maps(path.resolve()))


def _as_in_maps(path: str | Path) -> bytes:
    """Return a path as the system writes it in `/proc/self/maps`."""
    return os.fsencode(path).replace(b"\n", b"\\012")


_files: "weakref.WeakValueDictionary[int, MappedFile]" = weakref.WeakValueDictionary()
_vital: set[bytes] = set()
_replaced_parts: list[tuple[int, int]] = []
"""The addresses of the parts that have zeros in their place."""


class _Action(ctypes.Structure):
    """`struct sigaction`, as the C libraries of Linux define it."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


_installed: list[Any] = []
"""The C library, the handler in the form that C calls, and the previous action. Empty if no handler is installed."""


def _install() -> None:
    """Handle SIGBUS from now on. Signals that do not concern our files are passed to the previous handler."""
    if _installed or not SUPPORTED:
        return
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (*(ctypes.c_void_p, ctypes.c_size_t), *([ctypes.c_int] * 3), ctypes.c_long)
    library.sigaction.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    called = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(_on_sigbus)
    before = _Action()
    own = _Action(handler=ctypes.cast(called, ctypes.c_void_p), flags=SA_SIGINFO)
    _installed.extend((library, called, before))
    library.sigaction(signal.SIGBUS, ctypes.addressof(own), ctypes.addressof(before))


def _on_sigbus(number: int, info: int, context: int) -> None:
    """Replace the rest of one of our mapped files by zeros. Pass any other error to the previous handler."""
    library, _, before = _installed
    try:
        if _replaced(library, ctypes.c_size_t.from_address(info + ADDRESS_IN_SIGINFO).value):
            return
    except Exception:
        pass
    library.sigaction(signal.SIGBUS, ctypes.addressof(before), None)


def _replaced(library: Any, address: int) -> bool:
    with open("/proc/self/maps", "rb", buffering=1 << 20) as maps:  # noqa: PTH123 - as little as possible
        for line in maps:
            begin, _, end = line.partition(b" ")[0].partition(b"-")
            if int(begin, 16) <= address < int(end, 16):
                break
        else:
            return False
    permissions, _, _, inode, *names = line.split(None, 5)[1:]
    if not names and any(begin <= address < end for begin, end in _replaced_parts):
        return True  # another thread met the same lost part, and its handler was here first
    name = b"".join(names)
    name = name.rstrip(b"\n").removesuffix(b" (deleted)")
    if name in _vital:
        os.write(2, b"Error: " + name + b" was cut by another program. What was stored is kept. Try again.\n")
        os._exit(1)
    # `valuerefs` copies the list at once. Another thread may open a file meanwhile.
    files = [file for reference in _files.valuerefs() if (file := reference()) is not None]
    own = [file for file in files if int(inode) == file.inode and name.endswith(b"/" + file.name)]
    if not own or b"x" in permissions:
        return False
    for file in own:
        file.lost = True  # first, because another thread may read the zeros at once
    first = address // PAGE * PAGE
    access = PROT_READ | (PROT_WRITE if b"w" in permissions else 0)
    _replaced_parts.append((first, int(end, 16)))
    return bool(library.mmap(first, int(end, 16) - first, access, PRIVATE_FIXED_ANONYMOUS, -1, 0) == first)
