"""The node of a real party: Flower's SuperNode, and a process that answers its messages.

Flower's own way starts a process per message, which imports everything anew, and runs in it the
code of the app bundle (FAB) that the server sends. Here one process answers all messages of a party
with the app that is installed at the party, and no code of a bundle is imported: a bundle that is
not the one that this installation writes is refused with a sentence.

Private parts of Flower, as in `flower_compat`: the acquisition of a SuperNode's tasks (Flower calls
this `--isolation process`), and the pause between two looks for messages. Tested with flwr 1.41.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from flwr.clientapp import ClientApp
from flwr.common.constant import SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.app_utils import start_parent_process_monitor
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode import start_client_internal
from flwr.supernode.cli.flower_supernode import flower_supernode
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from fedsynth.core.errors import Refusal, Refused
from fedsynth.engine.client_app import error_reply
from fedsynth.engine.process_setup import prepare_worker

TASK_PAUSE = 0.05  # seconds between two looks for a task on this machine
LOOK_SECONDS = 0.2  # between two looks whether the processes live
FIRST_RESTART, LONGEST_RESTART = 0.5, 30.0  # seconds before a process is started again
MOST_DEATHS = 5  # of the answering process, in a row
STEADY_SECONDS = 60.0  # of work after which earlier deaths no longer count
_ACQUIRE = frozenset({"/flwr.proto.Runtime/AcquireTask"})
_log = logging.getLogger("fedsynth.party")

CheckBundle = Callable[[bytes], str]
"""Takes the content of an app bundle; returns why it is refused, or an empty text."""


def run_node(
    command: Sequence[str],
    app: ClientApp,
    check: CheckBundle,
    *,
    address: str,
    secret: Path,
    poll: float,
) -> int:
    """Run the SuperNode and the process that answers, until a signal ends them.

    A SuperNode that ends is started again: the SuperLink may not be there yet, or has not yet
    registered the key of the node.

    Args:
        command: The words of `flower-supernode`; with `--isolation process`.
        app: The ClientApp of this installation.
        check: Decides on the app bundle of each message.
        address: The host and port of the SuperNode's own interface, on this machine.
        secret: The file with the secret that both processes know.
        poll: The seconds between two looks for messages at the SuperLink.

    Returns:
        0 after a signal; 1 if a process died repeatedly while it answered.
    """
    node = _Kept("SuperNode", _supernode, (list(command), poll))
    answering = _Kept(
        "answering process", _answer_tasks, (app, check, address, secret, os.getpid())
    )
    with _ending((node, answering)):
        while True:
            node.keep()
            answering.keep()
            if answering.deaths > MOST_DEATHS:
                _log.error("%d deaths in a row while answering: see above", answering.deaths)
                return 1
            time.sleep(LOOK_SECONDS)
    return 0  # after Ctrl-C


class _Kept:
    """A forked process that is started again when it ends, after pauses that grow."""

    def __init__(self, name: str, target: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self.deaths = 0  # without a minute of work in between
        self._name, self._target, self._arguments = name, target, arguments
        self._process: BaseProcess | None = None
        self._started = self._next = time.monotonic()

    def keep(self) -> None:
        """Start the process if it does not run and its pause is over."""
        now = time.monotonic()
        process = self._process
        if process is not None and process.exitcode is not None:
            self._process = None
            self.deaths = 1 if now > self._started + STEADY_SECONDS else self.deaths + 1
            pause = min(FIRST_RESTART * 2 ** (self.deaths - 1), LONGEST_RESTART)
            self._next = now + pause
            _log.warning(
                "the %s ended (exit code %s); again in %g s", self._name, process.exitcode, pause
            )
        if self._process is None and now >= self._next:
            # A fork shares what is imported already.
            fork = multiprocessing.get_context("fork")
            self._process = fork.Process(target=self._target, args=self._arguments)
            self._process.start()
            self._started = now

    def end(self) -> None:
        """End the process."""
        if (process := self._process) is not None:
            process.terminate()
            process.join(5.0)
            if process.exitcode is None:
                process.kill()


@contextlib.contextmanager
def _ending(processes: Sequence[_Kept]) -> Iterator[None]:
    """End these processes with the block, also when a signal ends it."""

    def end(_number: int, _frame: object) -> None:
        raise SystemExit(0)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)
        for process in processes:
            process.end()


def _supernode(command: list[str], poll: float) -> None:
    """Run Flower's SuperNode in this process."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    pause = SimpleNamespace(sleep=lambda seconds: time.sleep(min(seconds, poll)))
    start_client_internal.time = pause  # type: ignore[assignment]
    start_parent_process_monitor(os.getppid())
    sys.argv = command
    flower_supernode()


def _answer_tasks(
    app: ClientApp, check: CheckBundle, address: str, secret: Path, parent: int
) -> None:
    """Answer the messages that the SuperNode receives, in turn, while the parent lives."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    prepare_worker()
    client = _client(
        address,
        RuntimeVersionHttpInterceptor(component_name="SuperExec"),
        SuperExecAuthHttpInterceptor(master_secret=secret.read_bytes(), protected_methods=_ACQUIRE),
    )
    wanted = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
    while os.getppid() == parent:
        found = client.AcquireTask(wanted)
        if found.HasField("task") and found.token:
            _answer(app, check, address, found.token)
        else:
            time.sleep(TASK_PAUSE)


def _answer(app: ClientApp, check: CheckBundle, address: str, token: str) -> None:
    """Answer one message with the installed app."""
    client = _client(
        address,
        RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"),
        RuntimeTokenHttpInterceptor(token),
    )
    alive = HeartbeatSender(make_task_heartbeat_fn_http(client))
    alive.start()
    context, status, details = None, SubStatus.FAILED, "the message was not answered"
    try:
        message, context, _, bundle = pull_task_input(client)
        if reason := check(bundle.content):
            reply = error_reply(message, Refused(Refusal.POLICY, reason))
        else:
            reply = app(message, context)
        push_message(client, reply, context)
        status, details = SubStatus.COMPLETED, ""
    except Exception:
        _log.exception("a message was not answered")
    finally:
        push_task_output(client, context, status, details)
        if alive.is_running:
            alive.stop()
        client.close()


def _client(address: str, *interceptors: Any) -> RuntimeHttpClient:
    return RuntimeHttpClient.from_server_address(
        server_address=address,
        insecure=True,  # within this machine
        root_certificates=None,
        interceptors=list(interceptors),
        retry_invoker=make_simple_http_retry_invoker(),
    )
