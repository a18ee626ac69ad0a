"""Parameters of DataLens in one stage: teachers, noise, rounds and their privacy cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from dp_accounting import DpEvent

from fedsynth.core.enums import NoisePlacement, Relation, Unit
from fedsynth.core.errors import UserError
from fedsynth.core.types import Budget, ComputeCost, Stage
from fedsynth.methods.pate.datalens.config import (
    Compression,
    DataLensConfig,
    EnsembleConfig,
    published_setting,
)
from fedsynth.nn.ensembles.teacher_config import TeacherConfig
from fedsynth.nn.gan.label_dcgan import LabelDCGAN
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.calibration import gaussian_mu
from fedsynth.privacy.accounting.events import gaussian, gaussian_of_exchange, repeated
from fedsynth.privacy.count_sketch import CountSketch
from fedsynth.privacy.ledger import SLACK
from fedsynth.privacy.mechanisms.votes import Assignment, VoteBounds

CONVENTION = "rdp_classic_199"
LOW_SIGNAL = 0.25  # sum of unanimous votes over the noise; 0.8 at the published setting


@dataclass(frozen=True)
class EnsembleParameters:
    """Public parameters of the teachers, their votes and the generator, also used by G-PATE."""

    teachers: Mapping[int, int]  # per party
    images: int  # voted on per round (m)
    width: int  # numbers per image (d)
    latent: int
    rounds: int
    multiplier: float  # noise over the sensitivity of a round's vote sums
    bounds: VoteBounds

    def teacher_shape(self, cfg: EnsembleConfig, stage: Stage) -> TeacherConfig:
        """The sizes of a teacher."""
        classes = len(stage.classes)
        return TeacherConfig(stage.data.shape, classes, self.images, cfg.channels, cfg.hidden)

    def teacher_memory(
        self, cfg: EnsembleConfig, stage: Stage, party: int, dtype: torch.dtype
    ) -> int:
        """The bytes of a party's teachers and their optimisers."""
        return self.teacher_shape(cfg, stage).state_bytes(self.teachers[party], dtype)

    def teacher_cost(self, cfg: EnsembleConfig, party: int) -> ComputeCost:
        """The work of a party's teachers. A unit is a round with two updates and one vote, taken
        here as three equal parts."""
        rounds = math.ceil(self.rounds * (cfg.teacher_steps + 1) / 3)
        return ComputeCost("teachers", cfg.hidden, self.teachers[party], rounds)

    def check_sizes(self, cfg: EnsembleConfig, stage: Stage) -> None:
        """Refuse images that the networks cannot process, before any budget is spent."""
        self.teacher_shape(cfg, stage)
        with torch.device("meta"):
            LabelDCGAN(self.latent, len(stage.classes), stage.data.shape, 1, 1)

    def query_bytes(self, stage: Stage) -> int:
        """The size of a round's images and labels, as the server sends them to each party."""
        return 4 * self.images * (len(stage.classes) + 1) * self.width + 8 * self.images


@dataclass(frozen=True)
class DataLensParameters(EnsembleParameters):
    """Public parameters of DataLens in one stage."""

    entries: int
    beta: float
    sigma: float
    paper_multiplier: float  # as its authors count
    sketch: CountSketch | None
    assignment: Assignment

    @staticmethod
    def of(cfg: DataLensConfig, stage: Stage, budget: Budget) -> DataLensParameters:
        """Compute the parameters of a stage from public facts.

        Raises:
            UserError: `entries` exceeds the image, the budget does not cover a single round, or
                the assignment of records does not bound what the budget is for.
        """
        check_assignment(cfg, budget)
        published = published_setting(stage.data.name, budget.epsilon)
        teachers = teachers_per_party(cfg.teachers or published.teachers, stage)
        if budget.unit == Unit.USER:  # all records of a party belong to one teacher
            teachers = dict.fromkeys(teachers, 1)
        records = sum(info.records for info in stage.parties)
        images = max(2, min(cfg.batch, records // sum(teachers.values())))
        width = math.prod(stage.data.shape)
        entries = (
            width
            if cfg.compression in (Compression.NONE, Compression.D2P)
            else cfg.entries or published.entries
        )
        if entries > width:
            raise UserError(
                f"datalens.entries={entries}: an image of {stage.data.name} has {width} numbers."
            )
        bounds = vote_bounds(cfg, width, entries)
        sketch = vote_sketch(cfg, width)
        sensitivity = bounds.sensitivity(images, sketch)
        by_paper = paper_sensitivity(cfg, width, entries, images)
        counted = max(sensitivity, by_paper) if budget.accounting == CONVENTION else sensitivity
        sigma = cfg.sigma or published.sigma
        rounds, multiplier = affordable_rounds(
            budget,
            multiplier=sigma / counted,
            at_most=cfg.rounds,
            assignment=cfg.assignment,
        )
        if not rounds:
            least = counted / allowed_mu(budget, cfg.assignment)
            raise UserError(
                f"datalens.sigma={sigma:g}: one round of {images} images with {entries} votes per "
                f"teacher and image costs more than epsilon={budget.epsilon:g}. Allowed: a sigma "
                f"of at least {math.ceil(least)}, fewer entries, a smaller batch."
            )
        sigma = multiplier * counted
        return DataLensParameters(
            teachers=teachers,
            images=images,
            width=width,
            latent=cfg.latent or published.latent,
            rounds=rounds,
            multiplier=sigma / sensitivity,
            bounds=bounds,
            entries=entries,
            beta=published.beta if cfg.beta is None else cfg.beta,
            sigma=sigma,
            paper_multiplier=sigma / by_paper,
            sketch=sketch,
            assignment=cfg.assignment,
        )

    @property
    def sensitivity(self) -> float:
        """The L2 distance by which one teacher can change the vote sums of a round."""
        return self.bounds.sensitivity(self.images, self.sketch)

    @property
    def event(self) -> DpEvent:
        """The privacy cost of all rounds to one record."""
        return repeated(_ROUND[self.assignment](self.multiplier), self.rounds)

    @property
    def paper_event(self) -> DpEvent:
        """The privacy cost as its authors count it."""
        return repeated(gaussian(self.paper_multiplier), self.rounds)

    @property
    def release_shape(self) -> tuple[int, ...]:
        """The shape of a party's release in one round."""
        if self.sketch is None:
            return self.images, self.width
        return self.images, self.sketch.rows, self.sketch.columns


def vote_bounds(cfg: DataLensConfig, width: int, entries: int) -> VoteBounds:
    """The bounds that a vote vector keeps."""
    if cfg.compression == Compression.D2P:
        low = -(cfg.levels // 2)
        return VoteBounds(width, width, low, low + cfg.levels - 1)
    return VoteBounds(width, entries)


def vote_sketch(cfg: DataLensConfig, width: int) -> CountSketch | None:
    """The count sketch that votes are summed through, if any; the same at all parties."""
    if cfg.compression != Compression.SKETCH:
        return None
    return CountSketch(width, cfg.sketch_rows, cfg.sketch_columns, "datalens")


def paper_sensitivity(cfg: DataLensConfig, width: int, entries: int, images: int) -> float:
    """The published sensitivity of a round: 2 sqrt(k) per image, also through a sketch.

    For D2P-Fed it is sqrt(2 d) times the levels, which is more than necessary."""
    one = (
        math.sqrt(2 * width) * cfg.levels
        if cfg.compression == Compression.D2P
        else 2 * math.sqrt(entries)
    )
    return one * math.sqrt(images)


def teachers_per_party(teachers: int, stage: Stage) -> dict[int, int]:
    """A stage's part of all teachers, shared among its parties by records: at least one each."""
    records = sum(info.records for info in stage.parties)
    wanted = min(max(teachers // stage.count, len(stage.parties)), records)
    quotas = {info.party: wanted * info.records / records for info in stage.parties}
    assigned = {party: max(1, math.floor(quota)) for party, quota in quotas.items()}
    by_remainder = sorted(quotas, key=lambda party: (assigned[party] - quotas[party], party))
    for party in by_remainder[: max(0, wanted - sum(assigned.values()))]:
        assigned[party] += 1
    return assigned


_ROUND = {Assignment.HASHED: gaussian, Assignment.STRATIFIED: gaussian_of_exchange}


def check_assignment(cfg: DataLensConfig, budget: Budget) -> None:
    """Refuse an assignment of records that does not bound what the budget is for.

    Raises:
        UserError: The assignment is stratified, and the relation or the unit is another one.
    """
    if cfg.assignment != Assignment.STRATIFIED:
        return
    if budget.unit != Unit.RECORD:
        raise UserError(
            f"datalens.assignment=stratified with unit={budget.unit}: it bounds one record, not "
            "all of a party. Allowed: unit=record, or datalens.assignment=hashed."
        )
    if budget.relation != Relation.REPLACE_ONE:
        raise UserError(
            f"datalens.assignment=stratified has no guarantee under relation={budget.relation}: "
            "one record less moves all later records of its class to other teachers, so that every "
            "vote may change. Allowed: relation=replace_one, where a record is exchanged for "
            "another one of its class, or datalens.assignment=hashed."
        )


def allowed_mu(budget: Budget, assignment: Assignment) -> float:
    """The mu that all rounds may spend together, relative to what one teacher changes.

    Stratified, an exchange changes one teacher, as a removal does if records are hashed."""
    exchange = budget.relation if assignment == Assignment.HASHED else Relation.ADD_REMOVE
    return gaussian_mu(budget.epsilon, budget.delta, budget.accounting, exchange)


def affordable_rounds(
    budget: Budget,
    *,
    multiplier: float,
    at_most: int,
    assignment: Assignment = Assignment.HASHED,
) -> tuple[int, float]:
    """The number of Gaussian releases that the budget covers, and their noise multiplier.

    It is known before the first round because the cost of a round does not depend on the votes. If
    the budget covers more than `at_most` rounds, these are run with less noise.

    Returns:
        The rounds (0: the budget does not cover one) and the multiplier.
    """

    def cost(rounds: int) -> float:
        event = repeated(_ROUND[assignment](multiplier), rounds)
        return epsilon(event, budget.delta, budget.accounting, budget.relation)

    limit = budget.epsilon * (1 + SLACK)
    mu = allowed_mu(budget, assignment)
    rounds = min(at_most + 1, math.ceil((mu * multiplier) ** 2) + 1)
    while rounds and cost(rounds) > limit:
        rounds -= 1
    if rounds > at_most:
        return at_most, math.sqrt(at_most) / mu
    return rounds, multiplier


def low_signal_warning(
    cfg: DataLensConfig, parameters: DataLensParameters, stage: Stage
) -> tuple[str, ...]:
    """A warning if even unanimous votes are far below the noise."""
    teachers, parties = sum(parameters.teachers.values()), len(stage.parties)
    variances = {
        NoisePlacement.PARTY: float(parties),
        NoisePlacement.DISTRIBUTED: parties / cfg.required_answers(stage),
    }
    noise = parameters.sigma * math.sqrt(variances.get(cfg.noise_at, 1.0))
    ratio = teachers / noise
    if parameters.sketch is not None or ratio >= LOW_SIGNAL:
        return ()
    by_noise = math.erfc(parameters.beta * ratio / math.sqrt(2)) if cfg.threshold else 1.0
    return (
        f"datalens: the expected vote signal-to-noise ratio is {ratio:.2g} (published setting: "
        f"0.8): {teachers:,} unanimous teachers against noise of {noise:,.0f} votes. The noise "
        f"alone moves {by_noise:.0%} of all coordinates. Use thousands of teachers, a larger "
        "epsilon, fewer rounds or fewer entries.",
    )
