"""Settings of G-PATE, and its parameters in one stage: teachers, noise, rounds and their cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dp_accounting import DpEvent

from fedsynth.core.settings import setting
from fedsynth.core.types import Budget, Stage
from fedsynth.methods.pate.datalens.config import EnsembleConfig
from fedsynth.methods.pate.datalens.parameters import EnsembleParameters, teachers_per_party
from fedsynth.privacy.accounting.calibration import gaussian_mu
from fedsynth.privacy.accounting.events import composed, gaussian, repeated
from fedsynth.privacy.mechanisms.votes import VoteBounds


@dataclass(frozen=True)
class PublishedSetting:
    """The authors' choice for one budget."""

    teachers: int
    threshold_noise: float  # sigma_1, in votes
    noise: float  # sigma_2, in votes
    latent: int


PUBLISHED = {
    1: PublishedSetting(4000, 3000.0, 1000.0, 50),
    10: PublishedSetting(2000, 600.0, 100.0, 100),
}


@dataclass(frozen=True)
class GPateConfig(EnsembleConfig):
    """Settings of G-PATE; the defaults are the published ones."""

    teachers: int | None = setting(
        None, "teachers over all parties and stages; none: published", at_least=1
    )
    noise: float | None = setting(
        None, "noise on a histogram's counts, in votes (sigma_2); none: published, in proportion "
        "to the teachers", above=0
    )  # fmt: skip
    rounds: int | None = setting(
        None, "rounds, with as much noise as they need; none: as many as that noise allows",
        at_least=1,
    )  # fmt: skip
    teacher_steps: int = setting(1, "updates per teacher and round", at_least=1)
    pretraining: int | None = setting(1, "updates per teacher in the first round", at_least=1)
    projections: int = setting(10, "random directions that a gradient is projected on", at_least=1)
    bins: int = setting(10, "bins of a histogram", at_least=2)
    clip: float = setting(
        1e-4, "bound c on a projected gradient; histograms cover -c..c", above=0, formerly="reach"
    )
    threshold: float = setting(
        0.5, "votes that the fullest bin needs, as a fraction of the teachers (T)", at_least=0,
        formerly="confident",
    )  # fmt: skip
    step_size: float = setting(
        1.0, "distance of the target images from the images", above=0, formerly="step"
    )

    def published(self, budget: Budget) -> PublishedSetting:
        """The authors' choice for the nearer budget."""
        return PUBLISHED[1 if budget.epsilon < math.sqrt(10) else 10]


@dataclass(frozen=True)
class RoundNoise:
    """The noise of one round: on one histogram and on one maximum per projection and image."""

    images: int
    projections: int
    threshold_noise: float
    noise: float

    @property
    def histograms(self) -> float:
        """The noise multiplier of all histograms together: a teacher moves two counts of each."""
        return self.noise / math.sqrt(2 * self.images * self.projections)

    @property
    def maxima(self) -> float:
        """The noise multiplier of all maxima together: a teacher moves each by at most one."""
        return self.threshold_noise / math.sqrt(self.images * self.projections)

    @property
    def event(self) -> DpEvent:
        """The cost of a round; each maximum is charged, also below the threshold."""
        return composed([gaussian(self.histograms), gaussian(self.maxima)])

    @property
    def squared_mu(self) -> float:
        """A round's part of the squared Gaussian-DP parameter mu that a budget allows."""
        return self.histograms**-2 + self.maxima**-2

    def scaled(self, factor: float) -> RoundNoise:
        """The same with all noise multiplied by `factor`."""
        return RoundNoise(
            self.images, self.projections, factor * self.threshold_noise, factor * self.noise
        )


@dataclass(frozen=True)
class GPateParameters(EnsembleParameters):
    """Public parameters of G-PATE in one stage."""

    noise: RoundNoise

    @staticmethod
    def of(cfg: GPateConfig, stage: Stage, budget: Budget) -> GPateParameters:
        """Compute the parameters of a stage, with noise that uses up the budget."""
        published = cfg.published(budget)
        teachers = teachers_per_party(cfg.teachers or published.teachers, stage)
        total = sum(teachers.values())
        images = max(2, min(cfg.batch, sum(info.records for info in stage.parties) // total))
        sigma = cfg.noise or published.noise * total / published.teachers
        ratio = published.threshold_noise / published.noise
        noise = RoundNoise(images, cfg.projections, ratio * sigma, sigma)
        mu = gaussian_mu(budget.epsilon, budget.delta, budget.accounting, budget.relation)
        rounds = cfg.rounds or max(1, math.floor(mu**2 / noise.squared_mu))
        noise = noise.scaled(math.sqrt(rounds * noise.squared_mu) / mu)
        return GPateParameters(
            teachers=teachers,
            images=images,
            width=math.prod(stage.data.shape),
            latent=cfg.latent or published.latent,
            rounds=rounds,
            multiplier=noise.histograms,
            bounds=VoteBounds(cfg.projections * cfg.bins, cfg.projections, 0, 1),
            noise=noise,
        )

    @property
    def event(self) -> DpEvent:
        """The privacy cost of all rounds to one record."""
        return repeated(self.noise.event, self.rounds)
