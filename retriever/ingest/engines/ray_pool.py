"""Workers on the nodes of a cluster, and calls on their way to them.

As many workers are asked for as the cluster has room for; each works as soon as it has its encoder. One that dies,
alone or with its node, is replaced as soon as there is room again, and what it had in hand is given to the others
first. A worker has one call in hand and is given the next when its result is here: with a second one waiting at its
door it would begin that one too before it notices that it is cut off. Every call does the same wherever and however
often it is made, so the results are those of a run in which nobody died.
"""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from retriever.errors import RetrieverError, first_line
from retriever.ingest.engines.ray_cluster import STAYS, Cluster, ClusterLost
from retriever.ingest.engines.ray_worker import EncoderSpec, Worker

# A worker may have to download or export its encoder first.
NO_WORKER_SECONDS = 300
# A batch that so many workers died of is not given to another.
MOST_DEATHS = 3
LOOK_SECONDS = 1.0


@dataclass(eq=False)
class Call:
    """Something to be done by a worker, and by which method; `number` says in which order results are wanted."""

    number: int
    method: str
    arguments: tuple[Any, ...]
    deaths: int = 0


@dataclass(eq=False)
class Member:
    """A worker that was asked for; it may be told things once it is ready."""

    handle: Any
    preparing: Any
    host: str = ""
    call: Call | None = None
    """What it has in hand."""
    result: Any = None
    """Ray's reference to what will come of that."""

    @property
    def free(self) -> bool:
        return bool(self.host) and self.call is None


class Pool:
    """The workers of a run."""

    def __init__(self, cluster: Cluster, spec: EncoderSpec | None, count: int, resources: dict[str, float]) -> None:
        self.count = count
        self.sent_again = 0
        """Calls that a dead worker had in hand."""
        self.lost: list[str] = []
        """The hosts of workers that died."""
        self.notes: list[str] = []
        self._cluster, self._ray = cluster, cluster.ray
        self._resources = resources
        self._spec = spec
        self._actor = self._ray.remote(max_restarts=0, max_task_retries=0, **resources)(Worker)
        self._again: deque[Call] = deque()
        self._failed_starts = 0
        self._without_since = time.monotonic()
        self._members = [self._asked_for() for _ in range(count)]

    def _asked_for(self) -> Member:
        try:
            handle = self._actor.remote()
            return Member(handle, handle.prepare.remote(self._spec))
        except ImportError as error:  # by ray://, where the cluster looks at once at what it is sent
            raise RetrieverError(
                f"the Ray cluster lacks what its workers run ({first_line(error)}): install this version of "
                f"flow-retriever on all of its nodes. {STAYS}"
            ) from error
        except ConnectionError as error:
            raise ClusterLost(first_line(error)) from error

    # ---- giving and taking -------------------------------------------------------------------------------

    def room(self) -> int:
        """How many further calls would be taken at once."""
        return max(0, sum(member.free for member in self._members) - len(self._again))

    def give(self, call: Call) -> None:
        """Have a worker do it; what has fallen back to here goes first."""
        self._again.append(call)
        self._hand_out()

    def _hand_out(self) -> None:
        for member in self._members:
            if self._again and member.free:
                call = self._again.popleft()
                member.result = getattr(member.handle, call.method).remote(*call.arguments)
                member.call = call

    def wait(self) -> list[tuple[Call, Any]]:
        """What was done within a moment, with its results; raises what went wrong for good."""
        self._cluster.check()
        references = {member.preparing: member for member in self._members if not member.host}
        references |= {member.result: member for member in self._members if member.call}
        done: list[tuple[Call, Any]] = []
        for reference in self._ready(list(references)):
            member = references[reference]
            try:
                result = self._ray.get(reference)
            except Exception as error:
                self._died(member, error)
                continue
            if isinstance(result, RetrieverError):
                raise result
            if member.call is None:
                self._has_come(member, result)
            else:
                done.append((member.call, result))
                member.call = member.result = None
        self._hand_out()
        self._refuse_to_wait_forever()
        return done

    def _ready(self, references: list[Any]) -> list[Any]:
        try:
            some, rest = self._ray.wait(references, num_returns=1, timeout=LOOK_SECONDS)
            more, _ = self._ray.wait(rest, num_returns=len(rest), timeout=0) if some and rest else ([], [])
        except Exception as error:  # what stands between this process and the cluster
            raise ClusterLost(first_line(error)) from error
        return [*some, *more]

    # ---- who comes and goes ------------------------------------------------------------------------------

    def _has_come(self, member: Member, facts: dict[str, Any]) -> None:
        member.host = facts["host"]
        self._failed_starts = 0
        if facts["note"] and facts["note"] not in self.notes:
            self.notes.append(facts["note"])

    def _died(self, member: Member, error: Exception) -> None:
        """Replace a worker, and take back what it had in hand; raise what is no death."""
        exceptions = self._ray.exceptions
        if isinstance(error, exceptions.LocalRayletDiedError | exceptions.RaySystemError):
            raise ClusterLost(first_line(error)) from error
        if isinstance(error, exceptions.RayTaskError) or not isinstance(error, exceptions.RayError):
            raise RetrieverError(
                f"a worker of the Ray cluster failed: {_reason(error)}. {STAYS}"
            ) from error  # a fault of ours, or of its machine
        self._cluster.wait_for_head()  # else all have died
        self._members.remove(member)
        if call := member.call:
            call.deaths += 1
            if call.deaths >= MOST_DEATHS:
                raise RetrieverError(
                    f"{MOST_DEATHS} workers of the Ray cluster died of the same batch, perhaps for want of memory: "
                    f"{_reason(error)}. Use a smaller `batch_tokens`. {STAYS}"
                ) from error
            self._again.appendleft(call)
            self.sent_again += 1
        if member.host:
            self.lost.append(member.host)
        else:
            self._failed_starts += 1
            if self._failed_starts > self.count + MOST_DEATHS:
                raise RetrieverError(
                    f"no worker of the Ray cluster can be started: {_reason(error)}. Its nodes need this version of "
                    f"flow-retriever and what it needs. {STAYS}"
                ) from error
        self._cluster.kill(member.handle)  # one that is only out of reach must not come back
        self._members.append(self._asked_for())

    def _refuse_to_wait_forever(self) -> None:
        now = time.monotonic()
        if any(member.host for member in self._members):
            self._without_since = now
        elif now - self._without_since > NO_WORKER_SECONDS:
            try:
                there = {name: n for name, n in self._cluster.resources().items() if name in ("CPU", "GPU", "memory")}
            except Exception as error:
                raise ClusterLost(first_line(error)) from error
            raise RetrieverError(
                f"no worker of the Ray cluster was ready within {NO_WORKER_SECONDS} s; {self.count} were asked for "
                f"with {self._resources} each, and the cluster has {there}. Others may use it, or its nodes are gone "
                f"(ray status tells). {STAYS}"
            )

    def close(self) -> None:
        """Let the workers go."""
        for member in self._members:
            self._cluster.kill(member.handle)


def _reason(error: BaseException) -> str:
    """What Ray says of it: the line that tells, without the stack of the other process."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    cause = getattr(error, "cause", None)
    if isinstance(cause, BaseException):
        return f"{type(cause).__name__}: {first_line(cause)}"
    return (lines[-1] if len(lines) > 1 and ":" in lines[-1] else lines[0] if lines else type(error).__name__)[:400]


class InOrder:
    """The results of calls in the order of their arguments, which are taken only as workers have room for them."""

    def __init__(self, pool: Pool, method: str, arguments: Iterator[tuple[Any, ...]], most_waiting: int) -> None:
        """`most_waiting`: so many results may wait for one that is late."""
        self._pool, self._method = pool, method
        self._arguments = enumerate(arguments)
        self._most_waiting = most_waiting
        self._sent: set[Call] = set()
        self._waiting: dict[int, Any] = {}
        self._given = self._taken = 0
        self._stopped = False
        self._failed: Exception | None = None

    def stop(self) -> None:
        """Take no further arguments."""
        self._stopped = True

    def some(self) -> list[Any]:
        """The results there are by now, in order, at least one, unless all have been given."""
        if self._failed:
            raise self._failed
        found: list[Any] = []
        while not found:
            self._fill()
            if self._given == self._taken:
                break
            for call, result in self._pool.wait():
                if call in self._sent:  # else of another, who left before its end
                    self._sent.remove(call)
                    self._waiting[call.number] = result
            while self._given in self._waiting:
                found.append(self._waiting.pop(self._given))
                self._given += 1
        try:
            self._fill()  # so that those who are free work while the caller does something with these
        except Exception as error:  # which is told when these are in the caller's hands
            self._failed = error
        return found

    def _fill(self) -> None:
        # The first goes out even where no worker is ready: then it is waited for one.
        while not self._stopped and self._taken - self._given < self._most_waiting:
            if self._taken > self._given and not self._pool.room():
                return
            number, arguments = next(self._arguments, (-1, ()))
            if number < 0:
                self._stopped = True
                return
            self._taken += 1
            call = Call(number, self._method, arguments)
            self._sent.add(call)
            self._pool.give(call)
