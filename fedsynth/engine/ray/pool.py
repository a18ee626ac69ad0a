"""Long-lived Ray actors and the fair, bounded queue before them.

A worker runs one call at a time. Answers of parties go to the worker that has their data cached;
functions of the server go to any free worker and never take the last worker from a running job.
A worker that dies is replaced and its call repeated: a party's state is on disk, so the same
request gives the same answer. A worker that hangs is killed and replaced.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError

from fedsynth.core.errors import UserError
from fedsynth.engine.messages import PartyLost, PartyTimeout

MAX_DEATHS = 3
START_SECONDS = 120.0
_WATCH_SECONDS = 5.0


class EngineClosed(Exception):
    """The engine was closed while this work was waiting."""


class BatchDied(Exception):
    """The worker died during a batch of several parties; ask them one by one."""


@dataclass(eq=False)
class PendingCall:
    """One call of a worker's method: answers of some parties, or (no parties) a function."""

    method: str
    arguments: tuple[Any, ...]
    parties: tuple[int, ...] = ()
    preferred: int = -1  # index of the worker that has the parties' data cached
    sticky: bool = False  # run on the preferred worker only
    deaths: int = 0
    result: concurrent.futures.Future[Any] = field(default_factory=concurrent.futures.Future)
    started_at: float = 0.0  # of the party being answered, as far as known


@dataclass(eq=False)
class ActorHandle:
    """One actor, and its state as far as the driver has been notified."""

    index: int
    actor: Any = None
    incarnation: int = 0  # events of earlier actors are ignored
    ready_at: float | None = None
    call: PendingCall | None = None
    ran_function: bool = False
    failed_starts: int = 0


class RayPool:
    """Runs calls on `size` actors made by `spawn`; `timeout` seconds for each party's answer."""

    def __init__(self, size: int, spawn: Callable[[], Any], timeout: float) -> None:
        self.size = size
        self._spawn = spawn
        self._timeout = timeout
        self._lock = threading.RLock()
        self._events: queue.SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]] | None] = (
            queue.SimpleQueue()
        )
        self._answers: collections.deque[PendingCall] = collections.deque()
        self._functions: collections.deque[PendingCall] = collections.deque()
        self._running_jobs = 0
        self._end: Exception | None = None
        self._workers = [ActorHandle(index) for index in range(size)]
        for worker in self._workers:
            self._start(worker)
        self._reader = threading.Thread(target=self._read_events, name="fedsynth-pool", daemon=True)
        self._reader.start()

    @contextlib.contextmanager
    def running_job(self) -> Iterator[None]:
        """While a job runs, functions leave at least one worker (of two or more) to its parties."""
        with self._lock:
            self._running_jobs += 1
        try:
            yield
        finally:
            with self._lock:
                self._running_jobs -= 1
                self._assign()

    def enqueue(self, calls: Iterable[PendingCall]) -> None:
        """Queue calls; each is handed to a worker in its turn."""
        with self._lock:
            if self._end is not None:
                raise self._end
            for call in calls:
                (self._answers if call.parties else self._functions).append(call)
            self._assign()

    def cancel(self, calls: Iterable[PendingCall]) -> None:
        """Take abandoned calls out of the queue."""
        with self._lock:
            for call in calls:
                if call in self._answers:
                    self._answers.remove(call)

    def check_deadline(self, call: PendingCall) -> float:
        """Return the seconds until this call should be checked again.

        A call that hangs is ended here with `PartyTimeout`, which names the party, and its worker
        is killed and replaced."""
        with self._lock:
            worker = next((w for w in self._workers if w.call is call), None)
            if worker is None:
                return 1.0
            incarnation, actor = worker.incarnation, worker.actor
            if worker.ready_at is None:
                if time.monotonic() - call.started_at > START_SECONDS:
                    raise UserError(f"no worker could start within {START_SECONDS:.0f} s")
                return 1.0
            left = max(call.started_at, worker.ready_at) + self._timeout - time.monotonic()
        if left > 0:
            return min(left, 1.0)
        position = 0
        try:
            position, seconds = ray.get(actor.progress.remote(), timeout=_WATCH_SECONDS)
            if seconds < self._timeout:
                call.started_at = time.monotonic() - seconds
                return 0.01
        except GetTimeoutError:
            pass  # its interpreter is blocked, so it hangs
        except RayActorError:
            return 0.1
        with self._lock:
            if worker.call is call and worker.incarnation == incarnation:
                worker.call = None
                self._restart(worker)
                call.result.set_exception(
                    PartyTimeout(
                        f"party {call.parties[position]} did not answer within "
                        f"timeout={self._timeout:g} s; its worker was stopped",
                        call.parties[position],
                    )
                )
                self._assign()
        return 0.01

    def close(self) -> None:
        """End all calls with `EngineClosed` and stop listening. Actors keep running."""
        self._give_up(EngineClosed("the engine was closed"))
        self._events.put(None)
        self._reader.join(timeout=1.0)

    def kill_workers(self) -> None:
        """Kill every actor, for clusters that outlive this process."""
        for worker in self._workers:
            ray.kill(worker.actor)

    def _give_up(self, error: Exception) -> None:
        with self._lock:
            self._end = error
            running = [worker.call for worker in self._workers if worker.call is not None]
            for call in (*self._answers, *self._functions, *running):
                if not call.result.done():
                    call.result.set_exception(error)
            self._answers.clear()
            self._functions.clear()

    # Events of actors arrive on Ray's own threads, which must not wait for a lock: they are queued.

    def _start(self, worker: ActorHandle) -> None:
        worker.incarnation += 1
        worker.ready_at = None
        worker.actor = self._spawn()
        self._listen(worker.actor.progress.remote(), self._on_ready, worker, worker.incarnation)

    def _restart(self, worker: ActorHandle) -> None:
        ray.kill(worker.actor)
        self._start(worker)

    def _listen(self, ref: Any, react: Callable[..., None], *details: Any) -> None:
        def arrived(future: concurrent.futures.Future[Any]) -> None:
            self._events.put((react, (*details, future)))

        ref.future().add_done_callback(arrived)

    def _read_events(self) -> None:
        while (event := self._events.get()) is not None:
            react, details = event
            with self._lock:
                if self._end is None:
                    react(*details)
                    self._assign()

    def _on_ready(
        self, worker: ActorHandle, incarnation: int, future: concurrent.futures.Future[Any]
    ) -> None:
        if worker.incarnation != incarnation:
            return
        error = future.exception()
        if error is None:
            worker.ready_at = time.monotonic()
            worker.failed_starts = 0
        elif isinstance(error, RayActorError):
            self._on_death(worker, error)
        else:
            self._give_up(RuntimeError(f"the workers cannot start: {error}"))

    def _on_done(
        self,
        worker: ActorHandle,
        incarnation: int,
        call: PendingCall,
        future: concurrent.futures.Future[Any],
    ) -> None:
        if worker.incarnation != incarnation or worker.call is not call:
            return
        error = future.exception()
        if isinstance(error, RayActorError):
            self._on_death(worker, error)
            return
        if error is not None and worker.ready_at is None:
            self._on_ready(
                worker, incarnation, future
            )  # it failed to start, and this event came first
            return
        worker.call = None
        if error is None:
            call.result.set_result(future.result())
        else:
            call.result.set_exception(error)

    def _on_death(self, worker: ActorHandle, error: BaseException) -> None:
        if worker.ready_at is None:
            worker.failed_starts += 1
            if worker.failed_starts >= MAX_DEATHS:
                self._give_up(RuntimeError(f"the workers cannot start: {error}"))
                return
        call, worker.call = worker.call, None
        self._restart(worker)
        if call is None:
            return
        call.deaths += 1
        if len(call.parties) > 1:
            call.result.set_exception(BatchDied())
        elif call.deaths < MAX_DEATHS:
            (self._answers if call.parties else self._functions).appendleft(call)
        else:
            subject = f"party {call.parties[0]}" if call.parties else "a function of the server"
            call.result.set_exception(
                PartyLost(
                    f"the worker of {subject} died {MAX_DEATHS} times on the same request; "
                    "if the system killed it for memory, use fewer workers",
                    call.parties[0] if call.parties else -1,
                )
            )

    # Scheduling: `_assign` is called with the lock held.

    def _assign(self) -> None:
        if self._end is not None:
            return
        for worker in sorted(self._workers, key=lambda w: w.ready_at is None):
            if worker.call is None and (call := self._next_call(worker)) is not None:
                self._hand_over(worker, call)

    def _hand_over(self, worker: ActorHandle, call: PendingCall) -> None:
        worker.call = call
        worker.ran_function = not call.parties
        call.started_at = time.monotonic()
        ref = getattr(worker.actor, call.method).remote(*call.arguments)
        self._listen(ref, self._on_done, worker, worker.incarnation, call)

    def _next_call(self, worker: ActorHandle) -> PendingCall | None:
        """Answers and functions take turns where both wait, so that neither starves."""
        answer = next((call for call in self._answers if call.preferred == worker.index), None)
        if answer is None and worker.ready_at is not None:
            answer = next((call for call in self._answers if self._may_move(call)), None)
        running = sum(w.call is not None and not w.call.parties for w in self._workers)
        limit = self.size if self._running_jobs == 0 else max(1, self.size - 1)
        if self._functions and running < limit and (answer is None or not worker.ran_function):
            return self._functions.popleft()
        if answer is not None:
            self._answers.remove(answer)
        return answer

    def _may_move(self, call: PendingCall) -> bool:
        """A single answer may leave a busy worker; a batch only one that runs a function."""
        worker = self._workers[call.preferred]
        if call.sticky or (worker.call is None and worker.ready_at is not None):
            return False
        return len(call.parties) == 1 or (worker.call is not None and not worker.call.parties)
