"""Long-lived Ray actors, and the calls that they run one by one.

A worker runs one call at a time. Answers of parties go to the worker that has their data cached;
functions of the server go to any free worker and never take the last worker from a running job.
A worker that dies is replaced and its call repeated: a party's state is on disk, so the same
request gives the same answer. A worker that hangs is killed and replaced. While a cluster has no
room for a worker, because a node left or others use it, the rest go on without it.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError

from fedsynth.core.errors import UserError
from fedsynth.engine.messages import PartyLost, PartyTimeout
from fedsynth.engine.placement import Place
from fedsynth.engine.ray.call_queue import CallQueue
from fedsynth.engine.ray.calls import (
    ActorHandle,
    BatchDied,
    DiskLost,
    EngineClosed,
    PendingCall,
    is_death,
)
from fedsynth.engine.ray.nodes import NO_PLACE, is_alive

MAX_DEATHS = 3
START_SECONDS = 120.0
NOTE_SECONDS = 15.0  # without a place for a worker until that is said
_WATCH_SECONDS = 5.0
_TICK_SECONDS = 1.0

Note = Callable[[str], None]


class RayPool:
    """Runs calls on `size` actors made by `spawn`; `timeout` seconds for each party's answer.

    Args:
        size: The number of actors.
        spawn: Starts an actor, on the node of this id, or anywhere (None).
        timeout: The seconds that a party may take per answer.
        note: Receives remarks on nodes that leave, come back, or have no room.
        joined: The cluster is not this pool's own: others may use it.
    """

    def __init__(
        self,
        size: int,
        spawn: Callable[[str | None], Any],
        timeout: float,
        note: Note = lambda _text: None,
        *,
        joined: bool = False,
    ) -> None:
        self.size = size
        self._spawn = spawn
        self._timeout = timeout
        self._note, self._joined = note, joined
        self._lock = threading.RLock()
        self._events: queue.SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]] | None] = (
            queue.SimpleQueue()
        )
        self._running_jobs = 0
        self._end: Exception | None = None
        self._ready_changed = threading.Condition(self._lock)
        self._last_ready = time.monotonic()  # when some worker was ready, or the start
        self._said_ready = size  # the number of workers that the last remark gave
        self._workers = [ActorHandle(index) for index in range(size)]
        self._waiting = CallQueue(self._workers)
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

    def await_places(self) -> dict[int, Place]:
        """Wait until the places of all workers that are expected are known; returns those where
        parties can answer, by the index of the worker.

        Raises:
            UserError: No worker can start, or parties can answer in none.
        """
        with self._lock:
            while True:
                if self._end is not None:
                    raise self._end
                ready = [w for w in self._workers if w.ready_at is not None]
                if ready and all(w.ready_at is not None or not w.expected for w in self._workers):
                    break
                self._ready_changed.wait(_TICK_SECONDS)
            able = [w for w in ready if not w.place.unfit]
            if not able:
                raise UserError(f"no worker can answer for a party: {ready[0].place.unfit}")
            return {w.index: Place(w.place.disk, w.place.name) for w in able}

    def expected(self) -> tuple[int, ...]:
        """The indexes of the workers that calls should be divided among; never empty."""
        with self._lock:
            able = [w for w in self._workers if not w.place.unfit] or self._workers
            return tuple(w.index for w in ([w for w in able if w.expected] or able))

    def on_disk(self, disk: str) -> tuple[int, ...]:
        """The indexes of the workers that see this disk, or are about to start on such a node."""
        with self._lock:
            return tuple(w.index for w in self._workers if w.place.disk == disk)

    def disks(self) -> set[str]:
        """The disks that workers see, as far as known."""
        with self._lock:
            return {w.place.disk for w in self._workers if w.place is not NO_PLACE}

    def unfit(self) -> list[str]:
        """The nodes where parties cannot answer, each with the reason."""
        with self._lock:
            return sorted({w.place.unfit for w in self._workers} - {""})

    def enqueue(self, calls: Iterable[PendingCall]) -> None:
        """Queue calls; each is handed to a worker in its turn."""
        with self._lock:
            if self._end is not None:
                raise self._end
            for call in calls:
                self._waiting.add(call)
            self._fail_lost()
            self._assign()

    def cancel(self, calls: Iterable[PendingCall]) -> None:
        """Take abandoned calls out of the queue."""
        with self._lock:
            self._waiting.drop_answers(calls)

    def check_deadline(self, call: PendingCall) -> float:
        """Return the seconds until this call should be checked again.

        A call that hangs is ended here with `PartyTimeout`, which names the party, and its worker
        is killed and replaced."""
        with self._lock:
            worker = next((w for w in self._workers if w.call is call), None)
            if worker is None or worker.ready_at is None:
                return 1.0
            incarnation, actor = worker.incarnation, worker.actor
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
            for call in (*self._waiting.take_all(), *running):
                if not call.result.done():
                    call.result.set_exception(error)
            self._ready_changed.notify_all()

    # Events of actors arrive on Ray's own threads, which must not wait for a lock: they are queued.

    def _start(self, worker: ActorHandle) -> None:
        """Start an actor; where disks differ, on the node on whose disk its parties' state lies."""
        worker.incarnation += 1
        worker.ready_at = None
        worker.spawned_at = time.monotonic()
        node = worker.place.node if self._disks_differ() else None
        worker.actor = self._spawn(node)
        self._listen(worker.actor.place.remote(), self._on_ready, worker, worker.incarnation)

    def _restart(self, worker: ActorHandle) -> None:
        ray.kill(worker.actor)
        self._start(worker)

    def _disks_differ(self) -> bool:
        return len(self.disks()) > 1

    def _listen(self, ref: Any, react: Callable[..., None], *details: Any) -> None:
        def arrived(future: concurrent.futures.Future[Any]) -> None:
            self._events.put((react, (*details, future)))

        ref.future().add_done_callback(arrived)

    def _read_events(self) -> None:
        while True:
            try:
                event = self._events.get(timeout=_TICK_SECONDS)
            except queue.Empty:
                event = (self._check_room, ())
            if event is None:
                return
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
            worker.place = future.result()
            worker.ready_at = self._last_ready = time.monotonic()
            worker.failed_starts, worker.homeless = 0, False
            self._fail_lost()
            self._ready_changed.notify_all()
        elif is_death(error):
            self._on_death(worker, error)
        else:
            cause = getattr(error, "cause", error)
            if isinstance(cause, UserError):
                self._give_up(cause)
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
        if is_death(error):
            self._on_death(worker, error)
            return
        worker.call = None
        if error is None:
            call.result.set_result(future.result())
        else:
            call.result.set_exception(error)

    def _on_death(self, worker: ActorHandle, error: BaseException | None) -> None:
        if not self._left_with_node(worker) and worker.ready_at is None:
            worker.failed_starts += 1
            if worker.failed_starts >= MAX_DEATHS:
                self._give_up(RuntimeError(f"the workers cannot start: {error}"))
                return
        call, worker.call = worker.call, None
        self._restart(worker)
        if call is not None:
            self._repeat(call)
        self._fail_lost()

    def _left_with_node(self, worker: ActorHandle) -> bool:
        """True if the node of an actor left the cluster, which is noted once."""
        if worker.place is NO_PLACE or is_alive(worker.place.node):
            return False
        left = worker.place
        for each in self._workers:
            if each.place.node == left.node:
                each.place, each.homeless = NO_PLACE, True
        self._say(f"node {left.name} left the cluster")
        self._said_ready = self.size
        return True

    def _repeat(self, call: PendingCall) -> None:
        """Queue a call again whose worker died, or end it."""
        call.deaths += 1
        if len(call.parties) > 1:
            call.result.set_exception(BatchDied())
        elif call.deaths < MAX_DEATHS:
            self._waiting.add_first(call)
        else:
            subject = f"party {call.parties[0]}" if call.parties else "a function of the server"
            call.result.set_exception(
                PartyLost(
                    f"the worker of {subject} died {MAX_DEATHS} times on the same request; "
                    "if the system killed it for memory, use fewer workers",
                    call.parties[0] if call.parties else -1,
                )
            )

    def _fail_lost(self) -> None:
        """End the queued calls that need a disk which no worker sees any more."""
        for call in self._waiting.take_lost():
            call.result.set_exception(DiskLost(call.disk))

    def _check_room(self) -> None:
        """Say when workers find no place in the cluster; end where none can ever start."""
        now = time.monotonic()
        ready = sum(worker.ready_at is not None for worker in self._workers)
        if ready:
            self._last_ready = now
        waiting = [w for w in self._workers if w.ready_at is None]
        left = [self._left_with_node(worker) for worker in waiting]
        if any(left):
            self._fail_lost()
        busy = len(self._waiting) > 0
        if not ready and now - self._last_ready > START_SECONDS and busy and not self._joined:
            self._give_up(UserError(f"no worker could start within {START_SECONDS:.0f} s"))
            return
        if not self._joined or ready == self._said_ready:
            return
        if any(now - w.spawned_at < NOTE_SECONDS and not w.homeless for w in waiting):
            return
        if ready == self.size:
            self._say(f"all {self.size} workers have started again")
        else:
            free = ray.available_resources().get("CPU", 0)
            self._say(
                f"{ready} of {self.size} workers have started; the cluster has {free:g} CPUs free: "
                f"{'the run goes on with these' if ready else 'the run waits for room'}"
            )
        self._said_ready = ready

    def _say(self, text: str) -> None:
        with contextlib.suppress(Exception):  # a remark that cannot be made changes nothing
            self._note(text)

    # Scheduling: `_assign` is called with the lock held.

    def _assign(self) -> None:
        if self._end is not None:
            return
        for worker in self._workers:
            if worker.call is None and worker.ready_at is not None:
                call = self._waiting.take_next(worker, job_runs=self._running_jobs > 0)
                if call is not None:
                    self._hand_over(worker, call)

    def _hand_over(self, worker: ActorHandle, call: PendingCall) -> None:
        worker.call = call
        worker.ran_function = not call.is_answer
        call.started_at = time.monotonic()
        ref = getattr(worker.actor, call.method).remote(*call.arguments)
        self._listen(ref, self._on_done, worker, worker.incarnation, call)
