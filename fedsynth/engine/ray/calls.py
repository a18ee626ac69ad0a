"""The calls that workers of a Ray pool run, the state of one worker, and how calls end."""

from __future__ import annotations

import concurrent.futures
import time
from dataclasses import dataclass, field
from typing import Any

from ray.exceptions import RayError, RayTaskError

from fedsynth.engine.ray.nodes import NO_PLACE, WorkerPlace

EXPECT_SECONDS = 60.0  # a worker that starts is expected for so long before others take its calls


class EngineClosed(Exception):
    """The engine was closed while this work was waiting."""


class BatchDied(Exception):
    """The worker died during a batch of several parties; ask them one by one."""


class DiskLost(Exception):
    """No worker sees the disk of the parties of a call any more."""


@dataclass(eq=False)
class PendingCall:
    """One call of a worker's method: answers of some parties, or (no parties) a function."""

    method: str
    arguments: tuple[Any, ...]
    parties: tuple[int, ...] = ()
    preferred: int = -1  # index of the worker that has the parties' data cached
    sticky: bool = False  # run on the preferred worker only
    deaths: int = 0
    disk: str = ""  # that the worker must see; empty: any
    needs_data: bool = True  # the worker must be able to read the records
    brief: bool = False  # a function that goes before all others
    of_job: bool = False  # a function that a running job waits for, as for its parties
    job: str = ""  # of the parties
    weight: float = 0.0  # of the parties, in records
    result: concurrent.futures.Future[Any] = field(default_factory=concurrent.futures.Future)
    started_at: float = 0.0  # of the party being answered, as far as known

    @property
    def is_answer(self) -> bool:
        """True if a running job waits for this call; all others are beside the jobs."""
        return bool(self.parties) or self.of_job


@dataclass(eq=False)
class ActorHandle:
    """One actor, and its state as far as the driver has been notified."""

    index: int
    actor: Any = None
    incarnation: int = 0  # events of earlier actors are ignored
    spawned_at: float = 0.0
    ready_at: float | None = None
    place: WorkerPlace = NO_PLACE  # the node and the disk of the actor, known once it is ready
    homeless: bool = False  # its node left, and no other had room for it yet
    call: PendingCall | None = None
    ran_function: bool = False
    failed_starts: int = 0

    @property
    def expected(self) -> bool:
        """True if the actor is ready, or probably will be soon."""
        starting = not self.homeless and time.monotonic() - self.spawned_at < EXPECT_SECONDS
        return self.ready_at is not None or starting

    def may_run(self, call: PendingCall) -> bool:
        """True if the actor sees the disk and the data that a call needs."""
        if call.disk and call.disk != self.place.disk:
            return False
        return not (call.needs_data and self.place.unfit)


def is_death(error: BaseException | None) -> bool:
    """True if an actor did not answer because it died, was killed for memory, or lost its node."""
    return isinstance(error, RayError) and not isinstance(error, RayTaskError)
