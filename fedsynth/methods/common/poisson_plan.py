"""Planning a release in equal steps, each a Gaussian mechanism on a Poisson sample of its own."""

from __future__ import annotations

from collections.abc import Mapping

from dp_accounting import DpEvent

from fedsynth.core.plan import PartyPlan, View
from fedsynth.core.types import Budget, ComputeCost, PartyInfo
from fedsynth.privacy.accounting.calibration import poisson_gaussian_multiplier
from fedsynth.privacy.accounting.events import gaussian, poisson, repeated


def sampled_share(
    info: PartyInfo,
    budget: Budget,
    *,
    rate: float,
    steps: int,
    bytes_up: int,
    bytes_down: int = 0,
    noise: float | None = None,
    views: Mapping[View, DpEvent] | None = None,
    cost: tuple[ComputeCost, ...] = (),
) -> PartyPlan:
    """A party's share: `steps` steps at sampling rate `rate`. `noise` is the multiplier; none: the
    smallest one within the budget."""
    sigma = noise or poisson_gaussian_multiplier(
        rate, steps, budget.epsilon, budget.delta, budget.accounting, relation=budget.relation
    )
    return PartyPlan(
        info.party,
        info.records,
        event=repeated(poisson(rate, gaussian(sigma)), steps),
        sampling_rate=rate,
        steps=steps,
        noise_multiplier=sigma,
        views=views or {},
        bytes_up=bytes_up,
        bytes_down=bytes_down,
        cost=cost,
    )


def step_event(share: PartyPlan) -> DpEvent:
    """What one step of such a share costs: what `Guard.reserve` is told."""
    return poisson(share.sampling_rate, gaussian(share.noise_multiplier))
