"""The grid on long-lived Ray actors: one batched call per actor and round."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import heapq
import logging
import pickle
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import ray
from flwr.app import Error, Message
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fedsynth.core.errors import UserError
from fedsynth.engine.base import NodeSetup
from fedsynth.engine.client_app import make_client_app
from fedsynth.engine.local_grid import LocalGrid, PartyHost, party_at
from fedsynth.engine.messages import LATE, LOST, PartyLost, PartyTimeout
from fedsynth.engine.placement import Place, Placement
from fedsynth.engine.process_setup import prepare_worker
from fedsynth.engine.ray.calls import BatchDied, DiskLost, PendingCall
from fedsynth.engine.ray.cluster import INLINE_BYTES
from fedsynth.engine.ray.nodes import WorkerPlace, this_node
from fedsynth.engine.ray.pool import RayPool
from fedsynth.storage.disk_identity import DiskProbe

MOST_REPLY_BYTES = 32 * 2**20  # of arrays in the replies of one call


def _pack(messages: Sequence[Message]) -> Any:
    """Messages as one block; a large one as an array, which Ray shares instead of copying."""
    data = pickle.dumps(messages, protocol=5)
    return data if len(data) < INLINE_BYTES else np.frombuffer(data, dtype=np.uint8)


def _unpack(block: Any) -> list[Message]:
    messages: list[Message] = pickle.loads(block)
    return messages


def _array_bytes(message: Message) -> int:
    """The bytes of the arrays in a message."""
    if message.has_error():
        return 0
    records = message.content.array_records.values()
    return sum(len(array.data) for record in records for array in record.values())


class RayWorker:
    """The actor: hosts parties, and runs functions for the server."""

    def __init__(self, answer: bytes, probe: DiskProbe | None = None, fit: bytes = b"") -> None:
        prepare_worker()
        self._probe, self._fit = probe, fit
        logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
        self._current: tuple[int, float] | None = None
        self._failed_start: Exception | None = None
        try:
            self._host = PartyHost(make_client_app(pickle.loads(answer)))
        except Exception as error:
            self._failed_start = error  # an actor that raises here dies without a clear message

    @ray.method(concurrency_group="watch")  # its own thread, to tell a slow party from a hung one
    def progress(self) -> tuple[int, float]:
        """The position in the batch of the message being answered, and the seconds since its
        start."""
        position, begun = self._current or (0, time.monotonic())
        return position, time.monotonic() - begun

    @ray.method(concurrency_group="watch")
    def place(self) -> WorkerPlace:
        """The place of this worker.

        Raises the exception that made the start fail, if one did."""
        self._check_start()
        node, name = this_node()
        if self._probe is None:
            return WorkerPlace(node, name)
        try:
            disk = self._probe.find()
        except UserError as error:
            raise UserError(f"node {name}: {error}") from None
        unfit = pickle.loads(self._fit)() if self._fit else ""
        return WorkerPlace(node, name, disk, unfit and f"node {name}: {unfit}")

    def answer(self, nodes: NodeSetup, block: Any) -> Any:
        """Return the replies to a batch of messages, in order.

        Those that exceed `MOST_REPLY_BYTES` together are left to another call, so that a worker
        never holds the replies of all its parties."""
        self._check_start()
        replies: list[Message] = []
        size = 0
        for position, message in enumerate(_unpack(block)):
            self._current = (position, time.monotonic())
            replies.append(self._host.handle(nodes, message))
            size += _array_bytes(replies[-1])
            if size > MOST_REPLY_BYTES:
                break
        self._current = None
        return _pack(replies)

    def _check_start(self) -> None:
        if self._failed_start is not None:
            raise self._failed_start

    def compute(self, work: bytes) -> bytes:
        """Run a function and return its result or its exception, pickled."""
        function, arguments = pickle.loads(work)
        try:
            block: bytes = ray.cloudpickle.dumps((True, function(*arguments)))
            return block
        except Exception as error:
            return _pickled(error)


def _pickled(error: Exception) -> bytes:
    with contextlib.suppress(Exception):
        block: bytes = ray.cloudpickle.dumps((False, error))
        pickle.loads(block)
        return block
    return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))


def worker_spawner(
    answer: Callable[..., Any],
    num_cpus: float,
    num_gpus: float,
    probe: DiskProbe | None = None,
    fit: Callable[[], str] | None = None,
) -> Callable[[str | None], Any]:
    """Return a function that starts one more worker with its share of the machine, on a node.

    Args:
        answer: Answers one request inside a party.
        num_cpus: CPUs of a worker.
        num_gpus: GPUs of a worker.
        probe: Finds out whether a worker sees the driver's disk.
        fit: Called in a worker: why no party can answer there; empty if parties can.
    """
    make_remote: Any = ray.remote  # its stubs lack concurrency groups
    actor = make_remote(concurrency_groups={"watch": 1})(RayWorker)
    arguments = ray.cloudpickle.dumps(answer), probe, ray.cloudpickle.dumps(fit) if fit else b""

    def spawn(node: str | None) -> Any:
        strategy = NodeAffinitySchedulingStrategy(node, soft=False) if node else "DEFAULT"
        options = actor.options(num_cpus=num_cpus, num_gpus=num_gpus, scheduling_strategy=strategy)
        return options.remote(*arguments)

    return spawn


def submit_function(
    pool: RayPool,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    *,
    disk: str = "",
    needs_data: bool = True,
    brief: bool = False,
    of_job: bool = False,
) -> concurrent.futures.Future[Any]:
    """Run `function(*arguments)` in a worker; an exception arrives with its own type.

    Args:
        pool: The workers.
        function: A picklable function.
        arguments: Its arguments.
        disk: The disk that the worker must see; empty: any.
        needs_data: Whether the worker must be able to read the records.
        brief: Whether it goes before all other functions.
        of_job: Whether a running job waits for it, as for its parties.
    """
    outcome: concurrent.futures.Future[Any] = concurrent.futures.Future()
    work = ray.cloudpickle.dumps((function, arguments))
    call = PendingCall(
        "compute", (work,), disk=disk, needs_data=needs_data, brief=brief, of_job=of_job
    )

    def forward(done: concurrent.futures.Future[Any]) -> None:
        error = done.exception()
        if error is None:
            succeeded, value = pickle.loads(done.result())
            error = None if succeeded else value
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(value)

    call.result.add_done_callback(forward)
    pool.enqueue([call])
    return outcome


class Batch(NamedTuple):
    """Messages for one worker."""

    worker: int  # the index of the worker that has the parties' data cached
    disk: str  # that holds the state of these parties; empty: all workers see it
    messages: Sequence[Message]


_Pending = dict[concurrent.futures.Future[Any], tuple[PendingCall, Batch]]


class RayGrid(LocalGrid):
    """Parties spread over the workers of a pool.

    A party prefers one worker, which has its data cached: the heaviest parties are divided first,
    so that all workers have about the same number of records. Where nodes have disks of their own,
    a party answers only from the disk that holds its state."""

    def __init__(
        self,
        job: str,
        nodes: NodeSetup,
        pool: RayPool,
        sticky: bool = False,
        placement: Placement | None = None,
    ) -> None:
        super().__init__(job, nodes)
        self._pool = pool
        self._sticky = sticky
        self._placement = placement
        self._turn = threading.Lock()
        self._sent_nodes = nodes.for_workers(one_disk=placement is None)
        self._divided = functools.lru_cache(maxsize=8)(self._divide)

    def deliver(self, messages: Sequence[Message], timeout: float | None) -> list[Message]:
        """Send one call per worker and return the replies.

        In place of a party that hangs, or whose worker dies again and again, the grid itself
        replies with an error; the others in its batch are asked once more. Replies that are late
        for `timeout` are left out.

        Raises:
            PartiesUnreachable: No worker sees the disk that holds the state of some parties."""
        pending: _Pending = {}
        replies: list[Message] = []
        try:
            self._send(self._batches(messages), pending)
            end = None if timeout is None else time.monotonic() + timeout
            while pending and (end is None or time.monotonic() < end):
                patience = min(self._pool.check_deadline(call) for call, _ in pending.values())
                done, _ = concurrent.futures.wait(
                    pending, patience, concurrent.futures.FIRST_COMPLETED
                )
                for future in done:
                    call, batch = pending.pop(future)
                    try:
                        answered = _unpack(future.result())
                        replies += answered
                        if rest := batch.messages[len(answered) :]:
                            self._send([batch._replace(messages=rest)], pending)
                    except BatchDied:
                        alone = [batch._replace(messages=[m]) for m in batch.messages]
                        self._send(alone, pending, deaths=1)
                    except (PartyTimeout, PartyLost) as error:
                        position = call.parties.index(error.party)
                        failed = batch.messages[position]
                        rest = [m for m in batch.messages if m is not failed]
                        code = LATE if isinstance(error, PartyTimeout) else LOST
                        replies.append(Message(Error(code, str(error)), reply_to=failed))
                        self._send([batch._replace(messages=rest)] if rest else [], pending)
                    except DiskLost:
                        assert self._placement is not None
                        raise self._placement.unreachable(call.parties) from None
        finally:
            self._pool.cancel(call for call, _ in pending.values())
        return replies

    def _send(self, batches: Sequence[Batch], pending: _Pending, deaths: int = 0) -> None:
        calls = []
        for batch in batches:
            parties = tuple(party_at(m.metadata.dst_node_id) for m in batch.messages)
            call = PendingCall(
                "answer",
                (self._sent_nodes, _pack(batch.messages)),
                parties,
                batch.worker,
                self._sticky,
                deaths,
                batch.disk,
                job=self.job,
                weight=sum(self._weight(party) for party in parties),
            )
            pending[call.result] = (call, batch)
            calls.append(call)
        self._pool.enqueue(calls)

    def _batches(self, messages: Sequence[Message]) -> list[Batch]:
        """Messages by preferred worker, evened out where that makes the heaviest batch lighter."""
        if self._placement is None:
            return self._divided_messages(messages, tuple(self._pool.expected()), "")
        batches = []
        for disk, some in self._by_disk(messages).items():
            batches += self._divided_messages(some, self._pool.on_disk(disk), disk)
        return batches

    def _divided_messages(
        self, messages: Sequence[Message], workers: tuple[int, ...], disk: str
    ) -> list[Batch]:
        preferred = self._divided(workers)
        batches: dict[int, list[Message]] = {worker: [] for worker in workers}
        loads = dict.fromkeys(workers, 0.0)
        for message in messages:
            party = party_at(message.metadata.dst_node_id)
            batches[preferred[party]].append(message)
            loads[preferred[party]] += self._weight(party)
        if not self._sticky and len(messages) > 1 and len(workers) > 1:
            self._even_out(batches, loads)
        return [Batch(worker, disk, batch) for worker, batch in batches.items() if batch]

    def _even_out(self, batches: Mapping[int, list[Message]], loads: dict[int, float]) -> None:
        """Move messages, heavy ones first, as long as that makes the heavier of two lighter."""

        def weight(message: Message) -> float:
            return self._weight(party_at(message.metadata.dst_node_id))

        placed = [(weight(m), m, worker) for worker, batch in batches.items() for m in batch]
        for heaviness, message, worker in sorted(placed, key=lambda row: -row[0]):
            lightest = min(loads, key=loads.__getitem__)
            if loads[lightest] + heaviness < loads[worker]:
                batches[worker].remove(message)
                batches[lightest].append(message)
                loads[worker] -= heaviness
                loads[lightest] += heaviness

    def _divide(self, workers: tuple[int, ...]) -> list[int]:
        """The preferred worker of each party: the heaviest party first, to the worker with the
        fewest records so far."""
        heap = [(0.0, worker) for worker in workers]
        preferred = [workers[0]] * self.parties
        for party in sorted(range(self.parties), key=lambda party: -self._weight(party)):
            load, worker = heap[0]
            preferred[party] = worker
            heapq.heapreplace(heap, (load + self._weight(party), worker))
        return preferred

    def _weight(self, party: int) -> float:
        """The number of records of a party, or 1 if it is not known."""
        records = self.nodes.records
        return float(records[party]) or 1.0 if party < len(records) else 1.0

    def _by_disk(self, messages: Sequence[Message]) -> dict[str, list[Message]]:
        """Messages by the disk of their parties' state. A party without state gets a place, which
        is on the driver's disk before anything is sent."""
        assert self._placement is not None
        places: dict[int, Place] = {}
        found: dict[str, list[Message]] = {}
        new: dict[int, Place] = {}
        lost: list[int] = []
        with self._turn:
            for message in messages:
                party = party_at(message.metadata.dst_node_id)
                place = self._placement.of(party)
                if place is None:
                    places = places or self._pool.await_places()
                    place = new[party] = places[self._divided(tuple(places))[party]]
                elif not self._pool.on_disk(place.disk):
                    lost.append(party)
                found.setdefault(place.disk, []).append(message)
            if lost:
                raise self._placement.unreachable(lost)
            self._placement.assign(new)
        return found
