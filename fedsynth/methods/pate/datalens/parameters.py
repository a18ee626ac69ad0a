"""What DataLens's settings come to in one stage: teachers, noise, rounds and what they cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dp_accounting import DpEvent

from fedsynth.core.enums import Unit
from fedsynth.core.errors import UserError
from fedsynth.core.types import Budget, Stage
from fedsynth.methods.common.noise_placement import required_answers
from fedsynth.methods.pate.datalens.config import DataLensConfig, published
from fedsynth.nn.ensembles.teacher_config import TeacherShape
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.calibration import gaussian_mu
from fedsynth.privacy.accounting.events import gaussian, repeated
from fedsynth.privacy.count_sketch import CountSketch
from fedsynth.privacy.guard import DISTRIBUTED, PARTY
from fedsynth.privacy.ledger import SLACK
from fedsynth.privacy.mechanisms.votes import VoteBounds

CONVENTION = "rdp_classic_199"
WEAK = 0.25  # all teachers' votes on a coordinate over the noise; 0.8 at the published setting


@dataclass(frozen=True)
class Recipe:
    """What the settings come to in one stage: public, the same for everybody."""

    teachers: Mapping[int, int]  # by party
    images: int  # voted on in a round (m)
    width: int  # numbers an image has (d)
    entries: int
    beta: float
    code: int
    sigma: float
    rounds: int
    multiplier: float  # sigma over the sensitivity of a round
    paper_multiplier: float  # as its authors count
    rule: VoteBounds
    sketch: CountSketch | None

    @staticmethod
    def of(cfg: DataLensConfig, stage: Stage, budget: Budget) -> Recipe:
        """The recipe of a stage."""
        chosen = published(stage.data.name, budget.epsilon)
        teachers = teachers_of(cfg, stage)
        if budget.unit == Unit.USER:  # all records of a party must be one teacher's
            teachers = dict.fromkeys(teachers, 1)
        records = sum(info.records for info in stage.parties)
        images = max(2, min(cfg.batch, records // sum(teachers.values())))
        width = math.prod(stage.data.shape)
        entries = width if cfg.compression in ("none", "d2p") else cfg.entries or chosen.entries
        if entries > width:
            raise UserError(
                f"datalens.entries={entries}: an image of {stage.data.name} has {width} numbers."
            )
        rule = rule_of(cfg, width, entries)
        sketch = sketch_of(cfg, width)
        sensitivity = rule.sensitivity(images, sketch)
        by_paper = paper_sensitivity(cfg, width, entries, images)
        counted = sensitivity
        if budget.accounting == CONVENTION:
            counted = max(sensitivity, by_paper)
        sigma = cfg.sigma or chosen.sigma
        rounds, multiplier = spending(budget, multiplier=sigma / counted, most=cfg.rounds)
        if not rounds:
            least = counted / gaussian_mu(
                budget.epsilon, budget.delta, budget.accounting, budget.relation
            )
            raise UserError(
                f"datalens.sigma={sigma:g}: one round of {images} images, each with "
                f"{entries} votes of a teacher, costs more than epsilon={budget.epsilon:g}. "
                f"Allowed: a sigma of at least {math.ceil(least)}, fewer entries, a smaller batch."
            )
        sigma = multiplier * counted
        return Recipe(
            teachers,
            images,
            width,
            entries,
            chosen.beta if cfg.beta is None else cfg.beta,
            cfg.code or chosen.code,
            sigma,
            rounds,
            sigma / sensitivity,
            sigma / by_paper,
            rule,
            sketch,
        )

    @property
    def sensitivity(self) -> float:
        """How far one teacher moves the sums of a round."""
        return self.rule.sensitivity(self.images, self.sketch)

    @property
    def event(self) -> DpEvent:
        """What all rounds cost one record."""
        return repeated(gaussian(self.multiplier), self.rounds)

    @property
    def paper_event(self) -> DpEvent:
        """The published count."""
        return repeated(gaussian(self.paper_multiplier), self.rounds)

    def shape(self, cfg: DataLensConfig, stage: Stage) -> TeacherShape:
        """The teachers of this stage."""
        classes = len(stage.classes)
        return TeacherShape(stage.data.shape, classes, self.images, cfg.channels, cfg.hidden)


def rule_of(cfg: DataLensConfig, width: int, entries: int) -> VoteBounds:
    """What a ballot may hold."""
    if cfg.compression == "d2p":
        low = -(cfg.levels // 2)
        return VoteBounds(width, width, low, low + cfg.levels - 1)
    return VoteBounds(width, entries)


def sketch_of(cfg: DataLensConfig, width: int) -> CountSketch | None:
    """The sketch that ballots are counted through, where they are; the same for everybody."""
    if cfg.compression != "sketch":
        return None
    return CountSketch(width, cfg.sketch_rows, cfg.sketch_columns, "datalens")


def paper_sensitivity(cfg: DataLensConfig, width: int, entries: int, images: int) -> float:
    """The published one of a round: 2 sqrt(k) an image, also through a sketch; for D2P-Fed
    sqrt(2 d) times the levels, more than it takes."""
    one = math.sqrt(2 * width) * cfg.levels if cfg.compression == "d2p" else 2 * math.sqrt(entries)
    return one * math.sqrt(images)


def teachers_of(cfg: DataLensConfig, stage: Stage) -> dict[int, int]:
    """How many teachers each party hosts: its share by records, at least one."""
    records = sum(info.records for info in stage.parties)
    wanted = min(max(cfg.teachers // stage.count, len(stage.parties)), records)
    shares = {f.party: wanted * f.records / records for f in stage.parties}
    hosted = {party: max(1, math.floor(share)) for party, share in shares.items()}
    by_rest = sorted(shares, key=lambda party: (hosted[party] - shares[party], party))
    for party in by_rest[: max(0, wanted - sum(hosted.values()))]:
        hosted[party] += 1
    return hosted


def spending(budget: Budget, *, multiplier: float, most: int) -> tuple[int, float]:
    """How many rounds of a Gaussian with this multiplier the budget pays for, and the multiplier.

    Worked out before the first round, as every round costs the same whatever the votes are. Where
    more than `most` rounds would be paid for, those are made, with less noise."""

    def cost(rounds: int) -> float:
        event = repeated(gaussian(multiplier), rounds)
        return epsilon(event, budget.delta, budget.accounting, budget.relation)

    limit = budget.epsilon * (1 + SLACK)
    mu = gaussian_mu(budget.epsilon, budget.delta, budget.accounting, budget.relation)
    rounds = min(most + 1, math.ceil((mu * multiplier) ** 2) + 1)
    while rounds and cost(rounds) > limit:
        rounds -= 1
    if rounds > most:
        return most, math.sqrt(most) / mu
    return rounds, multiplier


def weakness(cfg: DataLensConfig, recipe: Recipe, stage: Stage) -> tuple[str, ...]:
    """A word where the noise drowns the votes: too few teachers, or too small a budget."""
    teachers, parties = sum(recipe.teachers.values()), len(stage.parties)
    times = parties / required_answers(cfg, stage) if cfg.at == DISTRIBUTED else 1.0
    noise = recipe.sigma * math.sqrt(parties if cfg.at == PARTY else times)
    ratio = teachers / noise
    if recipe.sketch is not None or ratio >= WEAK:
        return ()
    alone = math.erfc(recipe.beta * ratio / math.sqrt(2)) if cfg.threshold else 1.0
    return (
        f"datalens: {teachers:,} teachers of one mind against noise of {noise:,.0f} votes are a "
        f"signal-to-noise ratio of {ratio:.2g} a coordinate (4,000 against 5,000 as published: "
        f"0.8); the noise alone moves {alone:.0%} of all coordinates. It needs thousands of "
        "teachers, or a larger epsilon, fewer rounds, or fewer entries.",
    )
