"""G-PATE's settings, and what they come to in one stage: teachers, noise, rounds and cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from dp_accounting import DpEvent

from fedsynth.core.randomness import torch_generator
from fedsynth.core.settings import setting
from fedsynth.core.types import Budget, Stage
from fedsynth.methods.pate.datalens.config import DataLensConfig
from fedsynth.methods.pate.datalens.parameters import Recipe, teachers_of
from fedsynth.privacy.accounting.calibration import gaussian_mu
from fedsynth.privacy.accounting.events import composed, gaussian, repeated
from fedsynth.privacy.mechanisms.votes import VoteBounds


@dataclass(frozen=True)
class Published:
    """What the authors chose for one budget."""

    teachers: int
    threshold_noise: float  # sigma_1, in votes
    noise: float  # sigma_2, in votes
    code: int


PUBLISHED = {1: Published(4000, 3000.0, 1000.0, 50), 10: Published(2000, 600.0, 100.0, 100)}


@dataclass(frozen=True)
class GPateConfig:
    """G-PATE's settings; the defaults are the published ones."""

    teachers: int | None = setting(
        None, "teachers, over all parties and stages; none: published", at_least=1
    )
    noise: float | None = setting(
        None, "noise on a histogram's counts, in votes (sigma_2); none: published, in proportion "
        "to the teachers", above=0
    )  # fmt: skip
    rounds: int | None = setting(
        None, "rounds, with as much noise as they need; none: as many as that noise pays for",
        at_least=1,
    )  # fmt: skip
    projections: int = setting(10, "directions a gradient is looked at from (p)", at_least=1)
    bins: int = setting(10, "bins of a histogram", at_least=2)
    reach: float = setting(1e-4, "the histograms' range is -reach..reach", above=0)
    confident: float = setting(0.5, "threshold, as a share of the teachers (T)", at_least=0)
    batch: int = setting(30, "most images voted on in a round", at_least=2)
    teacher_steps: int = setting(2, "updates of a teacher a round", at_least=1)
    pretraining: int = setting(10, "updates of a teacher in the first round", at_least=1)
    channels: int = setting(32, "channels of a teacher's second convolution", at_least=1)
    hidden: int = setting(256, "hidden units of a teacher", at_least=1)
    code: int | None = setting(None, "length of codes (z); none: published", at_least=1)
    step: float = setting(1.0, "how far the targets lie from the images", above=0)
    rate: float = setting(1e-3, "Adam's learning rate of the generator", above=0)
    generator_steps: int = setting(1, "updates of the generator a round (free)", at_least=1)
    generator_hidden: int = setting(1024, "hidden units of the generator", at_least=1)
    generator_channels: int = setting(128, "channels of the generator", at_least=1)
    spc: int = setting(6000, "images a class drawn from the generator", at_least=1)

    def published(self, budget: Budget) -> Published:
        """The authors' choice for the nearer budget."""
        return PUBLISHED[1 if budget.epsilon < math.sqrt(10) else 10]

    def as_datalens(self, budget: Budget) -> DataLensConfig:
        """The settings that DataLens's teachers and generator share with G-PATE's."""
        return DataLensConfig(
            teachers=self.teachers or self.published(budget).teachers,
            batch=self.batch,
            teacher_steps=self.teacher_steps,
            pretraining=self.pretraining,
            channels=self.channels,
            hidden=self.hidden,
            step=self.step,
            rate=self.rate,
            generator_steps=self.generator_steps,
            generator_hidden=self.generator_hidden,
            generator_channels=self.generator_channels,
            spc=self.spc,
        )


@dataclass(frozen=True)
class Vote:
    """What a round's votes cost: a noised histogram and a noised maximum a projection and image."""

    images: int
    projections: int
    threshold_noise: float
    noise: float

    @property
    def histograms(self) -> float:
        """The noise multiplier of all histograms of a round: a teacher moves two counts of each."""
        return self.noise / math.sqrt(2 * self.images * self.projections)

    @property
    def maxima(self) -> float:
        """The noise multiplier of all maxima of a round: a teacher moves each by one."""
        return self.threshold_noise / math.sqrt(self.images * self.projections)

    @property
    def event(self) -> DpEvent:
        """Both; every maximum is paid for, whether or not it reaches the threshold."""
        return composed([gaussian(self.histograms), gaussian(self.maxima)])

    @property
    def squares(self) -> float:
        """What a round takes of the mu^2 that a budget allows."""
        return self.histograms**-2 + self.maxima**-2

    def louder(self, factor: float) -> Vote:
        """The same with so many times the noise."""
        return Vote(
            self.images, self.projections, factor * self.threshold_noise, factor * self.noise
        )


@dataclass(frozen=True)
class GPateRecipe:
    """What the settings come to in one stage: public, the same for everybody."""

    vote: Vote
    datalens: Recipe  # the same for DataLens's teachers and generator

    @staticmethod
    def of(cfg: GPateConfig, stage: Stage, budget: Budget) -> GPateRecipe:
        """The recipe of a stage: noise that spends the budget to the end."""
        chosen, shared = cfg.published(budget), cfg.as_datalens(budget)
        teachers = teachers_of(shared, stage)
        everybody = sum(teachers.values())
        images = max(2, min(cfg.batch, sum(f.records for f in stage.parties) // everybody))
        noise = cfg.noise or chosen.noise * everybody / chosen.teachers
        ratio = chosen.threshold_noise / chosen.noise
        vote = Vote(images, cfg.projections, ratio * noise, noise)
        mu = gaussian_mu(budget.epsilon, budget.delta, budget.accounting, budget.relation)
        rounds = cfg.rounds or max(1, math.floor(mu**2 / vote.squares))
        vote = vote.louder(math.sqrt(rounds * vote.squares) / mu)
        width = cfg.projections * cfg.bins
        rule = VoteBounds(width, cfg.projections, 0, 1)
        recipe = Recipe(
            teachers=teachers,
            images=images,
            width=math.prod(stage.data.shape),
            entries=cfg.projections,
            beta=cfg.confident,
            code=cfg.code or chosen.code,
            sigma=vote.noise,
            rounds=rounds,
            multiplier=vote.histograms,
            paper_multiplier=vote.histograms,
            rule=rule,
            sketch=None,
        )
        return GPateRecipe(vote, recipe)

    @property
    def event(self) -> DpEvent:
        """What all rounds cost one record."""
        return repeated(self.vote.event, self.datalens.rounds)


def projection(width: int, count: int, *key: object) -> torch.Tensor:
    """Standard normal directions, public and fresh for every round, [width, count]."""
    return torch.randn((width, count), generator=torch_generator(*key, "projection"))


def ballots(values: torch.Tensor, cfg: GPateConfig) -> torch.Tensor:
    """One vote a projection: the bin its clipped value falls into, [..., projections bins] int8."""
    places = ((values / cfg.reach).clamp(-1, 1) + 1) * (cfg.bins / 2)
    chosen = places.floor().long().clamp(0, cfg.bins - 1)
    return torch.nn.functional.one_hot(chosen, cfg.bins).to(torch.int8).flatten(-2)


def answers(
    counts: torch.Tensor, maxima: torch.Tensor, teachers: int, cfg: GPateConfig
) -> torch.Tensor:
    """The confident answers: the middle of the fullest bin where the maximum reaches its threshold,
    else 0; [images, projections]."""
    fullest = counts.unflatten(1, (cfg.projections, cfg.bins)).argmax(2)
    middles = cfg.reach * (2 * (fullest + 0.5) / cfg.bins - 1)
    return torch.where(maxima >= cfg.confident * teachers, middles, 0.0)
