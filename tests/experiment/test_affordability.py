"""Given noise against the budget: refused when it costs more, computed for the dearest party."""

from __future__ import annotations

import pytest

from fedsynth.core.errors import UserError
from fedsynth.experiment.affordability import check_affordable, given_noise
from fedsynth.experiment.config import parse_overrides, resolve
from fedsynth.experiment.experiment import Experiment

WORDS = "scenario=split_mnist data=shapes parties=2 options={} accounting=rdp"


def experiment(*words: str) -> Experiment:
    named = any(word.startswith("method=") for word in words)
    default = () if named else ("method=ldpdc",)
    return Experiment.of(resolve(parse_overrides([*WORDS.split(), *words, *default])))


def test_noise_that_the_budget_sets_is_affordable() -> None:
    check_affordable(experiment("epsilon=1,10"))
    assert given_noise(experiment("epsilon=1").jobs[0].config) == ""


def test_noise_that_costs_too_much_is_refused_with_its_cost() -> None:
    dear = experiment("ldpdc.noise=0.5", "epsilon=1")
    with pytest.raises(UserError, match=r"ldpdc\.noise=0\.5 costs epsilon=\S+ at delta=1e-05"):
        check_affordable(dear)
    check_affordable(experiment("ldpdc.noise=0.5", "epsilon=10000"))


def test_every_budget_of_the_run_is_checked() -> None:
    with pytest.raises(UserError, match="the budget is epsilon=1"):
        check_affordable(experiment("ldpdc.noise=0.5", "epsilon=10000,1"))


def test_references_without_privacy_have_no_budget() -> None:
    check_affordable(experiment("method=upper_bound"))
