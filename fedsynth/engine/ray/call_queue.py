"""Calls that wait for a worker of a Ray pool, and the choice of the next one for a free worker."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence

from fedsynth.engine.ray.calls import ActorHandle, PendingCall


class CallQueue:
    """Answers of parties and functions of the server, in the order in which they were queued.

    The pool holds its lock around every use.

    Args:
        workers: The workers of the pool, by their index.
    """

    def __init__(self, workers: Sequence[ActorHandle]) -> None:
        self._workers = workers
        self._answers: collections.deque[PendingCall] = collections.deque()
        self._functions: collections.deque[PendingCall] = collections.deque()

    def __len__(self) -> int:
        return len(self._answers) + len(self._functions)

    def add(self, call: PendingCall) -> None:
        """Queue a call behind all others of its kind."""
        self._kind(call).append(call)

    def add_first(self, call: PendingCall) -> None:
        """Queue a call before all others of its kind."""
        self._kind(call).appendleft(call)

    def drop_answers(self, calls: Iterable[PendingCall]) -> None:
        """Take abandoned answers out of the queue; functions stay."""
        for call in calls:
            if call in self._answers:
                self._answers.remove(call)

    def take_lost(self) -> list[PendingCall]:
        """Take out the calls that need a disk which no worker sees."""
        seen = {worker.place.disk for worker in self._workers}
        lost = [c for c in (*self._answers, *self._functions) if c.disk and c.disk not in seen]
        for call in lost:
            self._kind(call).remove(call)
        return lost

    def take_all(self) -> list[PendingCall]:
        """Empty the queue."""
        calls = [*self._answers, *self._functions]
        self._answers.clear()
        self._functions.clear()
        return calls

    def take_next(self, worker: ActorHandle, *, job_runs: bool) -> PendingCall | None:
        """Take the call that a free worker should run next; None if there is none for it.

        Answers and functions take turns where both wait, so that neither starves.

        Args:
            worker: The worker.
            job_runs: Functions leave one ready worker of several to the parties of a job.
        """
        for call in self._functions:
            if call.brief and worker.may_run(call):
                self._functions.remove(call)
                return call
        answer = self._next_answer(worker)
        running = sum(w.call is not None and not w.call.is_answer for w in self._workers)
        ready = sum(w.ready_at is not None for w in self._workers)
        limit = max(1, ready - 1) if job_runs else len(self._workers)
        if running < limit and (answer is None or not worker.ran_function):
            for call in self._functions:
                if worker.may_run(call):
                    self._functions.remove(call)
                    return call
        if answer is not None:
            self._answers.remove(answer)
        return answer

    def _kind(self, call: PendingCall) -> collections.deque[PendingCall]:
        return self._answers if call.is_answer else self._functions

    def _next_answer(self, worker: ActorHandle) -> PendingCall | None:
        """The heaviest waiting answer of the first job that has one for this worker."""
        fitting = [call for call in self._answers if worker.may_run(call)]
        own = [call for call in fitting if call.preferred == worker.index]
        found = own or [call for call in fitting if self._may_move(call)]
        of_first_job = (call for call in found if call.job == found[0].job)
        return max(of_first_job, key=lambda call: call.weight, default=None)

    def _may_move(self, call: PendingCall) -> bool:
        """A single answer may leave a busy worker; a batch only one that runs a function. All may
        leave a worker that is not expected."""
        if call.preferred < 0:
            return True
        worker = self._workers[call.preferred]
        if not worker.expected or not worker.may_run(call):
            return True
        if call.sticky or (worker.call is None and worker.ready_at is not None):
            return False
        return len(call.parties) == 1 or (worker.call is not None and not worker.call.is_answer)
