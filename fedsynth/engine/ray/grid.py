"""The grid on long-lived Ray actors: one batched call per actor and round."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import pickle
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import ray
from flwr.app import Error, Message

from fedsynth.engine.base import NodeSetup
from fedsynth.engine.client_app import make_client_app
from fedsynth.engine.local_grid import LocalGrid, PartyHost, party_at
from fedsynth.engine.messages import LATE, LOST, PartyLost, PartyTimeout
from fedsynth.engine.process_setup import prepare_worker
from fedsynth.engine.ray.cluster import INLINE_BYTES
from fedsynth.engine.ray.pool import BatchDied, PendingCall, RayPool


def _pack(messages: Sequence[Message]) -> Any:
    """Messages as one block; a large one as an array, which Ray shares instead of copying."""
    data = pickle.dumps(messages, protocol=5)
    return data if len(data) < INLINE_BYTES else np.frombuffer(data, dtype=np.uint8)


def _unpack(block: Any) -> list[Message]:
    messages: list[Message] = pickle.loads(block)
    return messages


class RayWorker:
    """The actor: hosts parties, and runs functions for the server."""

    def __init__(self, answer: bytes) -> None:
        prepare_worker()
        logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
        self._current: tuple[int, float] | None = None
        self._failed_start: Exception | None = None
        try:
            self._host = PartyHost(make_client_app(pickle.loads(answer)))
        except Exception as error:
            self._failed_start = error  # an actor that raises here dies without a clear message

    @ray.method(concurrency_group="watch")  # its own thread, to tell a slow party from a hung one
    def progress(self) -> tuple[int, float]:
        """The position in the batch of the message being answered, and the seconds since its start.

        Raises the exception that made the start fail, if one did."""
        self._check_start()
        position, begun = self._current or (0, time.monotonic())
        return position, time.monotonic() - begun

    def answer(self, nodes: NodeSetup, block: Any) -> Any:
        """Return the replies to a batch of messages, in order."""
        self._check_start()
        replies = []
        for position, message in enumerate(_unpack(block)):
            self._current = (position, time.monotonic())
            replies.append(self._host.handle(nodes, message))
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
    answer: Callable[..., Any], num_cpus: float, num_gpus: float
) -> Callable[[], Any]:
    """Return a function that starts one more worker with its share of the machine."""
    make_remote: Any = ray.remote  # its stubs lack concurrency groups
    options = make_remote(concurrency_groups={"watch": 1})(RayWorker).options(
        num_cpus=num_cpus, num_gpus=num_gpus
    )
    block = ray.cloudpickle.dumps(answer)
    return lambda: options.remote(block)


def submit_function(
    pool: RayPool, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> concurrent.futures.Future[Any]:
    """Run `function(*arguments)` in a worker; an exception arrives with its own type."""
    outcome: concurrent.futures.Future[Any] = concurrent.futures.Future()
    call = PendingCall("compute", (ray.cloudpickle.dumps((function, arguments)),))

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


class RayGrid(LocalGrid):
    """Parties spread over the workers of a pool.

    Party p prefers worker p modulo the number of workers, which has its data cached."""

    def __init__(self, job: str, nodes: NodeSetup, pool: RayPool, sticky: bool = False) -> None:
        super().__init__(job, nodes)
        self._pool = pool
        self._sticky = sticky

    def deliver(self, messages: Sequence[Message], timeout: float | None) -> list[Message]:
        """Send one call per worker and return the replies.

        In place of a party that hangs, or whose worker dies again and again, the grid itself
        replies with an error; the others in its batch are asked once more. Replies that are late
        for `timeout` are left out."""
        end = None if timeout is None else time.monotonic() + timeout
        pending: dict[concurrent.futures.Future[Any], tuple[PendingCall, Sequence[Message]]] = {}
        replies: list[Message] = []
        try:
            self._send(self._batches(messages), pending)
            while pending and (end is None or time.monotonic() < end):
                patience = min(self._pool.check_deadline(call) for call, _ in pending.values())
                done, _ = concurrent.futures.wait(
                    pending, patience, concurrent.futures.FIRST_COMPLETED
                )
                for future in done:
                    call, batch = pending.pop(future)
                    try:
                        replies += _unpack(future.result())
                    except BatchDied:
                        self._send([(call.preferred, [m]) for m in batch], pending, deaths=1)
                    except (PartyTimeout, PartyLost) as error:
                        position = call.parties.index(error.party)
                        failed, rest = batch[position], [*batch[:position], *batch[position + 1 :]]
                        code = LATE if isinstance(error, PartyTimeout) else LOST
                        replies.append(Message(Error(code, str(error)), reply_to=failed))
                        self._send([(call.preferred, rest)] if rest else [], pending)
        finally:
            self._pool.cancel(call for call, _ in pending.values())
        return replies

    def _send(
        self,
        batches: Sequence[tuple[int, Sequence[Message]]],
        pending: dict[concurrent.futures.Future[Any], tuple[PendingCall, Sequence[Message]]],
        deaths: int = 0,
    ) -> None:
        calls = []
        for preferred, batch in batches:
            parties = tuple(party_at(m.metadata.dst_node_id) for m in batch)
            arguments = (self.nodes, _pack(batch))
            call = PendingCall("answer", arguments, parties, preferred, self._sticky, deaths)
            pending[call.result] = (call, batch)
            calls.append(call)
        self._pool.enqueue(calls)

    def _batches(self, messages: Sequence[Message]) -> list[tuple[int, list[Message]]]:
        """Messages by preferred worker, evened out so that no worker has two more than another."""
        batches: list[list[Message]] = [[] for _ in range(self._pool.size)]
        for message in messages:
            batches[party_at(message.metadata.dst_node_id) % self._pool.size].append(message)
        if not self._sticky and len(messages) > 1:
            while max(map(len, batches)) - min(map(len, batches)) > 1:
                longest, shortest = max(batches, key=len), min(batches, key=len)
                shortest.append(longest.pop())
        return [(preferred, batch) for preferred, batch in enumerate(batches) if batch]
