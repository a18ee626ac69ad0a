"""Processes of this machine, any of which may end while a test looks at it."""

from __future__ import annotations

import contextlib

import psutil


def family(pid: int) -> list[psutil.Process]:
    """A process and all below it; empty once it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    return []


def name_of(process: psutil.Process) -> str:
    """The name of a process, "" once it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.name()
    return ""


def command_of(process: psutil.Process) -> list[str]:
    """The command line of a process, empty once it has ended."""
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


def directory_of(process: psutil.Process) -> str | None:
    """The working directory of a process, None once it has ended."""
    with contextlib.suppress(psutil.Error):
        return process.cwd()
    return None


def is_alive(process: psutil.Process) -> bool:
    """Whether it still runs; the same pid with another start time is another process."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def kill_all(processes: list[psutil.Process]) -> None:
    """Kill -9 of each that has not ended by itself."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
