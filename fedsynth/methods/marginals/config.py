"""The settings of MST, and the noise that follows from settings and budget."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedsynth.core.errors import UserError
from fedsynth.core.settings import setting
from fedsynth.core.types import Budget
from fedsynth.privacy.accounting.calibration import gaussian_mu


@dataclass(frozen=True)
class MSTConfig:
    """MST's settings; the shares of the budget are the published ones."""

    spc: int | None = setting(
        None, "rows per class and party; none: as many as the party has records", at_least=1
    )
    columns_share: float = setting(
        1 / 3, "share of mu^2 for tables of single columns", above=0, below=1
    )
    choice_share: float = setting(1 / 3, "share of mu^2 for the choice of pairs", above=0, below=1)
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
        """The multipliers that use up the budget of a party.

        Raises:
            UserError: The shares leave nothing for the pairs.
        """
        rest = 1 - cfg.columns_share - cfg.choice_share
        if rest < 0.01:
            raise UserError(
                f"mst.columns_share={cfg.columns_share:g} and mst.choice_share="
                f"{cfg.choice_share:g} leave {max(rest, 0):g} of the budget for pairs. Allowed: "
                "a sum of at most 0.99."
            )
        mu = gaussian_mu(budget.epsilon, budget.delta, budget.accounting, budget.relation)
        shares = cfg.columns_share, cfg.choice_share, rest
        return NoiseMultipliers(*(1 / (mu * math.sqrt(share)) for share in shares))
