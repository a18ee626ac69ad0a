"""Messages from all processes of a run to its driver, through a folder that they see.

Each process appends lines to a file of its own; the driver reads only what is new. Reading costs as
much as the messages that came since, however many parties and stages there are. Nothing waits for a
message, and a process that cannot write goes on without.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def send_message(folder: str | Path, message: Mapping[str, Any]) -> None:
    """Append a message to this process's file in `folder`. Where there is no such folder, nobody
    reads; that and errors of the disk are ignored."""
    folder = Path(folder)
    line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
    with (
        contextlib.suppress(OSError),
        open(folder / f"{socket.gethostname()}-{os.getpid()}.jsonl", "ab", buffering=0) as file,
    ):
        file.write(line)


class MessageReader:
    """Reads the messages in `folder` that are new since the last call."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._read: dict[str, int] = {}  # bytes per file

    def new(self) -> list[dict[str, Any]]:
        """The new messages: those of one process in order; damaged ones are left out."""
        messages: list[dict[str, Any]] = []
        with contextlib.suppress(OSError), os.scandir(self._folder) as files:
            for entry in files:
                with contextlib.suppress(OSError):
                    messages += self._of_file(entry)
        return messages

    def _of_file(self, entry: os.DirEntry[str]) -> list[dict[str, Any]]:
        before = self._read.get(entry.name, 0)
        if entry.stat().st_size <= before:
            return []
        with open(entry.path, "rb") as file:
            file.seek(before)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read[entry.name] = before + len(whole)
        found = []
        for line in whole.splitlines():
            with contextlib.suppress(ValueError):
                message = json.loads(line)
                if isinstance(message, dict):
                    found.append(message)
        return found

    def start(self) -> None:
        """Make an empty folder: from now on messages are sent.

        Raises:
            OSError: The disk refuses.
        """
        self.remove()
        self._folder.mkdir(parents=True, exist_ok=True)

    def remove(self) -> None:
        """Remove the folder: nothing is read from it any more."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._read.clear()
