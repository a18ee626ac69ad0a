"""A server and the party that it asks, in a process of their own.

    python tests/support/proposing_server.py FOLDER BEGIN whole|after|within SEED...

Once the file BEGIN is there, one job per seed is proposed to the party in FOLDER, at a stage that
does not exist: it is admitted or refused, and nothing is computed. `after` and `within` kill the
process (SIGKILL) when the first job's line in the book is written, or half of it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from real_party import RealParty, proposal

from fedsynth.core.errors import Refusal
from fedsynth.core.messages import Request
from fedsynth.privacy import lifetime

ASK = Request("release", 0, scalars={"seed": 0})
ELSEWHERE = 7  # a stage that does not exist


def _killed(_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _killed_within(book: lifetime.LifetimeBook, _: lifetime.AdmittedJob) -> None:
    book._path.write_text('{"key": "half of a line')
    _killed(book)


def _main(folder: Path, begin: Path, end: str, seeds: list[int]) -> None:
    party = RealParty(folder)
    if end == "after":
        lifetime.os.fsync = _killed  # type: ignore[attr-defined]
    if end == "within":
        lifetime.LifetimeBook._append = _killed_within  # type: ignore[method-assign]
    (folder / f"ready-{os.getpid()}").touch()
    while not begin.exists():
        time.sleep(0.002)
    for seed in seeds:
        reply = party.ask(proposal(seed=seed), ASK, stage=ELSEWHERE)
        assert reply.refusal in (Refusal.REQUEST, Refusal.BUDGET), reply


if __name__ == "__main__":
    _main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], [int(s) for s in sys.argv[4:]])
