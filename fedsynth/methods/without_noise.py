"""A private method without its noise: the reference that tells whether the method learns at all.

Everything is as published (networks, sampling, clipping, votes, number of rounds) except that the
guard adds no noise. Each use of a mechanism is charged as a disclosure, so the ledger records
epsilon = infinity, no party with a finite budget pays for it, and the policy of a party that is
not simulated refuses it by the plan's `without_noise`.

`METHOD.noise=none` selects it. It has a name of its own, METHOD_without_noise, in run directories,
ledgers, metrics, certificates and reports, where all that is known of references holds for it.

Settings that follow from the budget are those of `PLANNED_EPSILON`, at which the publications print
their main results; the server still treats what it receives as noised.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fedsynth.core.enums import Accounting
from fedsynth.core.errors import UserError
from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import Outcome
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.types import Budget, DatasetInfo, Stage
from fedsynth.methods.method import Method, PartyContext, Result, ServerContext, ServerWork
from fedsynth.privacy.accounting.events import without_noise

PLANNED_EPSILON = 10.0


@dataclass(frozen=True)
class PlanWithoutNoise(Plan):
    """The public plan of a reference, with the plan of the private method that it follows."""

    noised: Plan | None = None


class MethodWithoutNoise(Method[Any]):
    """The reference of `base`, which is planned as `base` would be for a finite budget."""

    private = False
    base: ClassVar[Method[Any]]

    def unfit(self, data: DatasetInfo) -> str:
        return self.base.unfit(data)

    def at_budget(self, cfg: Any, stages: Sequence[Stage], budget: Budget) -> Any:
        return self.base.at_budget(cfg, stages, planned_budget(budget))

    def inherits(self, cfg: Any) -> bool:
        return self.base.inherits(cfg)

    def plan(self, cfg: Any, stage: Stage, budget: Budget) -> PlanWithoutNoise:
        noised = self.base.plan(cfg, stage, planned_budget(budget))
        warning = (
            f"{self.name} is {self.base.name} without its noise: a reference that is NOT private. "
            "Epsilon is infinite, and what it releases must not be published."
        )
        return PlanWithoutNoise(
            self.name,
            stage,
            budget,
            tuple(map(_party_plan, noised.parties)),
            rounds=noised.rounds,
            images=noised.images,
            server_cost=noised.server_cost,
            warnings=(warning,),
            noised=noised,
        )

    def party(self, ctx: PartyContext[Any], request: Request) -> Release:
        """Answer as the private method does, by its plan; the guard alone knows of no noise."""
        return self.base.party(replace(ctx, plan=noised_plan(ctx.plan)), request)

    def serve(self, ctx: ServerContext[Any]) -> Outcome:
        inner = copy.copy(ctx)
        compute = functools.partial(ctx.compute, _computed)
        vars(inner).update(plan=noised_plan(ctx.plan), compute=compute)
        return self.base.serve(inner)


def _computed(work: ServerWork[Any], function: Callable[..., Result], *arguments: Any) -> Result:
    """The private method in a worker, by its own plan, which keys its randomness."""
    inner = copy.copy(work)
    vars(inner).update(plan=noised_plan(work.plan))
    return function(inner, *arguments)


def noised_plan(plan: Plan) -> Plan:
    """The plan of the private method in the plan of its reference."""
    assert isinstance(plan, PlanWithoutNoise)
    assert plan.noised is not None
    return plan.noised


def planned_budget(budget: Budget) -> Budget:
    """The budget whose settings and schedule are run without noise."""
    accounting = budget.accounting if budget.accounting in tuple(Accounting) else Accounting.PLD
    return replace(budget, epsilon=PLANNED_EPSILON, accounting=accounting)


def _party_plan(plan: PartyPlan) -> PartyPlan:
    return replace(
        plan,
        event=without_noise(plan.event),
        noise_multiplier=0.0,
        views={},
        paper_event=None,
        without_noise=True,
    )


@functools.cache
def without_its_noise(base: Method[Any], name: str) -> Method[Any]:
    """The reference of a private method, under this name.

    Raises:
        UserError: The method adds no noise anyway.
    """
    if not base.private:
        raise UserError(
            f"{base.name}.noise=none: {base.name} is a reference and adds no noise. Leave it out."
        )
    same = ("Config", "presets", "paper_convention", "paper_relation", "units", "kinds")
    attributes = {name: getattr(base, name) for name in (*same, "keeps_state", "source")}
    attributes |= {
        "base": base,
        "name": name,
        "summary": f"NOT private: {base.name} without its noise ({base.name}.noise=none)",
    }
    cls: type[Method[Any]] = type(
        f"{type(base).__name__}WithoutNoise", (MethodWithoutNoise,), attributes
    )
    return cls()


def with_its_noise(some: Method[Any]) -> Method[Any]:
    """The private method of a reference that leaves out the noise; any other method itself."""
    return some.base if isinstance(some, MethodWithoutNoise) else some
