"""The sums that a trusted aggregator has added noise to: one per request, even after a restart.

The aggregator's noise is keyed by the request. Two different sums with the same noise would show
their difference without any noise, so the first answer to a request is the only one. What was
answered is on disk before noise is drawn.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from filelock import FileLock

from fedsynth.core.errors import UserError
from fedsynth.storage.files import disk_errors, durable_append


class AnsweredSums:
    """The answered requests of one stage, in a file of the server.

    A line names a request and a keyed mark of the sums: without the aggregator's key it tells
    nothing about sums that few values are possible for.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._marks: dict[str, str] = {}
        self._size = 0  # bytes of the lines that are known

    def record(self, request: str, mark: str) -> None:
        """Store durably that sums with this mark are the answer to this request.

        Raises:
            PermissionError: The request was answered with other sums before.
            UserError: The file is damaged, or the disk refuses.
        """
        with disk_errors(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{self._path}.lock"):
                self._catch_up()
                known = self._marks.get(request)
                if known is None:
                    line = json.dumps([request, mark]).encode() + b"\n"
                    durable_append(self._path, line)
                    self._marks[request] = mark
                    self._size += len(line)
        if known is not None and known != mark:
            raise PermissionError("this request was answered with other sums before: number them")

    def _catch_up(self) -> None:
        """Read lines of an earlier process; one that a crash cut off had no noise, and goes."""
        size = self._path.stat().st_size if self._path.exists() else 0
        if size < self._size:
            raise UserError(
                f"{self._path} has lost lines: restore it from a copy, or start the run again in "
                "another directory. No noise was drawn."
            )
        if size == self._size:
            return
        with open(self._path, "r+b", buffering=0) as file:
            file.seek(self._size)
            for line in file.read(size - self._size).split(b"\n")[:-1]:
                request, mark = self._parse(line)
                self._marks[request] = mark
                self._size += len(line) + 1
            os.ftruncate(file.fileno(), self._size)

    def _parse(self, line: bytes) -> tuple[str, str]:
        try:
            request, mark = json.loads(line)
            if isinstance(request, str) and isinstance(mark, str):
                return request, mark
        except (ValueError, TypeError, RecursionError):
            pass
        raise UserError(
            f"{self._path} is damaged: restore it from a copy, or start the run again in another "
            "directory. No noise was drawn."
        )
