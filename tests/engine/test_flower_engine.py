"""Flower's own simulation as the reference: the same apps give the same bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import fakes
import pytest

PATH = os.pathsep.join([str(Path(__file__).parents[2]), str(Path(__file__).parent)])

_SIMULATION = """
import json, sys, threading, fakes
from fedsynth.core import Request

with fakes.open_stage("flower", workers=2, timeout=20) as stage:
    texts = [fakes.plain(stage.ask_all([3, 0, 2], rounds=2))]
    releases = {}
    def part(ask):
        def one(stage):
            releases[stage] = ask([stage, stage + 1], stage, Request())
        threads = [threading.Thread(target=one, args=(s,)) for s in (0, 1)]
        [t.start() for t in threads]
        [t.join() for t in threads]
    stage.play(part)
    texts.append(fakes.plain(releases[0] + releases[1]))
    try:
        stage.ask_all([1], mishap={"1": "secret"})
    except Exception as error:
        texts.append(f"{type(error).__name__}: {error}")
    texts.append(stage.engine.submit(pow, 2, 10).result())
print("RESULT", json.dumps(texts))
"""

_HANG = """
import fakes
from fedsynth.core import Request
try:
    with fakes.open_stage("flower", workers=1, timeout=0.5) as stage:
        stage.play(lambda ask: ask([0, 1], 0, Request()), parties=2, mishap={"1": "hang"})
except Exception as error:
    print("RESULT", type(error).__name__, error)
"""


def run_alone(code: str, seconds: float) -> str:
    """Run in a process of its own, because Flower's simulation shuts Ray down when it ends."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": PATH},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    results = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert results, done.stdout + done.stderr
    return results[0].removeprefix("RESULT ")


def test_three_engines_bit_identical(ray_stage, local_stage):
    """In-process, Ray and Flower: equal in every bit, name and type, and in order."""
    reference, threads, error, job = json.loads(run_alone(_SIMULATION, 150))
    for stage in (ray_stage, local_stage):
        assert fakes.plain(stage.ask_all([3, 0, 2], rounds=2)) == reference
        out: list = []
        stage.play(lambda ask, out=out: out.extend(ask([0, 1], 0, fakes.Request())))
        stage.play(lambda ask, out=out: out.extend(ask([1, 2], 1, fakes.Request())))
        assert fakes.plain(out) == threads
    assert error.startswith("PartyFailed: party 1 failed: ValueError;")
    assert job == 1024


def test_a_hung_party_ends_the_simulation():
    """Flower would wait; the ServerApp names the party and everything stops."""
    begun = time.monotonic()
    result = run_alone(_HANG, 60)
    assert result.startswith("PartyTimeout party 1 did not answer within timeout=0.5 s")
    assert time.monotonic() - begun < 45


def test_simulation_keeps_off_a_ray_in_use(ray_stage):
    """It would shut down what others use."""
    with (
        pytest.raises(fakes.UserError, match="process of its own"),
        fakes.open_stage("flower", workers=1) as stage,
    ):
        stage.ask_all([0])
