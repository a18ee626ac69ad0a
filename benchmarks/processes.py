"""Memory and processor time of this process and of those that it started, by their kind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import psutil

DRIVER, WORKERS, RAY = "driver", "workers", "Ray's own"
_LOOK_SECONDS = 2.0
_OF_RAY = ("ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent")  # no actors


def _processes() -> Iterator[tuple[str, psutil.Process]]:
    """This process and all below it, each with its kind."""
    here = psutil.Process()
    yield DRIVER, here
    for process in here.children(recursive=True):
        try:
            name = (process.cmdline() or [""])[0]
        except psutil.Error:
            continue
        is_actor = name.startswith("ray::") and not name.startswith(_OF_RAY)
        yield (WORKERS if is_actor else RAY), process


def processor_seconds() -> dict[str, float]:
    """User and system time up to now, per kind of process."""
    total = dict.fromkeys((DRIVER, WORKERS, RAY), 0.0)
    for kind, process in _processes():
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total[kind] += times.user + times.system
    return total


class Memory:
    """The most memory (proportional shares) within a block, looked at every two seconds.

    Attributes:
        all: Of all processes together, in bytes.
        largest: Of the largest process of each kind, in bytes.
        spent: Processor seconds of looking, which this process spent.
    """

    def __enter__(self) -> Memory:
        self.all, self.spent, self._end = 0.0, 0.0, threading.Event()
        self.largest = dict.fromkeys((DRIVER, WORKERS, RAY), 0.0)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            total = 0.0
            for kind, process in _processes():
                try:
                    share = process.memory_full_info().pss
                except psutil.Error:
                    continue
                total += share
                self.largest[kind] = max(self.largest[kind], share)
            self.all, self.spent = max(self.all, total), time.thread_time()
            if self._end.wait(_LOOK_SECONDS):
                return
