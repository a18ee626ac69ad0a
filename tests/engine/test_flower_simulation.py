"""Flower's own simulation as the reference: the same apps give the same bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import fakes
import pytest
import torch

from fedsynth.core.errors import UserError
from fedsynth.core.messages import Request
from fedsynth.engine.messages import PartyFailed

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
PATH = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support"), str(HERE)])

_SIMULATION = """
import json, fakes, test_flower_simulation
with fakes.open_stage("flower", workers=2, timeout=120) as stage:
    texts = test_flower_simulation.listen(stage)
    texts.append(stage.engine.submit(pow, 2, 10).result())
print("RESULT", json.dumps(texts))
"""


def listen(stage: fakes.Stage) -> list:
    """The answers of two rounds, from two threads at once, and from a broken party."""
    texts: list = []

    def part(ask) -> None:
        given = torch.zeros(5)
        for step in range(2):
            answers = ask([3, 0, 2], 2, Request(round=step, arrays={"given": given}))
            given = given + answers[0].arrays["sum"]
            texts.append(fakes.plain(answers))
        heard: dict = {}
        threads = [
            threading.Thread(target=lambda s=s: heard.update({s: ask([s, s + 1], s, Request())}))
            for s in (0, 1)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        texts.append(fakes.plain(heard[0] + heard[1]))
        with pytest.raises(PartyFailed) as caught:
            ask([0, 1], 2, Request(kind="reveal"))
        texts.append(str(caught.value))

    stage.play(part)
    return texts


_HANG = """
import fakes
from fedsynth.core.messages import (Request)
try:
    with fakes.open_stage("flower", workers=1, timeout=0.5) as stage:
        stage.play(lambda ask: ask([0, 1], 0, Request()), parties=2, mishap={"1": "hang"})
except Exception as error:
    print("RESULT", type(error).__name__, error)
"""


_GO_ON = """
import fakes
from fedsynth.core.messages import (Request)
heard, missing = [], {}
def part(ask):
    heard.extend(ask([0, 1, 2], 0, Request(), missing))
    heard.extend(ask([0], 0, Request(round=1)))
with fakes.open_stage("flower", workers=2, timeout=1) as stage:
    stage.play(part, parties=3, mishap={"1": "hang"})
print("RESULT", [release.party for release in heard], missing)
"""


def run_alone(code: str, seconds: float) -> str:
    """Run in a process of its own, because Flower's simulation shuts Ray down when it ends."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": PATH, "RAY_worker_niceness": "0"},
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
    *heard, job = json.loads(run_alone(_SIMULATION, 250))
    assert listen(ray_stage) == heard
    assert listen(local_stage) == heard
    assert heard[-1] == "party 0 failed: internal; see its log"
    assert job == 1024


def test_a_hung_party_ends_the_simulation():
    """Flower would wait; the ServerApp names the party and everything stops."""
    result = run_alone(_HANG, 200)
    assert result.startswith("PartyTimeout party 1 did not answer within timeout=0.5 s")


def test_the_simulation_goes_on_without_a_hung_party_and_ends():
    """If the method allows missing parties; Flower itself would wait for it at the end."""
    result = run_alone(_GO_ON, 200)
    assert result == "[0, 2, 0] {1: 'party 1 did not answer within timeout=1 s'}"


def test_simulation_keeps_off_a_ray_in_use(ray_stage):
    """It would shut down what others use."""
    with (
        pytest.raises(UserError, match="process of its own"),
        fakes.open_stage("flower", workers=1) as stage,
    ):
        stage.ask_all([0])
