"""Refuses a run whose own noise costs more than its budget, before anything is written.

Noise that the budget calibrates is always within it. Noise that is given (`METHOD.noise=`) may not
be, and a party would refuse in the middle of the run.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from fedsynth.core.errors import UserError
from fedsynth.experiment.experiment import Experiment
from fedsynth.experiment.job import Job
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.ledger import SLACK

NOISE_KEYS = ("noise", "sigma")  # settings that fix the noise


def check_affordable(experiment: Experiment) -> None:
    """Refuse given noise that costs more than the budget.

    Raises:
        UserError: A plan is above its budget; the message names the key, the cost and the budget.
    """
    for job in experiment.first_seed_jobs:
        if job.method_impl.private and (key := given_noise(job.config)):
            _check(job, key)


def given_noise(config: Any) -> str:
    """The name of the setting that fixes the noise; empty if the budget calibrates it."""
    names = {field.name for field in dataclasses.fields(config)}
    given = (key for key in NOISE_KEYS if key in names and getattr(config, key) is not None)
    return next(given, "")


def _check(job: Job, key: str) -> None:
    budget = job.budget
    events = {
        repr(share.event): share.event for plan in job.plans for share in plan.parties
    }.values()
    cost = max(epsilon(event, budget.delta, budget.accounting, budget.relation) for event in events)
    if cost > budget.epsilon * (1 + SLACK):
        raise UserError(
            f"{job.method}.{key}={getattr(job.config, key):g} costs epsilon={cost:.4g} at "
            f"delta={budget.delta:g} (unit {budget.unit}, relation {budget.relation}, accounting "
            f"{budget.accounting}), and the budget is epsilon={budget.epsilon:g}. Allowed: more "
            f"noise, {job.method}.{key} left out (the budget sets it), or a larger epsilon."
        )
