"""Plans of equal steps, each of them a Gaussian mechanism on a fresh Poisson sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from dp_accounting import DpEvent

from fedsynth.core.plan import PartyPlan, View
from fedsynth.core.types import Budget, ComputeCost, PartyInfo
from fedsynth.privacy.accounting.calibration import poisson_gaussian_multiplier
from fedsynth.privacy.accounting.events import gaussian, poisson, repeated

MAX_DENSITY = 2.0  # the largest sampling rate of a class, relative to that of the average class


def sampled_party_plan(
    info: PartyInfo,
    budget: Budget,
    *,
    sampling_rate: float,
    steps: int,
    bytes_up: int,
    bytes_down: int = 0,
    noise: float | None = None,
    event: Callable[[float], DpEvent] = gaussian,
    views: Mapping[View, DpEvent] | None = None,
    cost: tuple[ComputeCost, ...] = (),
) -> PartyPlan:
    """One party's part of a plan: `steps` Gaussian mechanisms at `sampling_rate`.

    Args:
        info: The public facts of the party.
        budget: The budget of the party.
        sampling_rate: The probability that a record enters a step.
        steps: The number of steps.
        bytes_up: Bytes that the party sends.
        bytes_down: Bytes that the party receives.
        noise: The noise multiplier; None: the smallest one within the budget.
        event: The event of one mechanism for a noise multiplier.
        views: The event that each view can count, where it is not the same for all.
        cost: The work of the party.
    """
    sigma = noise or poisson_gaussian_multiplier(
        sampling_rate,
        steps,
        budget.epsilon,
        budget.delta,
        budget.accounting,
        relation=budget.relation,
        event=event,
    )
    return PartyPlan(
        info.party,
        info.records,
        event=repeated(poisson(sampling_rate, event(sigma)), steps),
        sampling_rate=sampling_rate,
        steps=steps,
        noise_multiplier=sigma,
        views=views or {},
        bytes_up=bytes_up,
        bytes_down=bytes_down,
        cost=cost,
    )


def step_event(party_plan: PartyPlan) -> DpEvent:
    """The event of one step of `sampled_party_plan`, as `Guard.reserve` needs it."""
    steps: DpEvent = party_plan.event.event
    return steps


def record_rate(expected: int, info: PartyInfo) -> float:
    """The sampling rate at which `expected` of a party's records are expected in a sample, or 1."""
    return min(1.0, expected / info.records)


def class_rates(group: int, info: PartyInfo) -> dict[int, float]:
    """The sampling rate of every class of a party, ascending: `group` records expected per class.

    Each step costs as much as its largest rate. Therefore a class far below the party's average
    size is sampled at `MAX_DENSITY` times the average rate at most: it gets fewer than `group`
    records, and the price of the others stays."""
    densest = MAX_DENSITY * group * len(info.class_counts) / info.records
    return {c: min(1.0, group / n, densest) for c, n in sorted(info.class_counts.items())}


def expected_records(rates: Mapping[int, float], info: PartyInfo) -> torch.Tensor:
    """The expected number of records of each class in a sample at these rates: public constants."""
    return torch.tensor([rate * info.class_counts[c] for c, rate in rates.items()])
