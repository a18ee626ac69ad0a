"""The settings of MST, and the noise that follows from settings and budget."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedsynth.core.settings import setting
from fedsynth.core.types import Budget
from fedsynth.privacy.accounting.calibration import gaussian_mu


@dataclass(frozen=True)
class MSTConfig:
    """MST's settings; the weights are the published ones: thirds."""

    spc: int | None = setting(
        None, "rows per class and party; none: as many as the party has records", at_least=1
    )
    columns_weight: float = setting(
        1.0, "weight in mu^2 of tables of single columns", above=0, at_most=1e6
    )
    choice_weight: float = setting(
        1.0, "weight in mu^2 of the choice of pairs", above=0, at_most=1e6
    )
    pairs_weight: float = setting(1.0, "weight in mu^2 of tables of pairs", above=0, at_most=1e6)
    by_class: bool = setting(False, "tables for each class, in place of the label as a column")
    fine_bins: int = setting(
        100, "bins of a column of numbers in its public range", at_least=2, at_most=10_000
    )
    bins: int = setting(
        32, "bins of a column of numbers in tables of pairs, about", at_least=2, at_most=10_000
    )
    few: float = setting(
        3.0, "categories below so many deviations of the noise become one", at_least=0
    )


@dataclass(frozen=True)
class NoiseMultipliers:
    """The noise multipliers of the three mechanisms of a party."""

    columns: float
    choice: float
    pairs: float

    @staticmethod
    def of(cfg: MSTConfig, budget: Budget) -> NoiseMultipliers:
        """The multipliers that use up the budget of a party."""
        mu = gaussian_mu(budget.epsilon, budget.delta, budget.accounting, budget.relation)
        weights = cfg.columns_weight, cfg.choice_weight, cfg.pairs_weight
        return NoiseMultipliers(*(math.sqrt(sum(weights) / weight) / mu for weight in weights))
