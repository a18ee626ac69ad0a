"""The keys of a run that belong to no method, scenario or evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedsynth.core.enums import Accounting, EngineName, Preset, Relation, SecureSum, Unit
from fedsynth.core.settings import setting
from fedsynth.engine.ray_tools import RAY_TOOLS
from fedsynth.experiment.method_selection import GROUPS
from fedsynth.experiment.stage_extension import EXTENSIONS
from fedsynth.experiment.trackers import TRACKERS


@dataclass(frozen=True)
class RunConfig:
    """The keys of a run that are not a method's."""

    scenario: str = setting("split_mnist", "a scenario's name, or the path of a .yaml file")
    preset: Preset = setting(Preset.LAPTOP, "amount of computation")
    method: tuple[str, ...] = setting(
        (),
        "methods to compare; default: the scenario's. "
        + "; ".join(f"{word}: {about}" for word, about in GROUPS.items()),
    )
    epsilon: tuple[float, ...] = setting(
        (1.0, 10.0), "epsilon(s) of each party's budget", above=0, finite=False
    )
    delta: float = setting(1e-5, "delta of each party's budget", above=0, below=1)
    unit: Unit = setting(
        Unit.RECORD, "unit of privacy: a record, or a user (all records of one party)"
    )
    relation: Relation = setting(
        Relation.ADD_REMOVE,
        "neighbouring data sets: one unit added or removed, or one replaced by another",
    )
    users_per_round: int | None = setting(
        None,
        "parties asked per round, in methods that ask some of them (METHOD.per_round)",
        at_least=1,
    )
    seed: tuple[int, ...] = setting((0,), "public seed(s): networks, first images", at_least=0)
    accounting: Accounting = setting(
        Accounting.PLD,
        "accounting that noise is calibrated to; paper: the published convention, for comparison",
    )
    noise_seed: int | None = setting(
        None, "makes noise reproducible: an experiment, never a release", at_least=0
    )
    engine: EngineName = setting(EngineName.RAY, "where the apps run")
    workers: int | None = setting(
        None, "worker processes; default: one per CPU", at_least=1, at_most=10_000
    )
    num_cpus: float = setting(1.0, "CPUs per worker", above=0)
    num_gpus: float = setting(0.0, "GPUs per worker", at_least=0)
    device: str = setting("auto", "cpu, cuda[:N], or auto: cuda where workers have GPUs (num_gpus)")
    address: str | None = setting(None, "a running Ray cluster to join")
    timeout: float = setting(86400.0, "time limit for one answer of a party, in seconds", above=0)
    secure_sum: SecureSum = setting(
        SecureSum.IDEAL,
        "noise in shares (noise_at=distributed): an ideal sum, or SecAgg+ between the parties",
    )
    plugin: tuple[str, ...] = setting(
        (), "Python files with methods or data sets of your own, at any path"
    )
    extensions: tuple[str, ...] = setting(
        (), f"further evaluations of each stage: {', '.join(EXTENSIONS)}"
    )
    tracker: tuple[str, ...] = setting(
        (), f"programs that follow the run: {', '.join(TRACKERS)}, or a module of your own"
    )
    ray_tools: tuple[str, ...] = setting(
        (), f"tools of Ray that follow the run: {', '.join(RAY_TOOLS)} (engine=ray)"
    )
    out: str | None = setting(None, "the run directory; default runs/<scenario>-<preset>-<n>")


def continued(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a finished or interrupted run, for a command that works on it again.

    Args:
        values: The values that the run was started with.
        overrides: The keys of the command.

    Returns:
        The values without the tools of the Ray that is gone, and without its cluster if the command
        names an engine that joins none.
    """
    elsewhere = overrides.get("engine", EngineName.RAY) != EngineName.RAY
    gone = ("ray_tools", "address") if elsewhere else ("ray_tools",)
    return {key: value for key, value in values.items() if key not in gone}
