"""Commands run under strace, with an empty home: what they connect to, and which files they write."""

import ipaddress
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

CALLS = (
    "open,openat,creat,mkdir,mkdirat,mknod,mknodat,rename,renameat,renameat2,link,linkat,symlink,symlinkat,truncate,"
    "connect,sendto,sendmsg,sendmmsg"
)
NOT_OURS = (
    "ORT_DISABLE_TELEMETRY",
    "HAYSTACK_TELEMETRY_ENABLED",
    "CI",
    "XDG_CACHE_HOME",
    "HF_HUB_OFFLINE",
    "TORCHINDUCTOR_CACHE_DIR",
    "MPLCONFIGDIR",
)
DEVICES = ("/dev/null", "/dev/tty", "/dev/pts", "/proc")
SEMAPHORES = "/dev/shm/"
"""Semaphores of multiprocessing and OpenMP are files in memory that are removed as soon as they are made."""

CALL = re.compile(r"^\d+ +(\w+)\((.*)")
WRITES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC")
ADDRESS = re.compile(r'sin6?_port=htons\((\d+)\).*?(?:inet_addr\("([^"]+)"\)|inet_pton\(AF_INET6, "([^"]+)")')
WHERE = re.compile(r'(?:AT_FDCWD(?:<([^>]*)>)?|\d+<([^>]*)>|), ?"((?:[^"\\]|\\.)*)"|^"((?:[^"\\]|\\.)*)"')


@dataclass
class Traced:
    """What a process and its children did."""

    folder: Path
    connected: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)

    def read(self, log: Path) -> "Traced":
        for line in log.read_text(errors="replace").splitlines():
            call = CALL.match(line)
            if call is None or re.search(r"= -1 E(NOENT|EXIST|ROFS|ACCES)", line):
                continue
            name, rest = call.groups()
            if name in ("connect", "sendto", "sendmsg", "sendmmsg"):
                for port, four, six in ADDRESS.findall(rest):
                    if not ipaddress.ip_address(four or six).is_loopback:
                        self.connected.append(f"{name} {four or six}:{port}")
            elif not name.startswith("open") or WRITES.search(rest):
                for cwd, folder, relative, alone in WHERE.findall(rest):
                    self.written.append(os.path.normpath(Path(cwd or folder or self.folder, relative or alone)))
        return self

    def elsewhere(self) -> list[str]:
        """The files and folders that were made or changed outside of what is ours."""
        home = self.folder / "home"
        own = [self.folder / "c", self.folder / "tmp", home / ".cache" / "flow-retriever", *map(Path, DEVICES)]
        return sorted(
            path
            for path in set(self.written)
            if not any(Path(path).is_relative_to(one) for one in own)
            and Path(path) != home / ".cache"
            and not path.startswith(SEMAPHORES)
        )

    def check(self, *, nothing_written: bool = False) -> None:
        assert nothing_written or self.written, "nothing was recorded"
        assert not self.connected
        assert not self.elsewhere()
        assert not list((self.folder / "tmp").iterdir()), "temporary files stay behind"


@dataclass
class Place:
    """A folder for collections, an empty home, and a folder for temporary files."""

    folder: Path
    encoder: str
    python: Path = Path(sys.executable)

    def __post_init__(self) -> None:
        for name in ("c", "home", "tmp"):
            (self.folder / name).mkdir()

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in NOT_OURS}
        made = {"HOME": str(self.folder / "home"), "TMPDIR": str(self.folder / "tmp"), "OMP_NUM_THREADS": "1"}
        return {**kept, **made, "PYTHONDONTWRITEBYTECODE": "1"}

    def command(self, log: Path, *arguments: object) -> list[str]:
        strace = ["strace", "-f", "--seccomp-bpf", "-qq", "-y", "-s", "300", "-e", f"trace={CALLS}", "-o", str(log)]
        return [*strace, str(self.python), *map(str, arguments)]

    def traced(self, *arguments: object) -> Traced:
        log = self.folder / "calls.log"
        done = subprocess.run(
            self.command(log, *arguments),
            env=self.environment(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return Traced(self.folder).read(log)


API = """
import sys
{first}
from retriever import Retriever
pets = [{{"id": "cat", "text": "Cats purr."}}, {{"id": "dog", "text": "Dogs bark."}}]
with Retriever.build(pets, "c/pets", encoder=sys.argv[1], transform="none") as retriever:
    assert retriever.search("purr", 1)
"""
"""Builds and searches a collection in Python. `first` is a line that runs before `retriever` is imported."""

HAYSTACK = """
{first}
from retriever.integrations.haystack import CollectionRetriever
from haystack import Pipeline
pipeline = Pipeline()
pipeline.add_component("pets", CollectionRetriever("c/pets", top_k=1))
assert pipeline.run({{"pets": {{"query": "purr"}}}})["pets"]["documents"]
"""
"""Searches the collection of `API` in a pipeline of Haystack."""
