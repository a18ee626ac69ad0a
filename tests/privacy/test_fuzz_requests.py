"""Altered requests and proposals to every method: a code for every refusal, no over-spending, no
private value outside, and the same answer whatever the records are.

A slice by default; FEDSYNTH_FUZZ=20000 sends that many.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import fuzzing
import pytest
import tiny_runs as tiny
from alterations import Alterations
from contract_cases import DISTRIBUTED_NOISE, PRIVATE

from fedsynth.core.enums import SecureSum
from fedsynth.core.errors import Refusal
from fedsynth.experiment.job import Job

REQUESTS = int(os.environ.get("FEDSYNTH_FUZZ", "120"))
BATCH = 100  # requests to one ledger: most are refused once its budget is spent
SEED = int(os.environ.get("FEDSYNTH_FUZZ_SEED", "0"))


def jobs_of(name: str, folder: Path) -> list[Job]:
    """A tiny job per scenario, and one with masked sums if the method has them."""
    jobs = [
        tiny.tiny_job(name, folder / scenario, scenario)
        for scenario in tiny.scenarios_of(name)[-2:]
    ]
    if DISTRIBUTED_NOISE in tiny.variants(name):
        masked = tiny.tiny_job(name, folder / "masked", "together", DISTRIBUTED_NOISE)
        jobs.append(dataclasses.replace(masked, secure_sum=SecureSum.SECAGG))
    return jobs if count_per_method() > BATCH else jobs[-1:]


def count_per_method() -> int:
    """The requests to each method."""
    return -(-REQUESTS // len(PRIVATE))


class _Exceptions(logging.Handler):
    """The types of exceptions that a party's log holds."""

    def __init__(self, fuzzer: fuzzing.Fuzzer) -> None:
        super().__init__()
        self.fuzzer = fuzzer

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR and record.exc_info and record.exc_info[1]:
            error = record.exc_info[1]
            frame = error.__traceback__
            while frame and frame.tb_next:
                frame = frame.tb_next
            where = f"{Path(frame.tb_frame.f_code.co_filename).name}:{frame.tb_lineno}"
            self.fuzzer.internal[f"{type(error).__name__} in {where}: {error}"[:150]] += 1


@pytest.fixture
def fuzzer(tmp_path: Path) -> Iterator[fuzzing.Fuzzer]:
    one = fuzzing.Fuzzer(tmp_path / "parties")
    handler, log = _Exceptions(one), logging.getLogger("fedsynth.party")
    log.addHandler(handler)
    with one.worlds():
        yield one
    log.removeHandler(handler)


@pytest.mark.timeout(20_000)
@pytest.mark.parametrize("name", PRIVATE)
def test_altered_requests_are_refused_with_a_code_or_answered_within_the_budget(
    name, here, fuzzer, tmp_path
):
    alterations = Alterations(SEED + sum(name.encode()))
    jobs = jobs_of(name, tmp_path)
    honest = [fuzzing.honest_messages(job, here) for job in jobs]
    every = [asked for messages in honest for asked in messages]
    count = count_per_method()
    batch = 0
    while fuzzer.sent < count:
        job, messages = jobs[batch % len(jobs)], honest[batch % len(jobs)]
        policies = fuzzer.policies(job, batch)
        for number in range(min(BATCH, count - fuzzer.sent)):
            asked = alterations.choose(messages)
            if number % 10:  # now and then an honest one, so that later ones find some state
                asked = alterations.altered(asked, every)
            fuzzer.send(asked, policies, f"{name}, batch {batch}, request {number}")
        fuzzer.check_spending(job, policies, f"{name}, batch {batch}")
        batch += 1
    if summary := os.environ.get("FEDSYNTH_FUZZ_SUMMARY"):
        with open(summary, "a", encoding="utf-8") as file:
            found = dict(fuzzer.internal.most_common(8))
            print(json.dumps([name, fuzzer.sent, fuzzer.seen, found, fuzzer.faults[:5]]), file=file)
    assert not fuzzer.faults, f"{len(fuzzer.faults)} faults, first: {fuzzer.faults[:3]}"
    assert fuzzer.sent == count
    assert not fuzzer.seen[Refusal.INTERNAL], f"refusals without a reason: {fuzzer.internal}"
    assert count < BATCH or len(fuzzer.seen) > 2, "the requests are all alike: they test nothing"
