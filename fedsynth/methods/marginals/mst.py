"""MST: tables of columns and of pairs of columns along a tree, noised, and rows drawn from them.

McKenna, Miklau, Sheldon, "Winning the NIST Contest: A scalable and general approach to
differentially private synthetic data", 2021. A party measures its columns, chooses the pairs of
columns that depend on each other most as a maximum spanning tree, measures these pairs, and draws
rows from the distribution that agrees with all measurements. The label is a column like the others,
and the root of the tree.

Departures from the paper:

* Its tree is chosen by repeated exponential mechanisms. Here the scores of all pairs are noised at
  once by one Gaussian mechanism, and the tree is post-processing. A score is the L1 distance
  between a pair's counts and those of independent columns, as in the paper, less what chance and
  the coming noise would add to it.
* The number of records of each class is public here, as in the other methods, and not measured.
* Numbers are cut into bins of equal width in their public range, and neighbouring bins are merged
  by their noised counts; the paper expects categories.
* With `by_class`, the records of each class have tables of their own, along one common tree of the
  other columns: every pair is measured together with the label, which serves classifiers.
* Inference is exact on the tree (`tree`), so that the authors' package is not needed: its current
  version needs JAX.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import torch

from fedsynth.core.enums import DataKind
from fedsynth.core.messages import Request
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.plan import PARTY_CLASS_COUNTS, PartyPlan, Plan
from fedsynth.core.randomness import numpy_generator
from fedsynth.core.types import Budget, PartyInfo, Stage
from fedsynth.methods.common.one_shot import OneShotMethod
from fedsynth.methods.marginals.config import MSTConfig, NoiseMultipliers
from fedsynth.methods.marginals.table_model import Arrays, TableModel
from fedsynth.methods.method import PartyContext
from fedsynth.privacy.accounting.events import composed, gaussian
from fedsynth.privacy.mechanisms.marginals import MarginalCounts


class MST(OneShotMethod[MSTConfig]):
    """A party releases rows drawn from its tree of columns."""

    name = "mst"
    summary = "Rows drawn from noised tables of the pairs of columns along a spanning tree"
    source = "McKenna, Miklau, Sheldon 2021, Winning the NIST Contest (MST)"
    paper_convention = "pld"
    kinds = (DataKind.TABLE,)
    assumes = (PARTY_CLASS_COUNTS,)
    presets = {"smoke": {"spc": 1000}, "laptop": {"by_class": True}}

    def plan(self, cfg: MSTConfig, stage: Stage, budget: Budget) -> Plan:
        parties = tuple(self.party_plan(cfg, stage, info, budget) for info in stage.parties)
        rows = sum(sum(rows_per_class(cfg, info)) for info in stage.parties)
        return Plan(self.name, stage, budget, parties, images=rows, assumes=self.assumes)

    def party_plan(
        self, cfg: MSTConfig, stage: Stage, info: PartyInfo, budget: Budget
    ) -> PartyPlan:
        noise = NoiseMultipliers.of(cfg, budget)
        multipliers = (noise.columns, noise.choice, noise.pairs)
        return PartyPlan(
            info.party,
            info.records,
            event=composed([gaussian(multiplier) for multiplier in multipliers]),
            steps=len(multipliers),
            noise_multiplier=noise.pairs,
            bytes_up=sum(rows_per_class(cfg, info)) * (4 * math.prod(stage.data.shape) + 8),
        )

    def synthesize(self, ctx: PartyContext[MSTConfig], request: Request) -> SyntheticSet:
        rng = numpy_generator(*ctx.random_key(request), "rows")
        classes = torch.tensor(sorted(ctx.info.class_counts))
        labels = np.repeat(np.arange(len(classes)), rows_per_class(ctx.config, ctx.info))
        measure = functools.partial(_measured, ctx)
        noise = NoiseMultipliers.of(ctx.config, ctx.plan.budget)
        rows = TableModel.fit(ctx.config, ctx.dataset, ctx.info, noise, measure).draw(labels, rng)
        images = torch.from_numpy(rows).float()[:, :, None, None]
        return SyntheticSet(images, classes[torch.from_numpy(labels)])


def _measured(ctx: PartyContext[MSTConfig], mechanism: MarginalCounts, call: int) -> Arrays:
    """The noised answers of a mechanism on the party's records."""
    answers = ctx.guard.apply(mechanism, ctx.data, call=call)
    return [answer.double().cpu().numpy() for answer in answers]


def rows_per_class(cfg: MSTConfig, info: PartyInfo) -> list[int]:
    """The number of rows of each class that a party releases, by ascending class."""
    return [cfg.spc or count for _, count in sorted(info.class_counts.items())]
