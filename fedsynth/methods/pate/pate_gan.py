"""PATE-GAN: teachers vote on which generated images look real; a student learns their votes.

After Yoon, Jordon, van der Schaar: "PATE-GAN: Generating Synthetic Data with Differential Privacy
Guarantees", 2019. A party's records are assigned to teachers; every teacher is a discriminator
trained on its own records and on generated images. The student discriminator is trained on
generated images only, with the teachers' noised majority as their label, and the generator is
trained against the student. The generator is released.

What it costs. The published accountant depends on the votes, and an audit of six programs
(arXiv 2406.13985) found none that kept its promise. Here votes get Gaussian noise and every label
is charged, whatever the votes: one record changes one teacher's vote on each image, so the counts
of m images move by at most sqrt(m).

Departures. A teacher votes "real" with the probability that it assigns to an image, by public
randomness: the counts then reveal more than those of yes-or-no votes. Latents and labels of
generated images are public randomness too, not taken from the teachers' records.

On images this is known to stall (GS-WGAN's authors give no number; DataLens's give .42 and .67 on
MNIST): votes on generated images hardly differ from one another, so the student learns their mean,
and its gradient at an image, which the generator follows, is arbitrary. Three settings are ours,
work against this and have no privacy cost, as the images voted on stay public: `queries=perturbed`
asks about generated images moved at random and under other labels, `side` lets all networks see
averaged images, where such moves span the space, and `memory` trains the student on the labels of
earlier rounds too. results/gan_family says how far this goes.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedsynth.core.enums import Relation
from fedsynth.core.messages import Release, Request
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.randomness import default_seed, torch_generator
from fedsynth.core.settings import setting
from fedsynth.core.types import Budget, ComputeCost, PartyInfo, Shape, Stage
from fedsynth.data.records import Records
from fedsynth.methods.common.generator_release import (
    GeneratorRelease,
    held_classes,
    uniform_inputs,
)
from fedsynth.methods.method import PartyContext
from fedsynth.methods.pate.record_assignment import RecordAssignment, or_black_image
from fedsynth.nn import optimizers
from fedsynth.nn.ensembles.mlp import MLPStack
from fedsynth.nn.gan.mlp import MLPGenerator, mlp_discriminator, rows_with_labels
from fedsynth.privacy.accounting.calibration import gaussian_mu
from fedsynth.privacy.accounting.events import gaussian, repeated
from fedsynth.privacy.mechanisms.votes import VoteBounds, VoteCounts, VoteSums

VOTE = VoteBounds(width=1, entries=1, low=0, high=1)  # per image: it looks real, or not
STACK = 50  # teachers per batched product

# Perturbed queries: how many of them are moved, the largest standard deviation of a pixel's move,
# and how many get a label drawn anew.
MOVED, DISTANCE, RELABELLED = 0.7, 0.5, 0.3
COST_AS_CONVNET_WIDTH = 8  # a step of one teacher takes as long as one of a ConvNet of this width


class StudentLabels(StrEnum):
    """The labels that the student learns from."""

    MAJORITY = "majority"
    SHARE = "share"


class Queries(StrEnum):
    """The images that teachers vote on."""

    GENERATED = "generated"
    PERTURBED = "perturbed"


@dataclass(frozen=True)
class PateGANConfig:
    """Settings of PATE-GAN. Its authors give none for images; these are ours."""

    teachers: int = setting(1000, "teachers over all parties of a stage", at_least=1)
    rounds: int = setting(1000, "rounds, each with `batch` labels that are charged", at_least=1)
    batch: int = setting(64, "images per round that teachers vote on", at_least=2)
    noise: float | None = setting(
        None, "noise on a count of votes; default: what the budget allows", above=0
    )
    labels: StudentLabels = setting(
        StudentLabels.MAJORITY,
        "labels of the student: the noised majority, or the noised share of votes",
    )
    queries: Queries = setting(
        Queries.GENERATED,
        "images that teachers vote on: generated ones, or those perturbed at random",
    )
    side: int | None = setting(
        None, "side of the averaged images that the networks see; default: whole images",
        at_least=2,
    )  # fmt: skip
    memory: int = setting(
        1, "rounds whose labelled images the student is trained on (no privacy cost)", at_least=1
    )
    teacher_steps: int = setting(1, "steps per teacher and round", at_least=1)
    student_steps: int = setting(
        5, "steps of the student per round on its labels (no privacy cost)", at_least=1
    )
    generator_steps: int = setting(
        1, "steps of the generator per round (no privacy cost)", at_least=1
    )
    learning_rate: float = setting(
        1e-3, "Adam's learning rate of the teachers", above=0, formerly="rate"
    )
    student_learning_rate: float = setting(
        1e-3, "Adam's learning rate of the student", above=0, formerly="student_rate"
    )
    generator_learning_rate: float = setting(
        1e-3, "Adam's learning rate of the generator", above=0, formerly="generator_rate"
    )
    latent: int = setting(64, "length of a latent vector", at_least=1, formerly="code")
    hidden: int = setting(128, "hidden units of every network", at_least=1)
    spc: int = setting(
        6000, "images per class drawn from the generators", at_least=1, at_most=1_000_000
    )

    def multiplier(self, budget: Budget) -> float:
        """The noise over the sensitivity of a round: `batch` counts that move by one each."""
        if self.noise:
            return self.noise / math.sqrt(self.batch)
        mu = gaussian_mu(budget.epsilon, budget.delta, budget.accounting, budget.relation)
        return math.sqrt(self.rounds) / mu

    def teachers_per_party(self, stage: Stage) -> dict[int, int]:
        """All teachers, shared among the parties by records: at least one each."""
        total = max(1, sum(info.records for info in stage.parties))
        return {
            info.party: max(1, round(self.teachers * info.records / total))
            for info in stage.parties
        }

    def seen_shape(self, shape: Shape) -> Shape:
        """The shape of what the networks see of records of this shape."""
        if self.side is None or min(shape[1:]) <= self.side:
            return shape
        return shape[0], self.side, self.side

    def inputs(self, classes: int, shape: Shape) -> int:
        """The inputs of a discriminator: what it sees of a record, and its label."""
        return math.prod(self.seen_shape(shape)) + classes

    def network(self, classes: int, shape: Shape) -> nn.Module:
        """A generator of images of this many classes."""
        sizes = (self.hidden, self.hidden)
        small = MLPGenerator(self.latent, classes, self.seen_shape(shape), sizes)
        return _Enlarged(small, shape) if small.shape != shape else small


class _Enlarged(nn.Module):
    """A generator of small images, with its images enlarged by bilinear interpolation."""

    def __init__(self, small: nn.Module, shape: Shape) -> None:
        super().__init__()
        self.small, self.size = small, shape[1:]

    def forward(self, latents: Tensor, labels: Tensor) -> Tensor:
        """The images of these latent vectors and labels."""
        return F.interpolate(self.small(latents, labels), self.size, mode="bilinear")


class PateGAN(GeneratorRelease[PateGANConfig]):
    """One generator per party, released once."""

    name = "pate_gan"
    summary = "A GAN whose student discriminator learns from its teachers' noised votes"
    source = "after Yoon et al. 2019, PATE-GAN"
    paper_relation = Relation.REPLACE_ONE
    presets = {
        "smoke": {"teachers": 100, "rounds": 40, "spc": 200},
        "laptop": {
            "teachers": 300, "rounds": 2000, "labels": "share", "queries": "perturbed", "side": 7,
            "memory": 20, "learning_rate": 5e-4, "student_learning_rate": 2e-3, "spc": 1000,
        },
    }  # fmt: skip

    def plan(self, cfg: PateGANConfig, stage: Stage, budget: Budget) -> Plan:
        multiplier, teachers = cfg.multiplier(budget), cfg.teachers_per_party(stage)
        parties = tuple(
            PartyPlan(
                info.party,
                info.records,
                repeated(gaussian(multiplier), cfg.rounds),
                steps=cfg.rounds,
                noise_multiplier=multiplier,
                bytes_up=4 * _weights(cfg, stage, info),
                memory=teachers[info.party] * _teacher_bytes(cfg, stage, info),
                cost=(
                    ComputeCost(
                        "train",
                        COST_AS_CONVNET_WIDTH,
                        cfg.batch,
                        cfg.rounds * teachers[info.party],
                    ),
                ),
            )
            for info in stage.parties
        )
        assumes = (
            "the number of records of each party, roughly: its share of the teachers",
            "the classes a party holds",
        )
        return Plan(self.name, stage, budget, parties, assumes=assumes)

    def network(self, cfg: PateGANConfig, plan: Plan, party: int, *key: object) -> nn.Module:
        with default_seed(*key):
            return cfg.network(len(plan.info(party).class_counts), plan.stage.data.shape)

    def party(self, ctx: PartyContext[PateGANConfig], request: Request) -> Release:
        """Per round, train the teachers, noise their votes, train student and generator on them."""
        cfg, key = ctx.config, ctx.random_key(request)
        generator = self.network(cfg, ctx.plan, ctx.party, *key, "generator").to(ctx.device)
        student = _Student(cfg, ctx.plan, ctx.party, generator, key)
        teachers = ctx.data.records.map(
            lambda records: _Teachers(cfg, student, records, student.teachers)
        )
        mechanism = VoteSums(
            bounds=VOTE, images=cfg.batch, noise_multiplier=ctx.party_plan.noise_multiplier
        )
        with ctx.guard.reserve(gaussian(mechanism.noise_multiplier), cfg.rounds):
            for number in range(cfg.rounds):
                votes = teachers.map(lambda own, at=number: own.votes(at))  # type: ignore[misc]
                (sums,) = ctx.guard.apply(mechanism, votes, call=number)
                student.learn(number, sums.squeeze(1))
        return self.release_generator(ctx.guard, generator)


class _Student:
    """The public networks, student and generator, with the generated images that they and the
    teachers are trained on."""

    def __init__(
        self,
        cfg: PateGANConfig,
        plan: Plan,
        party: int,
        generator: nn.Module,
        key: tuple[object, ...],
    ) -> None:
        self.cfg, self.key, self.generator = cfg, key, generator
        self.held, self.class_indices = held_classes(plan, party)
        self.classes, self.teachers = len(self.held), cfg.teachers_per_party(plan.stage)[party]
        self.device = next(generator.parameters()).device
        self.seen = cfg.seen_shape(plan.stage.data.shape)
        self.inputs = cfg.inputs(self.classes, plan.stage.data.shape)
        with default_seed(*key, "student"):
            self.net = mlp_discriminator(self.inputs, (cfg.hidden, cfg.hidden)).to(self.device)
        self.labelled: deque[tuple[Tensor, Tensor]] = deque(maxlen=cfg.memory)
        betas = (0.5, 0.999)
        self.adam = optimizers.Adam(self.net.parameters(), cfg.student_learning_rate, betas=betas)
        self.generator_adam = optimizers.Adam(
            generator.parameters(), cfg.generator_learning_rate, betas=betas
        )

    def rows(self, number: int, *purpose: object) -> Tensor:
        """Generated images with their labels, as inputs of a discriminator."""
        cfg = self.cfg
        inputs = uniform_inputs(cfg.batch, cfg.latent, self.classes, *self.key, number, *purpose)
        latents, labels = (value.to(self.device) for value in inputs)
        return self.seen_rows(self.generator(latents, labels), labels)

    def seen_rows(self, images: Tensor, indices: Tensor) -> Tensor:
        """What discriminators see of images and their class indices."""
        if images.shape[1:] != self.seen:
            images = F.adaptive_avg_pool2d(images, self.seen[1:])
        return rows_with_labels(images, indices, self.classes)

    @torch.no_grad()
    def voted_rows(self, number: int) -> Tensor:
        """The images of a round that teachers vote on."""
        rows = self.rows(number, "votes")
        if self.cfg.queries == Queries.GENERATED:
            return rows
        generator = torch_generator(*self.key, number, "perturbation")
        pixels, one_hot = rows.cpu().split([self.inputs - self.classes, self.classes], 1)
        count = len(rows)
        distance = DISTANCE * torch.rand(count, 1, generator=generator)
        distance *= torch.rand(count, 1, generator=generator) < MOVED
        pixels = (pixels + distance * torch.randn(pixels.shape, generator=generator)).clamp(0, 1)
        others = torch.randint(self.classes, (count,), generator=generator)
        relabelled = torch.rand(count, 1, generator=generator) < RELABELLED
        one_hot = torch.where(relabelled, F.one_hot(others, self.classes).to(one_hot), one_hot)
        return torch.cat([pixels, one_hot], 1).to(self.device)

    def learn(self, number: int, votes: Tensor) -> None:
        """Train the student on the noised votes, then the generator against the student."""
        rows = self.voted_rows(number)
        share = votes.to(rows) / self.teachers
        real = (
            (share >= 0.5).to(rows)
            if self.cfg.labels == StudentLabels.MAJORITY
            else share.clamp(0, 1)
        )
        self.labelled.append((rows, real))
        newest = len(self.labelled) - 1
        generator = torch_generator(*self.key, number, "student")
        earlier = torch.randint(newest + 1, (self.cfg.student_steps,), generator=generator)
        for step in range(self.cfg.student_steps):
            rows, real = self.labelled[int(earlier[step]) if step else newest]
            loss = F.binary_cross_entropy_with_logits(self.net(rows).squeeze(1), real)
            self.adam.zero_grad()
            loss.backward()
            self.adam.step()
        for step in range(self.cfg.generator_steps):
            loss = F.softplus(-self.net(self.rows(number, "generator", step))).mean()
            self.generator_adam.zero_grad()
            loss.backward()
            self.generator_adam.step()


class _Teachers:
    """The private teachers of a party, each a function of its own records and of public images."""

    def __init__(
        self, cfg: PateGANConfig, student: _Student, records: Records, teachers: int
    ) -> None:
        self.cfg, self.student = cfg, student
        self.assignment = RecordAssignment.of(records, teachers, repr(student.key))
        self.records = or_black_image(records, student.held)
        self.stacks = []
        for start in range(0, teachers, STACK):
            with default_seed(*student.key, "teachers", start):
                nets = MLPStack(min(STACK, teachers - start), student.inputs, cfg.hidden)
            nets.to(student.device)
            adam = optimizers.Adam(nets.parameters(), cfg.learning_rate, betas=(0.5, 0.999))
            self.stacks.append((start, nets, adam))

    def votes(self, number: int) -> VoteCounts:
        """Train every teacher for a round, and count the votes for "real" on each image."""
        student, assignment, size = self.student, self.assignment, self.cfg.batch
        steps = range(self.cfg.teacher_steps)
        with torch.no_grad():
            fakes = [student.rows(number, "teachers", step) for step in steps]
        batches = [assignment.batch(size, *student.key, "batch", number, step) for step in steps]
        voted_rows = student.voted_rows(number)
        votes = []
        for start, nets, adam in self.stacks:
            count = len(nets.first)
            for fake, batch in zip(fakes, batches, strict=True):
                real = self._rows(batch[start : start + count])
                scores = nets(torch.cat([real, fake.expand(count, -1, -1)], 1))
                losses = F.softplus(-scores[:, :size]) + F.softplus(scores[:, size:])
                adam.zero_grad()
                losses.mean(1).sum().backward()
                adam.step()
            has_records = assignment.sizes[start : start + count] > 0
            drawn = torch.rand(count, size, generator=torch_generator(*student.key, number, start))
            with torch.no_grad():
                probability = torch.sigmoid(nets(voted_rows.expand(count, -1, -1)))
            device = probability.device
            voted_real = (drawn.to(device) < probability) & has_records[:, None].to(device)
            votes.append(voted_real.to(torch.int8).unsqueeze(2))
        return VoteCounts.count(VOTE, size, votes)

    def _rows(self, batch: Tensor) -> Tensor:
        student, flat = self.student, batch.flatten()
        pixels = self.records.pixels(flat).to(student.device)
        labels = student.class_indices[self.records.labels[flat]].to(student.device)
        return student.seen_rows(pixels, labels).unflatten(0, batch.shape)


def _teacher_bytes(cfg: PateGANConfig, stage: Stage, info: PartyInfo) -> int:
    """The weights of a teacher with their gradient and the two averages of Adam."""
    with torch.device("meta"):
        net = MLPStack(1, cfg.inputs(len(info.class_counts), stage.data.shape), cfg.hidden)
    return 4 * sum(p.nbytes for p in net.parameters())


def _weights(cfg: PateGANConfig, stage: Stage, info: PartyInfo) -> int:
    with torch.device("meta"):
        net = cfg.network(len(info.class_counts), stage.data.shape)
    return sum(p.numel() for p in net.parameters())
