"""What a collection in Milvus is set to and which index is published, as one record: both change together."""

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from indexes.errors import Locked, NotACollection, RetrieverError
from indexes.milvus.client import Client
from indexes.milvus.records import Records

FORMAT = 1
STATE, COUNTERS, LOCK = "state", "counters", "lock"
# A lock that was not renewed for so long is nobody's: its holder has died, or lost its connection.
LEASE_SECONDS = 120.0
RENEWED_AFTER = 20.0
KEPT_EVERY = 20.0
SETTLING_SECONDS = 0.3

Sealed = Sequence[tuple[int, str]]
"""Documents by number and seal."""


@dataclass(frozen=True)
class Read:
    """The state as it was read."""

    settings: dict[str, Any] = field(default_factory=dict)
    generation: dict[str, Any] | None = None
    """Number, name and the manifest with its hash."""
    last_generation: int = 0

    @property
    def published(self) -> tuple[int, str, str] | None:
        found = self.generation
        return None if found is None else (int(found["number"]), str(found["name"]), str(found["sha256"]))


class State:
    """The record, and the lock of the one who may change it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.records = Records(client, f"{client.address.name}_settings")
        self._own: Read | None = None
        self._counters: dict[str, Any] | None = None
        self._counting = threading.RLock()
        self._token = ""
        self._renewed = 0.0
        self._lost: Locked | None = None
        self._depth = 0

    # ---- reading and changing ------------------------------------------------------------------------------

    def read(self) -> Read:
        """The state; who holds the lock knows it."""
        if self._own is not None:
            return self._own
        text = self.records.read(STATE)
        if text is None:
            raise NotACollection(
                f"{self.client.address} holds no collection; make one with: "
                f"retriever index SOURCE --store {self.client.address}"
            )
        told = json.loads(text)
        if told.get("format") != FORMAT:
            raise NotACollection(
                f"{self.client.address} was made by another version of retriever (its format is "
                f"{told.get('format')}, this one reads {FORMAT}); upgrade with: pip install --upgrade flow-retriever"
            )
        return Read(told["settings"], told["generation"], told["last_generation"])

    def change(self, *, settings: dict[str, Any] | None = None, **changes: Any) -> None:
        """Change some settings, and the published generation, at once."""
        before = self._own or (self.read() if self.records.read(STATE) else Read())
        after = replace(before, settings={**before.settings, **(settings or {})}, **changes)
        told = {
            "format": FORMAT,
            "settings": after.settings,
            "generation": after.generation,
            "last_generation": after.last_generation,
        }
        self.records.write(STATE, json.dumps(told, sort_keys=True, ensure_ascii=False))
        if self._own is not None:
            self._own = after

    @property
    def dimension(self) -> int:
        return int(self.read().settings["encoder"]["dimension"])

    # ---- numbers -------------------------------------------------------------------------------------------

    def counters(self) -> dict[str, Any]:
        """The last vector and document number given out, how often documents have changed, and which ones last."""
        if self._counters is not None:
            return self._counters
        text = self.records.read(COUNTERS)
        return {"vector": 0, "document": 0, "changes": 0, "unsettled": [], **(json.loads(text) if text else {})}

    def take_numbers(self, kind: str, count: int, changes: int = 0, unsettled: Sealed = ()) -> int:
        """The first of so many numbers that nobody has yet; vectors and documents are stored by two threads.

        `unsettled` are documents with seals that they had or shall have, of which a writer that dies would leave rows
        behind.
        """
        with self._counting:
            self.renew()
            counters = dict(self.counters())
            first = int(counters[kind]) + 1
            if count or changes:
                counters[kind] += count
                counters["changes"] += changes
                if unsettled:
                    counters["unsettled"] = [list(one) for one in unsettled]
                self.set_counters(counters)
            return first

    def set_counters(self, counters: dict[str, Any]) -> None:
        self.records.write(COUNTERS, json.dumps(counters))
        if self._own is not None:
            self._counters = counters

    # ---- the lock ------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def locked(self) -> Iterator[bool]:
        """Be the one who writes; tells whether the one before died while it wrote. May be nested.

        Milvus has no way to write only if nobody else did: the lock is written, and after a moment read again. Of two
        that begin in the same moment the later one has it.
        """
        left = self._take() if not self._depth else False
        self._depth += 1
        ended = threading.Event()
        if self._depth == 1:
            threading.Thread(target=self._keep, args=[ended], name="keeping the lock", daemon=True).start()
        try:
            yield left
        finally:
            ended.set()
            self._depth -= 1
            if not self._depth:
                self._own = self._counters = self._lost = None
                self._give_back()

    def _keep(self, ended: threading.Event) -> None:
        """Renew the lock while somebody holds it, whatever that one is busy with; the next write refuses where it was
        lost."""
        while not ended.wait(KEPT_EVERY):
            try:
                self.renew()
            except Locked as error:
                self._lost = error
                return
            except RetrieverError:  # a server that is away for a moment
                continue

    def _take(self) -> bool:
        if other := self._holder():
            raise self._locked(other)
        left = self._told() is not None
        self._token = uuid.uuid4().hex
        self._write_lock()
        try:
            time.sleep(SETTLING_SECONDS)
            self._refuse_if_lost()
            own, self._counters = self.read(), self.counters()
        except BaseException:
            self._give_back()
            raise
        self._own = own
        return left

    def _give_back(self) -> None:
        """Let others write; a lock that another took meanwhile is left to it."""
        with contextlib.suppress(RetrieverError):  # of a server that is gone; the lock runs out
            if (told := self._told()) and told["token"] == self._token:
                self.records.delete([LOCK])

    def _holder(self) -> dict[str, Any] | None:
        told = self._told()
        return told if told and told["until"] > time.time() and not self._is_dead(told) else None

    def _told(self) -> dict[str, Any] | None:
        text = self.records.read(LOCK)
        return dict(json.loads(text)) if text else None

    @staticmethod
    def _is_dead(told: dict[str, Any]) -> bool:
        """Whether the process that holds it was on this machine and is no more."""
        if told["host"] != socket.gethostname() or told["pid"] == os.getpid():
            return False
        try:
            os.kill(told["pid"], 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return False

    def renew(self) -> None:
        """Keep the lock while it is held; refused where it ran out and another took it, and perhaps is done with it:
        what this one knows of the collection no longer holds."""
        with self._counting:
            if self._lost:
                raise self._lost
            if self._depth and time.monotonic() - self._renewed > RENEWED_AFTER:
                self._refuse_if_lost()
                self._write_lock()

    def _refuse_if_lost(self) -> None:
        told = self._told()
        if told is None:
            raise Locked(
                f"{self.client.address} was written to by another process, because this one was not heard of for "
                f"{LEASE_SECONDS:.0f} seconds; run the same command again, it goes on from what is stored."
            )
        if told["token"] != self._token:
            raise self._locked(told)

    def _write_lock(self) -> None:
        told = {
            "token": self._token,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
            "until": time.time() + LEASE_SECONDS,
        }
        self.records.write(LOCK, json.dumps(told))
        self._renewed = time.monotonic()

    def _locked(self, other: dict[str, Any]) -> Locked:
        return Locked(
            f"{self.client.address} is being written to by process {other['pid']} on {other['host']} since "
            f"{other['since']}; try again when it is done. One that died is waited for {LEASE_SECONDS:.0f} seconds."
        )
