"""The workers of a Ray cluster, and the calls sent to them.

The pool requests as many workers as the cluster has room for. A worker starts to work as soon as its encoder is loaded.
If a worker dies, alone or with its node, its call is sent to another worker, and a new worker is requested. A worker
gets its next call only after the result of its last call has arrived. Otherwise, a worker that is cut off from the
cluster would start a call that is also sent to another worker. A call gives the same result on every worker, so the
death of a worker does not change the results.
"""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from retriever.errors import RetrieverError, first_line
from retriever.ingest.engines.ray.cluster import STORED, Cluster, ClusterLost
from retriever.ingest.engines.ray.worker import EncoderSpec, Worker

# A worker may have to download or export its encoder first.
NO_WORKER_SECONDS = 300
# A call is not sent again after this many workers have died during it.
MAX_DEATHS = 3
WAIT_SECONDS = 1.0


@dataclass(eq=False)
class Call:
    """A call of a method of a worker. `number` is the position of its result."""

    number: int
    method: str
    arguments: tuple[Any, ...]
    deaths: int = 0


@dataclass(eq=False)
class Member:
    """A requested worker. `host` is empty until the worker is ready."""

    handle: Any
    preparing: Any
    host: str = ""
    call: Call | None = None
    """The call that the worker is working on."""
    result: Any = None
    """Ray's reference to the result of that call."""

    @property
    def free(self) -> bool:
        return bool(self.host) and self.call is None


class Pool:
    """All workers of a run."""

    def __init__(self, cluster: Cluster, spec: EncoderSpec | None, count: int, resources: dict[str, float]) -> None:
        self.count = count
        self.resent = 0
        """The number of calls that were sent again because their worker died."""
        self.lost: list[str] = []
        """The hosts of workers that died."""
        self.notes: list[str] = []
        self._cluster, self._ray = cluster, cluster.ray
        self._resources = resources
        self._spec = spec
        self._actor = self._ray.remote(max_restarts=0, max_task_retries=0, **resources)(Worker)
        self._queue: deque[Call] = deque()
        self._failed_starts = 0
        self._no_worker_since = time.monotonic()
        self._members = [self._request_worker() for _ in range(count)]

    def _request_worker(self) -> Member:
        try:
            handle = self._actor.remote()
            return Member(handle, handle.prepare.remote(self._spec))
        except ImportError as error:  # with ray://, the cluster unpickles the worker class immediately
            raise RetrieverError(
                f"a package that the workers need is not installed on the Ray cluster ({first_line(error)}). Install "
                f"this version of flow-retriever on all of its nodes. {STORED}"
            ) from error
        except ConnectionError as error:
            raise ClusterLost(first_line(error)) from error

    def room(self) -> int:
        """Return how many more calls would start immediately."""
        return max(0, sum(member.free for member in self._members) - len(self._queue))

    def send(self, call: Call) -> None:
        """Queue a call for a free worker."""
        self._queue.append(call)
        self._dispatch()

    def _dispatch(self) -> None:
        for member in self._members:
            if self._queue and member.free:
                call = self._queue.popleft()
                member.result = getattr(member.handle, call.method).remote(*call.arguments)
                member.call = call

    def wait(self) -> list[tuple[Call, Any]]:
        """Wait up to WAIT_SECONDS, and return the finished calls with their results."""
        self._cluster.check()
        references = {member.preparing: member for member in self._members if not member.host}
        references |= {member.result: member for member in self._members if member.call}
        done: list[tuple[Call, Any]] = []
        for reference in self._ready(list(references)):
            member = references[reference]
            try:
                result = self._ray.get(reference)
            except Exception as error:
                self._handle_death(member, error)
                continue
            if isinstance(result, RetrieverError):
                raise result
            if member.call is None:
                member.host, note = result
                self._failed_starts = 0
                self.notes += [note] if note and note not in self.notes else []
            else:
                done.append((member.call, result))
                member.call = member.result = None
        self._dispatch()
        self._refuse_to_wait_forever()
        return done

    def _ready(self, references: list[Any]) -> list[Any]:
        try:
            first, rest = self._ray.wait(references, num_returns=1, timeout=WAIT_SECONDS)
            more, _ = self._ray.wait(rest, num_returns=len(rest), timeout=0) if first and rest else ([], [])
        except Exception as error:  # the connection to the cluster failed
            raise ClusterLost(first_line(error)) from error
        return [*first, *more]

    def _handle_death(self, member: Member, error: Exception) -> None:
        """Replace a dead worker and queue its call again; raise any other error."""
        exceptions = self._ray.exceptions
        if isinstance(error, exceptions.LocalRayletDiedError | exceptions.RaySystemError):
            raise ClusterLost(first_line(error)) from error
        if isinstance(error, exceptions.RayTaskError) or not isinstance(error, exceptions.RayError):
            raise RetrieverError(f"a worker of the Ray cluster failed: {_reason(error)}. {STORED}") from error
        self._cluster.wait_for_head()  # while the head node is gone, all workers look dead
        self._members.remove(member)
        if call := member.call:
            call.deaths += 1
            if call.deaths >= MAX_DEATHS:
                raise RetrieverError(
                    f"{MAX_DEATHS} workers of the Ray cluster died while they worked on the same batch, perhaps "
                    f"because they ran out of memory: {_reason(error)}. Use a smaller `batch_tokens`. {STORED}"
                ) from error
            self._queue.appendleft(call)
            self.resent += 1
        if member.host:
            self.lost.append(member.host)
        else:
            self._failed_starts += 1
            if self._failed_starts > self.count + MAX_DEATHS:
                raise RetrieverError(
                    f"no worker of the Ray cluster can be started: {_reason(error)}. Install this version of "
                    f"flow-retriever and its dependencies on all nodes. {STORED}"
                ) from error
        self._cluster.kill(member.handle)  # the worker may be alive but unreachable, and must not come back
        self._members.append(self._request_worker())

    def _refuse_to_wait_forever(self) -> None:
        now = time.monotonic()
        if any(member.host for member in self._members):
            self._no_worker_since = now
        elif now - self._no_worker_since > NO_WORKER_SECONDS:
            try:
                resources = self._cluster.resources()
            except Exception as error:
                raise ClusterLost(first_line(error)) from error
            existing = {name: resources[name] for name in ("CPU", "GPU", "memory") if name in resources}
            raise RetrieverError(
                f"no worker of the Ray cluster was ready within {NO_WORKER_SECONDS} s. {self.count} were requested "
                f"with {self._resources} each, and the cluster has {existing}. Perhaps other jobs are using it, or "
                f"its nodes are gone (see: ray status). {STORED}"
            )

    def close(self) -> None:
        for member in self._members:
            self._cluster.kill(member.handle)


def _reason(error: BaseException) -> str:
    """Return the cause of a Ray error in one line, without the remote stack trace."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, BaseException):
        return f"{type(cause).__name__}: {first_line(cause)}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return (lines[-1] if ":" in lines[-1] else lines[0])[:400]


class OrderedCalls:
    """Calls of one method of the workers, with results in the order of the arguments.

    The arguments of a call are read only when a worker is free.
    """

    def __init__(self, pool: Pool, method: str, arguments: Iterator[tuple[Any, ...]], max_waiting: int) -> None:
        """Prepare the calls. `max_waiting` is the maximum number of calls whose results are not returned yet."""
        self._pool, self._method = pool, method
        self._arguments = enumerate(arguments)
        self._max_waiting = max_waiting
        self._sent: set[Call] = set()
        self._waiting: dict[int, Any] = {}
        self._returned = self._read = 0
        self._stopped = False
        self._error: Exception | None = None

    def stop(self) -> None:
        """Read no more arguments."""
        self._stopped = True

    def next_results(self) -> list[Any]:
        """Wait for at least one result, and return the next results in order. Return an empty list at the end."""
        if self._error:
            raise self._error
        found: list[Any] = []
        while not found:
            self._fill()
            if self._returned == self._read:
                break
            for call, result in self._pool.wait():
                if call in self._sent:  # otherwise the call belongs to another OrderedCalls that was stopped
                    self._sent.remove(call)
                    self._waiting[call.number] = result
            while self._returned in self._waiting:
                found.append(self._waiting.pop(self._returned))
                self._returned += 1
        try:
            self._fill()  # keep the workers busy while the caller uses these results
        except Exception as error:  # the next call raises it, so that the caller gets these results first
            self._error = error
        return found

    def _fill(self) -> None:
        # The first call is sent even if no worker is ready, so that `wait` waits for one.
        while not self._stopped and self._read - self._returned < self._max_waiting:
            if self._read > self._returned and not self._pool.room():
                return
            number, arguments = next(self._arguments, (-1, ()))
            if number < 0:
                self._stopped = True
                return
            self._read += 1
            call = Call(number, self._method, arguments)
            self._sent.add(call)
            self._pool.send(call)
