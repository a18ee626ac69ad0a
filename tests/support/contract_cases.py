"""Every method in every world and with every choice: what the contract is tried on."""

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

IN_SHARES = {
    "noise_at": "distributed"
}  # one party alone has all shares, so this needs parties together
NAMES = list(all_methods())
PRIVATE = [name for name in NAMES if all_methods()[name].private]


@dataclass(frozen=True)
class Case:
    """A method in a world, with its usual settings or with one choice made otherwise."""

    name: str
    world: str
    changes: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "-".join([self.name, self.world, *map(str, self.changes.values())])

    def job(self, out: Path, noise_seed: int = 7) -> Job:
        """The tiny job of this case."""
        return tiny.tiny_job(self.name, out, self.world, self.changes, noise_seed=noise_seed)


CASES = [
    *(Case(name, world) for name in NAMES for world in tiny.worlds(name)),
    *(Case(name, "in_turn", changes) for name in NAMES for changes in tiny.variants(name)),
    *(Case(name, "together", IN_SHARES) for name in NAMES if IN_SHARES in tiny.variants(name)),
]
PLAIN = [case for case in CASES if not case.changes]
OF_MANY = [case for case in CASES if case.world != "in_turn" or not case.changes]

each_method = pytest.mark.parametrize("name", NAMES)
each_case = pytest.mark.parametrize("case", CASES, ids=str)
each_case_of_many = pytest.mark.parametrize("case", OF_MANY, ids=str)
each_private_case = pytest.mark.parametrize(
    "case", [case for case in CASES if case.name in PRIVATE], ids=str
)


def stages_of(job: Job) -> range:
    return range(len(scenario_stages(job.scenario)))
