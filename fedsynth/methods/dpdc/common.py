"""The settings and facts that both forms of differentially private data condensation share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from fedsynth.core.enums import DataKind
from fedsynth.core.plan import PARTY_CLASS_COUNTS, PartyPlan
from fedsynth.core.settings import setting
from fedsynth.core.types import Budget, ComputeCost, PartyInfo, Stage
from fedsynth.methods.common.one_shot import OneShotMethod, set_bytes
from fedsynth.methods.common.poisson_plan import class_rates, sampled_party_plan


@dataclass(frozen=True)
class GroupConfig:
    """The settings of sums over Poisson groups of a class; the defaults are the published ones."""

    spc: int = setting(50, "synthetic images per class (M)", at_least=1, at_most=1_000_000)
    group: int = setting(50, "expected records of a class in a group (L)", at_least=1)
    noise: float | None = setting(
        None, "noise over sensitivity (published: 1); default: what the budget allows", above=0
    )


D = TypeVar("D", bound=GroupConfig)


class DataCondensation(OneShotMethod[D]):
    """A one-shot method on noised sums over Poisson groups of each class (Zheng and Li)."""

    paper_convention = "rdp_improved_2000"
    kinds = (DataKind.IMAGE, DataKind.TABLE)
    assumes = (PARTY_CLASS_COUNTS,)

    def group_plan(
        self,
        cfg: D,
        stage: Stage,
        info: PartyInfo,
        budget: Budget,
        *,
        steps: int,
        cost: tuple[ComputeCost, ...] = (),
    ) -> PartyPlan:
        """One party's part of the plan: `steps` sums, each over a group of every class."""
        return sampled_party_plan(
            info,
            budget,
            sampling_rate=max(class_rates(cfg.group, info).values()),
            steps=steps,
            noise=cfg.noise,
            bytes_up=set_bytes(stage, len(info.class_counts), cfg.spc),
            cost=cost,
        )
