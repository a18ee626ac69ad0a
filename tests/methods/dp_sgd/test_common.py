"""Settings that both forms of DP-SGD share: the number of steps, and the noise."""

from __future__ import annotations

import pytest

from fedsynth.core.errors import UserError
from fedsynth.core.types import Budget
from fedsynth.experiment.scenario import ScenarioConfig, scenario_stages
from fedsynth.methods.dp_sgd.common import PrivateSGDConfig
from fedsynth.methods.registry import method


@pytest.mark.parametrize(
    ("batch", "sigma", "epsilon", "steps"),
    [(128, 8.2, 0.05, 3524), (512, 3.4, 0.2, 448), (512, 1.8, 1.0, 2193)],
)
def test_without_epochs_the_budget_and_the_noise_give_the_steps(batch, sigma, epsilon, steps):
    """The steps of the DataLens paper's GM-DP rows on 60,000 records."""
    (stage,) = scenario_stages(
        ScenarioConfig(data="mnist", partition="single", parties=1, stages="together")
    )
    budget = Budget(epsilon, 1e-5, accounting="rdp_improved_2000")
    cfg = PrivateSGDConfig(epochs=None, noise=sigma, batch=batch)
    (party_plan,) = method("dp_sgd").plan(cfg, stage, budget).parties
    assert (party_plan.steps, party_plan.noise_multiplier) == (steps, sigma)


def test_neither_epochs_nor_noise_is_refused():
    with pytest.raises(UserError, match="epochs=null means as many steps as the budget allows"):
        PrivateSGDConfig(epochs=None).number_of_steps(1000, Budget(1.0, 1e-5))


def test_a_given_number_of_steps_goes_before_epochs():
    cfg = PrivateSGDConfig(steps=7, noise=1.5)
    assert cfg.number_of_steps(1000, Budget(1.0, 1e-5)) == 7
