"""The state of a collection in Milvus.

One record holds the settings and the published generation. Two more records hold the counters and the write lock.
"""

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from indexes.errors import Locked, NotACollection, RetrieverError
from indexes.milvus.client import Client, in_list
from indexes.milvus.records import Records, row

FORMAT = 1
STATE, COUNTERS, LOCK = "state", "counters", "lock"
# A lock that was not renewed for this time counts as free, because its holder died or lost its connection.
LEASE_SECONDS = 120.0
RENEW_SECONDS = 20.0
CANDIDATE = "candidate"
"""The beginning of the keys of rows in which processes announce that they want the lock."""
CANDIDATE_SECONDS = 10.0
"""How long a process waits for others that want the lock and have not given way yet."""
WAIT_SECONDS = 0.05

Sealed = Sequence[tuple[int, str]]
"""Versions of documents, each as (number, seal)."""


@dataclass(frozen=True)
class Snapshot:
    """The settings and the published generation at one moment."""

    settings: dict[str, Any] = field(default_factory=dict)
    generation: dict[str, Any] | None = None
    """The number, name, manifest and manifest hash of the published generation."""
    last_generation: int = 0

    @property
    def published(self) -> tuple[int, str, str] | None:
        """The number, name and manifest hash of the published generation."""
        found = self.generation
        return None if found is None else (int(found["number"]), str(found["name"]), str(found["sha256"]))


class State:
    """Reads and changes the state. Only the holder of the lock may change it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.records = Records(client, f"{client.address.name}_settings")
        # The holder of the lock is the only writer, so it keeps the state and the counters in memory.
        self._snapshot: Snapshot | None = None
        self._counters: dict[str, Any] | None = None
        self._mutex = threading.RLock()
        self._token = ""
        self._renewed = 0.0
        self._lost: Locked | None = None
        self._depth = 0

    # ---- settings and generation ---------------------------------------------------------------------------

    def read(self) -> Snapshot:
        if self._snapshot is not None:
            return self._snapshot
        text = self.records.read(STATE)
        if text is None:
            raise no_collection(self.client)
        values = json.loads(text)
        if (format_ := values.pop("format", None)) != FORMAT:
            raise NotACollection(
                f"{self.client.address} was made by another version of retriever (its format is {format_}, this one "
                f"reads {FORMAT}); upgrade with: pip install --upgrade flow-retriever"
            )
        return Snapshot(**values)

    def change(self, *, settings: dict[str, Any] | None = None, **changes: Any) -> None:
        """Change some settings and the published generation in one write."""
        before = self._snapshot or (self.read() if self.records.read(STATE) else Snapshot())
        after = replace(before, settings={**before.settings, **(settings or {})}, **changes)
        self.records.write(STATE, json.dumps({"format": FORMAT, **asdict(after)}, sort_keys=True, ensure_ascii=False))
        if self._snapshot is not None:
            self._snapshot = after

    @property
    def dimension(self) -> int:
        return int(self.read().settings["encoder"]["dimension"])

    # ---- counters ------------------------------------------------------------------------------------------

    def counters(self) -> dict[str, Any]:
        """Return the last vector and document numbers, the number of changes, and the documents that changed last."""
        if self._counters is not None:
            return self._counters
        text = self.records.read(COUNTERS)
        return {"vector": 0, "document": 0, "changes": 0, "unsettled": [], **(json.loads(text) if text else {})}

    def take_numbers(self, kind: str, count: int, changes: int = 0, unsettled: Sealed = ()) -> int:
        """Reserve `count` consecutive numbers and return the first. Several threads may call this.

        `unsettled` are the versions of documents before and after a change. If the writer dies, the next writer removes
        the rows of those versions that are not current.
        """
        with self._mutex:
            self.renew()
            counters = dict(self.counters())
            first = int(counters[kind]) + 1
            if count or changes:
                counters[kind] += count
                counters["changes"] += changes
                if unsettled:
                    counters["unsettled"] = [list(version) for version in unsettled]
                self.set_counters(counters)
            return first

    def set_counters(self, counters: dict[str, Any]) -> None:
        self.records.write(COUNTERS, json.dumps(counters))
        if self._snapshot is not None:
            self._counters = counters

    # ---- the lock ------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def locked(self) -> Iterator[bool]:
        """Hold the write lock. Yield True if the previous holder died while it held the lock. May be nested.

        Milvus has no compare-and-swap. Therefore a process first announces in a row of its own that it wants the lock,
        and writes the lock when no other process wants it (see `_outlast_others`).
        """
        holder_died = self._acquire() if not self._depth else False
        self._depth += 1
        ended = threading.Event()
        if self._depth == 1:
            threading.Thread(target=self._renew_regularly, args=[ended], name="lock renewal", daemon=True).start()
        try:
            yield holder_died
        finally:
            ended.set()
            self._depth -= 1
            if not self._depth:
                self._snapshot = self._counters = self._lost = None
                self._release()

    def _renew_regularly(self, ended: threading.Event) -> None:
        """Renew the lock in the background. If the lock is lost, the next write fails."""
        while not ended.wait(LEASE_SECONDS / 6):
            try:
                self.renew()
            except Locked as error:
                self._lost = error
                return
            except RetrieverError:  # the server may be back at the next attempt
                continue

    def _acquire(self) -> bool:
        holder = self._holder()
        self._refuse_if_held(holder)
        self._token = uuid.uuid4().hex
        try:
            self._announce()
            self._outlast_others()
            # Another process may have held the lock and released it since the first look.
            holder = self._holder()
            self._refuse_if_held(holder)
            self._write_lock()
            snapshot, self._counters = self.read(), self.counters()
        except BaseException:
            self._release()
            raise
        finally:
            self._withdraw()
        self._snapshot = snapshot
        return holder is not None

    def _refuse_if_held(self, holder: dict[str, Any] | None) -> None:
        if holder and holder["until"] > time.time() and not self._is_dead(holder):
            raise self._held_by(holder)

    def _announce(self) -> None:
        """Write that this process wants the lock, in a row of its own, which no other process replaces."""
        self.client.put(self.records.table, [row(CANDIDATE + self._token, json.dumps(self._claim()))])

    def _withdraw(self) -> None:
        with contextlib.suppress(RetrieverError):  # if the server is gone, the announcement expires
            self.client.delete(self.records.table, in_list("key", [CANDIDATE + self._token]))

    def _outlast_others(self) -> None:
        """Return when no other process wants the lock. Raise `Locked` if another one has precedence.

        Of two processes that both announce and then look, at least one sees the other, whatever time passes between
        the two steps, because every read sees all earlier writes. So no two get the lock at the same moment. If both
        see each other, the one with the larger token gives way, and the other waits until it has.
        """
        deadline = time.monotonic() + CANDIDATE_SECONDS
        while others := self._candidates():
            smallest = min(others, key=lambda other: str(other["token"]))
            if smallest["token"] < self._token or time.monotonic() > deadline:
                raise self._held_by(smallest)
            time.sleep(WAIT_SECONDS)

    def _candidates(self) -> list[dict[str, Any]]:
        """Return the other processes that want the lock, without those that died."""
        rows = self.client.select(self.records.table, f'key like "{CANDIDATE}%"', ["key", "value"])
        found = [dict(json.loads(row["value"])) for row in rows]
        return [
            one
            for one in found
            if one["token"] != self._token and one["until"] > time.time() and not self._is_dead(one)
        ]

    def _release(self) -> None:
        """Delete the lock, unless another process holds it."""
        with contextlib.suppress(RetrieverError):  # if the server is gone, the lock expires
            if (holder := self._holder()) and holder["token"] == self._token:
                self.records.delete([LOCK])

    def _holder(self) -> dict[str, Any] | None:
        text = self.records.read(LOCK)
        return dict(json.loads(text)) if text else None

    @staticmethod
    def _is_dead(holder: dict[str, Any]) -> bool:
        """Return whether the holder ran on this machine and its process has ended."""
        if holder["host"] != socket.gethostname() or holder["pid"] == os.getpid():
            return False
        try:
            os.kill(holder["pid"], 0)
        except OSError as error:
            return isinstance(error, ProcessLookupError)
        return False

    def renew(self) -> None:
        """Extend the lock. Raise `Locked` if it expired and another process took it.

        That process may have changed the collection and released the lock, so the state in memory may be outdated.
        """
        with self._mutex:
            if self._lost:
                raise self._lost
            if self._depth and time.monotonic() - self._renewed > RENEW_SECONDS:
                self._check_holder()
                self._write_lock()

    def _check_holder(self) -> None:
        holder = self._holder()
        if holder is None:
            raise Locked(
                f"{self.client.address} was written to by another process, because this one did not renew its lock for "
                f"{LEASE_SECONDS:.0f} seconds; run the same command again to continue from what is stored."
            )
        if holder["token"] != self._token:
            raise self._held_by(holder)

    def _claim(self) -> dict[str, Any]:
        return {
            "token": self._token,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
            "until": time.time() + LEASE_SECONDS,
        }

    def _write_lock(self) -> None:
        self.records.write(LOCK, json.dumps(self._claim()))
        self._renewed = time.monotonic()

    def _held_by(self, holder: dict[str, Any]) -> Locked:
        return Locked(
            f"process {holder['pid']} on {holder['host']} has been writing to {self.client.address} since "
            f"{holder['since']}; try again when it is done. If it died, its lock expires after {LEASE_SECONDS:.0f} "
            "seconds."
        )


def no_collection(client: Client) -> NotACollection:
    return NotACollection(
        f"{client.address} holds no collection; make one with: retriever index SOURCE --index {client.address}"
    )
