"""The cases of the contract tests: every method in every scenario and with every choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import tiny_runs as tiny

from fedsynth.experiment.job import Job
from fedsynth.experiment.scenario import scenario_stages
from fedsynth.methods.registry import all_methods

DISTRIBUTED_NOISE = {"noise_at": "distributed"}  # needs several parties in a stage
NAMES = list(all_methods())
PRIVATE = [name for name in NAMES if all_methods()[name].private]


@dataclass(frozen=True)
class Case:
    """A method in a scenario, with its tiny settings or with one choice changed."""

    name: str
    scenario: str
    changes: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "-".join([self.name, self.scenario, *map(str, self.changes.values())])

    def job(self, out: Path, noise_seed: int = 7) -> Job:
        """The tiny job of this case."""
        return tiny.tiny_job(self.name, out, self.scenario, self.changes, noise_seed=noise_seed)


CASES = [
    *(Case(name, scenario) for name in NAMES for scenario in tiny.scenarios_of(name)),
    *(Case(name, "in_turn", changes) for name in NAMES for changes in tiny.variants(name)),
    *(
        Case(name, "together", DISTRIBUTED_NOISE)
        for name in NAMES
        if DISTRIBUTED_NOISE in tiny.variants(name)
    ),
]
PLAIN = [case for case in CASES if not case.changes]
FEWER_CASES = [case for case in CASES if case.scenario != "in_turn" or not case.changes]

each_method = pytest.mark.parametrize("name", NAMES)
each_case = pytest.mark.parametrize("case", CASES, ids=str)
each_of_fewer_cases = pytest.mark.parametrize("case", FEWER_CASES, ids=str)
each_private_case = pytest.mark.parametrize(
    "case", [case for case in CASES if case.name in PRIVATE], ids=str
)


def stages_of(job: Job) -> range:
    return range(len(scenario_stages(job.scenario)))
