"""Start Ray or join a running cluster, and leave no process behind."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import grpc
import psutil
import ray
from ray._private import services

from fedsynth.core.errors import UserError
from fedsynth.engine.base import require_gpus
from fedsynth.engine.ray.head_node import ANSWER_SECONDS, HeadWatch, check_alive
from fedsynth.engine.ray.nodes import workers_that_fit

_OBJECT_STORE_BYTES = 200 * 2**20
INLINE_BYTES = 1_500_000  # larger messages go through shared memory
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_worker_niceness": "0",  # Ray's default of 15 starves workers on a shared machine
    "RAY_max_direct_call_object_size": str(INLINE_BYTES),
}


_reserved: dict[int, float] = {}  # CPUs per open session of this process


@dataclass
class RaySession:
    """A Ray that is ready for `workers` actors of `num_cpus` and `num_gpus` each."""

    started: bool  # Ray was started here and ends with the session
    connected: bool  # this session connected to Ray and disconnects
    processes: list[psutil.Process]
    workers: int
    cpus: float = 0.0  # of its workers
    dashboard: str = ""  # the URL of Ray's own page, if one was asked for
    watch: HeadWatch | None = None  # over the head node of a cluster that was joined

    @staticmethod
    def open(
        workers: int | None,
        num_cpus: float,
        num_gpus: float,
        address: str | None,
        *,
        dashboard: bool = False,
    ) -> RaySession:
        """Start Ray here, or join the cluster at `address`, or use the one this process has.

        Without a number of workers there is one per CPU of this machine, or as many as the nodes
        of the cluster have room for."""
        os.environ.update(_SETTINGS)
        before = set(psutil.Process().children(recursive=True))
        connected = not ray.is_initialized()
        here = (os.cpu_count() or 1) if workers is None else workers
        page = ""
        if connected:
            try:
                page = _connect(max(1, math.ceil(here * num_cpus)), address, dashboard)
            except BaseException:  # Ctrl-C too: what was started already is ended
                with _ignoring_interrupts():
                    ray.shutdown()
                    _end([p for p in psutil.Process().children(recursive=True) if p not in before])
                raise
        children = [p for p in psutil.Process().children(recursive=True) if p not in before]
        if workers is None and address is not None:
            here = max(1, workers_that_fit(num_cpus, num_gpus))
        cpus = here * num_cpus
        started = connected and address is None
        session = RaySession(started, connected, children, here, cpus, page)
        try:
            _check_resources(here, num_cpus, num_gpus, address)
        except UserError:
            session.close()
            raise
        _reserved[id(session)] = cpus
        if connected and address is not None:
            session.watch = HeadWatch(ray.get_runtime_context().gcs_address)
        return session

    def close(self) -> None:
        """Disconnect; end the processes that this session started and wait for them."""
        _reserved.pop(id(self), None)
        if self.watch is not None:
            self.watch.close()
        if not self.connected:
            return
        with _ignoring_interrupts():
            if self.started:
                known = set(self.processes) | set(psutil.Process().children(recursive=True))
                ray_children = [p for p in known if _belongs_to_ray(p)]
            ray.shutdown()
            if self.started:
                _end(ray_children)


def _connect(cpus: int, address: str | None, dashboard: bool = False) -> str:
    """Start Ray or join a cluster; returns the URL of the dashboard that was started, or ""."""
    if address is not None:
        address = answering(address)
    # Workers must import what this process can import; they get the path from their parent.
    with _environment("PYTHONPATH", os.pathsep.join(p or os.getcwd() for p in sys.path)):
        try:
            with _own_handlers():
                if address is None:
                    context = ray.init(
                        address="local",  # never a cluster that happens to run here
                        num_cpus=cpus,
                        include_dashboard=dashboard,
                        object_store_memory=_OBJECT_STORE_BYTES,
                        logging_level=logging.ERROR,
                    )
                    return f"http://{context.dashboard_url}" if context.dashboard_url else ""
                ray.init(address=address, logging_level=logging.ERROR)
                return ""
        except (ConnectionError, ValueError) as error:
            raise UserError(f"address={address!r}: no Ray cluster to join ({error})") from None
        except Exception as error:
            if address is not None or "timed out" not in str(error):  # Ray has no type for it
                raise
            raise UserError(
                f"Ray did not start in time ({error}) This machine may be too busy or short of "
                "memory. Try again, or with engine=inprocess, which needs no Ray."
            ) from None


def answering(address: str) -> str:
    """The host and port of a cluster that answers. Ray itself would try for minutes.

    Raises:
        UserError: Nothing answers there, or no Ray.
    """
    try:
        found: str = services.canonicalize_bootstrap_address(address) or address
        check_alive(found)
    except grpc.RpcError as error:
        reason = (error.details() or str(error.code())).split("; last error")[0]
        raise UserError(
            f"address={address!r}: no Ray cluster to join: {found} does not answer as one within "
            f"{ANSWER_SECONDS:.0f} s ({reason}). Allowed: HOST:PORT as `ray start --head` prints "
            "it, or auto for the cluster on this machine."
        ) from None
    except (ConnectionError, ValueError, OSError) as error:
        raise UserError(
            f"address={address!r}: no Ray cluster to join ({error}). Allowed: HOST:PORT as `ray "
            "start --head` prints it, or auto for the cluster on this machine."
        ) from None
    return found


@contextlib.contextmanager
def _own_handlers() -> Iterator[None]:
    """Keep this process's reaction to signals: Ray puts one of its own in its place."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


def _check_resources(workers: int, num_cpus: float, num_gpus: float, address: str | None) -> None:
    resources = ray.cluster_resources()
    where = "this machine" if address is None else "the cluster"
    require_gpus(workers * num_gpus, resources.get("GPU", 0), where)
    cpus = resources.get("CPU", 0)
    if workers * num_cpus > cpus:
        raise UserError(
            f"workers={workers} with num_cpus={num_cpus:g} need {workers * num_cpus:g} CPUs, and "
            f"{where} offers {cpus:g}"
        )
    taken = sum(_reserved.values())
    if workers * num_cpus > cpus - taken:
        raise UserError(
            f"workers={workers} with num_cpus={num_cpus:g} need {workers * num_cpus:g} CPUs, and "
            f"other engines in this process hold {taken:g} of the {cpus:g} of {where}: workers "
            "would wait for theirs without end. Close the other engine first, use fewer workers, "
            "or num_cpus=0 to share."
        )
    real = os.cpu_count() or 1
    if address is None and workers > real:
        warnings.warn(
            f"workers={workers} share {real} CPUs: results are the same, no time is saved",
            stacklevel=4,
        )


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    old = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if old is None:
            del os.environ[name]
        else:
            os.environ[name] = old


@contextlib.contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Ignore a second Ctrl-C during the clean-up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old)


def _belongs_to_ray(process: psutil.Process) -> bool:
    try:
        return any("ray" in part.lower() for part in process.cmdline()[:4])
    except psutil.Error:
        return False


def _end(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=1.0)
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(alive, timeout=2.0)
