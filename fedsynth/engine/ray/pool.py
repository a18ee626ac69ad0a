"""Long-lived Ray actors and the fair, bounded queue before them.

A worker runs one call at a time. Answers of parties go to the worker that has their data cached;
jobs of the curator go where there is room and never take the last worker from a running
conversation. A worker that dies is replaced and its call is made again: a party's state lives on
disk, so the same request gives the same answer. A worker that hangs is killed and replaced.
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
class Call:
    """One call of a worker's method: answers of some parties, or (no parties) a job."""

    method: str
    arguments: tuple[Any, ...]
    parties: tuple[int, ...] = ()
    home: int = -1  # the worker that has the parties' data cached
    sticky: bool = False  # only ever there
    deaths: int = 0
    result: concurrent.futures.Future[Any] = field(default_factory=concurrent.futures.Future)
    since: float = 0.0  # when its current party was begun, as far as known


@dataclass(eq=False)
class Worker:
    """The driver's view of one actor."""

    index: int
    actor: Any = None
    life: int = 0  # counts incarnations: news of earlier ones is ignored
    ready_at: float | None = None
    call: Call | None = None
    did_job: bool = False
    failed_starts: int = 0


class RayPool:
    """Runs calls on `size` actors made by `spawn`; `timeout` seconds for each party's answer."""

    def __init__(self, size: int, spawn: Callable[[], Any], timeout: float) -> None:
        self.size = size
        self._spawn = spawn
        self._timeout = timeout
        self._lock = threading.RLock()
        self._news: queue.SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]] | None] = (
            queue.SimpleQueue()
        )
        self._answers: collections.deque[Call] = collections.deque()
        self._jobs: collections.deque[Call] = collections.deque()
        self._conversations = 0
        self._end: Exception | None = None
        self._workers = [Worker(index) for index in range(size)]
        for worker in self._workers:
            self._start(worker)
        self._reader = threading.Thread(target=self._read_news, name="fedsynth-pool", daemon=True)
        self._reader.start()

    @contextlib.contextmanager
    def conversation(self) -> Iterator[None]:
        """While a conversation runs, jobs leave it at least one worker (of two or more)."""
        with self._lock:
            self._conversations += 1
        try:
            yield
        finally:
            with self._lock:
                self._conversations -= 1
                self._assign()

    def enqueue(self, calls: Iterable[Call]) -> None:
        """Queue calls; each is handed to a worker as soon as its turn comes."""
        with self._lock:
            if self._end is not None:
                raise self._end
            for call in calls:
                (self._answers if call.parties else self._jobs).append(call)
            self._assign()

    def withdraw(self, calls: Iterable[Call]) -> None:
        """Take calls nobody waits for any more out of the queue."""
        with self._lock:
            for call in calls:
                if call in self._answers:
                    self._answers.remove(call)

    def watch(self, call: Call) -> float:
        """Seconds until this call should be looked at again; a call that hangs is ended here with
        `PartyTimeout`, which names the party, and its worker is killed and replaced."""
        with self._lock:
            worker = next((w for w in self._workers if w.call is call), None)
            if worker is None:
                return 1.0
            life, actor = worker.life, worker.actor
            if worker.ready_at is None:
                if time.monotonic() - call.since > START_SECONDS:
                    raise UserError(f"no worker could start within {START_SECONDS:.0f} s")
                return 1.0
            left = max(call.since, worker.ready_at) + self._timeout - time.monotonic()
        if left > 0:
            return min(left, 1.0)
        position = 0
        try:
            position, seconds = ray.get(actor.progress.remote(), timeout=_WATCH_SECONDS)
            if seconds < self._timeout:
                call.since = time.monotonic() - seconds
                return 0.01
        except GetTimeoutError:
            pass  # it holds the interpreter: as hung as can be
        except RayActorError:
            return 0.1
        with self._lock:
            if worker.call is call and worker.life == life:
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
        """End all calls with `EngineClosed` and stop listening. Actors are not touched."""
        self._give_up(EngineClosed("the engine was closed"))
        self._news.put(None)
        self._reader.join(timeout=1.0)

    def kill_workers(self) -> None:
        """Kill every actor: for clusters that go on without us."""
        for worker in self._workers:
            ray.kill(worker.actor)

    def _give_up(self, error: Exception) -> None:
        with self._lock:
            self._end = error
            running = [worker.call for worker in self._workers if worker.call is not None]
            for call in (*self._answers, *self._jobs, *running):
                if not call.result.done():
                    call.result.set_exception(error)
            self._answers.clear()
            self._jobs.clear()

    # Actors: news arrives on Ray's own threads, which must never wait for a lock, so it is queued.

    def _start(self, worker: Worker) -> None:
        worker.life += 1
        worker.ready_at = None
        worker.actor = self._spawn()
        self._listen(worker.actor.progress.remote(), self._on_ready, worker, worker.life)

    def _restart(self, worker: Worker) -> None:
        ray.kill(worker.actor)
        self._start(worker)

    def _listen(self, ref: Any, react: Callable[..., None], *details: Any) -> None:
        def arrived(future: concurrent.futures.Future[Any]) -> None:
            self._news.put((react, (*details, future)))

        ref.future().add_done_callback(arrived)

    def _read_news(self) -> None:
        while (news := self._news.get()) is not None:
            react, details = news
            with self._lock:
                if self._end is None:
                    react(*details)
                    self._assign()

    def _on_ready(self, worker: Worker, life: int, future: concurrent.futures.Future[Any]) -> None:
        if worker.life != life:
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
        self, worker: Worker, life: int, call: Call, future: concurrent.futures.Future[Any]
    ) -> None:
        if worker.life != life or worker.call is not call:
            return
        error = future.exception()
        if isinstance(error, RayActorError):
            self._on_death(worker, error)
            return
        if error is not None and worker.ready_at is None:
            self._on_ready(worker, life, future)  # it failed to start, and this news was faster
            return
        worker.call = None
        if error is None:
            call.result.set_result(future.result())
        else:
            call.result.set_exception(error)

    def _on_death(self, worker: Worker, error: BaseException) -> None:
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
            (self._answers if call.parties else self._jobs).appendleft(call)
        else:
            who = f"party {call.parties[0]}" if call.parties else "a job of the curator"
            call.result.set_exception(
                PartyLost(
                    f"the worker of {who} died {MAX_DEATHS} times on the same request; "
                    "if the system killed it for memory, use fewer workers",
                    call.parties[0] if call.parties else -1,
                )
            )

    # Scheduling: whoever calls `_assign` holds the lock.

    def _assign(self) -> None:
        if self._end is not None:
            return
        for worker in sorted(self._workers, key=lambda w: w.ready_at is None):
            if worker.call is None and (call := self._next_call(worker)) is not None:
                self._hand_over(worker, call)

    def _hand_over(self, worker: Worker, call: Call) -> None:
        worker.call = call
        worker.did_job = not call.parties
        call.since = time.monotonic()
        ref = getattr(worker.actor, call.method).remote(*call.arguments)
        self._listen(ref, self._on_done, worker, worker.life, call)

    def _next_call(self, worker: Worker) -> Call | None:
        """Answers and jobs take turns where both wait, so that neither starves."""
        answer = next((call for call in self._answers if call.home == worker.index), None)
        if answer is None and worker.ready_at is not None:
            answer = next((call for call in self._answers if self._may_move(call)), None)
        running = sum(w.call is not None and not w.call.parties for w in self._workers)
        room = self.size if self._conversations == 0 else max(1, self.size - 1)
        if self._jobs and running < room and (answer is None or not worker.did_job):
            return self._jobs.popleft()
        if answer is not None:
            self._answers.remove(answer)
        return answer

    def _may_move(self, call: Call) -> bool:
        """A lone answer leaves a busy home; a batch only one that is busy with a job."""
        home = self._workers[call.home]
        if call.sticky or (home.call is None and home.ready_at is not None):
            return False
        return len(call.parties) == 1 or (home.call is not None and not home.call.parties)
