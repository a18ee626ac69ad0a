"""Checks of a resolved configuration whose keys must fit together."""

from __future__ import annotations

import math

from fedsynth.core.errors import UserError, unknown
from fedsynth.engine.ray_tools import check_ray_tools
from fedsynth.evaluation.config import EvaluationConfig
from fedsynth.experiment.method_selection import check_turns, check_units, refuse_unfit
from fedsynth.experiment.run_config import RunConfig
from fedsynth.experiment.scenario import scenario_stages
from fedsynth.experiment.scenario_config import ScenarioConfig, dataset_info
from fedsynth.experiment.stage_extension import EXTENSIONS
from fedsynth.methods.registry import all_methods, method

MAX_EPSILON = 10_000.0  # of a private method: beyond it the guarantee is empty, and no noise fits


def check_config(run: RunConfig, scenario: ScenarioConfig, evaluation: EvaluationConfig) -> None:
    """Check keys against each other: parties without records, impossible budgets.

    Raises:
        UserError: Two keys do not fit together, or a value does not fit the data.
    """
    scenario_stages(scenario)
    data = dataset_info(scenario)
    refuse_unfit(run.method, data)
    evaluation.check(data)
    check_units(run.method, run.unit)
    check_turns(run.users_per_round, scenario)
    for name in run.extensions:
        if name not in EXTENSIONS:
            raise unknown("extension", name, EXTENSIONS)
    check_ray_tools(run.ray_tools, run.engine, run.address)
    for name in run.method:
        if method(name).private and math.inf in run.epsilon:
            raise UserError(
                f"epsilon=inf: {name} is a private method. For no privacy at all use a reference: "
                + ", ".join(n for n, m in all_methods().items() if not m.private)
                + "."
            )
        for epsilon in run.epsilon:
            if method(name).private and epsilon > MAX_EPSILON:
                raise UserError(
                    f"epsilon={epsilon:g} must be at most {MAX_EPSILON:,.0f} for {name}, a private "
                    "method. epsilon=1 to 10 are usual."
                )
