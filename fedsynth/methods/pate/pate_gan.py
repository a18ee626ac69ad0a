"""PATE-GAN: teachers vote on which generated images look real, a student learns it, and teaches.

After Yoon, Jordon, van der Schaar: "PATE-GAN: Generating Synthetic Data with Differential Privacy
Guarantees", 2019. A party's records are dealt to teachers; every teacher is a discriminator that
sees its own records and generated images. The student sees generated images alone, with the
teachers' noised majority as their label, and the generator learns against the student. The
generator leaves the party.

What it costs. The published accountant depends on the votes, and an audit of six programs
(arXiv 2406.13985) found none that kept its promise. Here votes are noised by Gaussians and every
label is counted, whatever the votes: one record changes one teacher's vote on each image, so the
counts of m images move by at most sqrt(m). A teacher votes "real" with the chance that it gives an
image, by public randomness, which says more than yes or no. Codes and labels of generated images
are public randomness too, not taken from the teachers' records.

On images this is known to stall: all fakes are voted fake and the generator learns nothing from
that (GS-WGAN's authors give no number; DataLens's give .42 and .67 on MNIST).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedsynth.core.messages import Release, Request
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.randomness import default_seed, torch_generator
from fedsynth.core.settings import setting
from fedsynth.core.types import Budget, ComputeCost, PartyInfo, Stage
from fedsynth.methods.common.generator_release import GeneratorRelease, held_classes, uniform_inputs
from fedsynth.methods.method import PartyContext
from fedsynth.methods.pate.record_assignment import RecordAssignment, or_black_image
from fedsynth.nn.ensembles.mlp import MLPStack
from fedsynth.nn.gan.mlp import MLPGenerator, mlp_discriminator, rows_with_labels
from fedsynth.privacy.accounting.calibration import gaussian_mu
from fedsynth.privacy.accounting.events import gaussian, repeated
from fedsynth.privacy.mechanisms.votes import VoteBounds, VoteCounts, VoteSums
from fedsynth.privacy.party_data import Records

RULE = VoteBounds(width=1, entries=1, low=0, high=1)  # one vote an image: it looks real, or not
STACK = 50  # teachers that go through one product
AS_WIDE = 8  # a step of one teacher takes as long as one of a ConvNet of this width


@dataclass(frozen=True)
class PateGANConfig:
    """PATE-GAN's settings. Its authors give none for images; these are ours."""

    teachers: int = setting(1000, "teachers, over all parties of a stage", at_least=1)
    rounds: int = setting(1000, "rounds, each with `batch` labels that are paid for", at_least=1)
    batch: int = setting(64, "images a round that teachers vote on", at_least=2)
    noise: float | None = setting(
        None, "noise on a count of votes; none: what the budget allows", above=0
    )
    labels: str = setting(
        "majority",
        "what the student learns: the noised majority, or the noised share of votes",
        choices=("majority", "share"),
    )
    teacher_steps: int = setting(1, "steps of every teacher a round", at_least=1)
    student_steps: int = setting(5, "steps of the student on a round's labels (free)", at_least=1)
    generator_steps: int = setting(1, "steps of the generator a round (free)", at_least=1)
    rate: float = setting(1e-3, "Adam's learning rate of the teachers", above=0)
    student_rate: float = setting(1e-3, "Adam's learning rate of the student", above=0)
    generator_rate: float = setting(1e-3, "Adam's learning rate of the generator", above=0)
    latent: int = setting(64, "length of a latent vector", at_least=1, formerly="code")
    hidden: int = setting(128, "hidden units of every network", at_least=1)
    spc: int = setting(6000, "images a class drawn from the generators", at_least=1)

    def multiplier(self, budget: Budget) -> float:
        """The noise over the sensitivity of a round: of `batch` counts that move by one each."""
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


class PateGAN(GeneratorRelease[PateGANConfig]):
    """One-shot: a generator a party."""

    name = "pate_gan"
    summary = "A GAN whose student discriminator learns from its teachers' noised votes"
    source = "after Yoon et al. 2019, PATE-GAN"
    Config = PateGANConfig
    paper_convention = "rdp_classic"
    presets = {
        "test": {
            "teachers": 30,
            "batch": 500,
            "hidden": 16,
            "latent": 4,
            "teacher_steps": 2,
        },
        "smoke": {"teachers": 100, "rounds": 40, "spc": 200},
        "laptop": {"teachers": 200, "rounds": 300, "spc": 1000},
        "paper": {},
    }

    def plan(self, cfg: PateGANConfig, stage: Stage, budget: Budget) -> Plan:
        multiplier = cfg.multiplier(budget)
        parties = tuple(
            PartyPlan(
                info.party,
                info.records,
                repeated(gaussian(multiplier), cfg.rounds),
                steps=cfg.rounds,
                noise_multiplier=multiplier,
                bytes_up=4 * _weights(cfg, stage, info),
                cost=(ComputeCost("train", AS_WIDE, cfg.batch, cfg.rounds * count),),
            )
            for info, count in zip(
                stage.parties, cfg.teachers_per_party(stage).values(), strict=True
            )
        )
        assumes = (
            "the number of records of each party, roughly: its share of the teachers",
            "the classes a party holds",
        )
        return Plan(self.name, stage, budget, parties, assumes=assumes)

    def network(self, cfg: PateGANConfig, plan: Plan, party: int, *key: object) -> nn.Module:
        classes = len(plan.info(party).class_counts)
        with default_seed(*key):
            return MLPGenerator(
                cfg.latent, classes, plan.stage.data.shape, (cfg.hidden, cfg.hidden)
            )

    def party(self, ctx: PartyContext[PateGANConfig], request: Request) -> Release:
        cfg, plan, private, guard = ctx.config, ctx.plan, ctx.data, ctx.guard
        info, share = private.info, plan.of(private.info.party)
        key = (request.numbers["seed"], self.name, plan.stage.index, info.party)
        net = self.network(cfg, plan, info.party, *key, "generator").to(guard.device)
        school = _PublicState(cfg, plan, info.party, net, key)
        teachers = private.records.map(
            lambda records: _Teachers(
                cfg, school, records, cfg.teachers_per_party(plan.stage)[info.party]
            )
        )
        mechanism = VoteSums(noise_multiplier=share.noise_multiplier)
        with guard.reserve(gaussian(share.noise_multiplier), cfg.rounds):
            for number in range(cfg.rounds):
                votes = teachers.map(lambda staff, at=number: staff.votes(at))  # type: ignore[misc]
                (sums,) = guard.apply(mechanism, votes, call=number)
                school.learn(number, sums.squeeze(1))
        return self.release_generator(guard, net)


class _PublicState:
    """What is public: the generator, the student, and the images they and the teachers see."""

    def __init__(
        self,
        cfg: PateGANConfig,
        plan: Plan,
        party: int,
        generator: nn.Module,
        key: tuple[object, ...],
    ) -> None:
        self.cfg, self.key, self.generator = cfg, key, generator
        self.held, self.places = held_classes(plan, party)
        self.classes, self.teachers = len(self.held), cfg.teachers_per_party(plan.stage)[party]
        self.device = next(generator.parameters()).device
        self.inputs = math.prod(plan.stage.data.shape) + self.classes
        with default_seed(*key, "student"):
            self.student = mlp_discriminator(self.inputs, (cfg.hidden,)).to(self.device)
        betas = (0.5, 0.999)
        self.of_student = torch.optim.Adam(self.student.parameters(), cfg.student_rate, betas=betas)
        self.of_generator = torch.optim.Adam(
            generator.parameters(), cfg.generator_rate, betas=betas
        )

    def rows(self, number: int, *purpose: object) -> Tensor:
        """Generated images with their labels, as discriminators read them."""
        cfg = self.cfg
        draw = uniform_inputs(cfg.batch, cfg.latent, self.classes, *self.key, number, *purpose)
        codes, labels = (value.to(self.device) for value in draw)
        return rows_with_labels(self.generator(codes, labels), labels, self.classes)

    def voted_on(self, number: int) -> Tensor:
        """The images whose labels a round pays for."""
        with torch.no_grad():
            return self.rows(number, "votes")

    def learn(self, number: int, votes: Tensor) -> None:
        """The student learns the noised majority, the generator what the student makes of it."""
        shown = self.voted_on(number)
        share = votes.to(shown) / self.teachers
        real = (share >= 0.5).to(shown) if self.cfg.labels == "majority" else share.clamp(0, 1)
        for _ in range(self.cfg.student_steps):
            loss = F.binary_cross_entropy_with_logits(self.student(shown).squeeze(1), real)
            self.of_student.zero_grad()
            loss.backward()
            self.of_student.step()
        for step in range(self.cfg.generator_steps):
            loss = F.softplus(-self.student(self.rows(number, "generator", step))).mean()
            self.of_generator.zero_grad()
            loss.backward()
            self.of_generator.step()


class _Teachers:
    """The teachers of a party: private, each a function of its own records and of public images."""

    def __init__(
        self, cfg: PateGANConfig, school: _PublicState, records: Records, count: int
    ) -> None:
        self.cfg, self.school = cfg, school
        self.assignment = RecordAssignment.of(records, count, repr(school.key))
        self.records = or_black_image(records, school.held)
        self.stacks = []
        for start in range(0, count, STACK):
            with default_seed(*school.key, "teachers", start):
                nets = MLPStack(min(STACK, count - start), school.inputs, cfg.hidden)
            nets.to(school.device)
            adam = torch.optim.Adam(nets.parameters(), cfg.rate, betas=(0.5, 0.999))
            self.stacks.append((start, nets, adam))

    def votes(self, number: int) -> VoteCounts:
        """Train every teacher for a round, and count who takes each image for real."""
        school, size = self.school, self.cfg.batch
        steps = range(self.cfg.teacher_steps)
        with torch.no_grad():
            made = [school.rows(number, "teachers", step) for step in steps]
        mine = [self.assignment.batch(size, *school.key, "batch", number, step) for step in steps]
        shown = school.voted_on(number)
        ballots = []
        for start, nets, adam in self.stacks:
            count = len(nets.first)
            for fake, batch in zip(made, mine, strict=True):
                real = self._rows(batch[start : start + count])
                scores = nets(torch.cat([real, fake.expand(count, -1, -1)], 1))
                losses = F.softplus(-scores[:, :size]) + F.softplus(scores[:, size:])
                adam.zero_grad()
                losses.mean(1).sum().backward()
                adam.step()
            awake = self.assignment.sizes[start : start + count] > 0
            drawn = torch.rand(count, size, generator=torch_generator(*school.key, number, start))
            with torch.no_grad():
                chance = torch.sigmoid(nets(shown.expand(count, -1, -1))).cpu()
            said = (drawn < chance) & awake[:, None]
            ballots.append(said.to(torch.int8).unsqueeze(2))
        return VoteCounts.count(RULE, size, ballots)

    def _rows(self, batch: Tensor) -> Tensor:
        places, flat = self.school.places, batch.flatten()
        pixels = self.records.pixels(flat).to(self.school.device)
        labels = places[self.records.labels[flat]].to(self.school.device)
        return rows_with_labels(pixels, labels, self.school.classes).unflatten(0, batch.shape)


def _weights(cfg: PateGANConfig, stage: Stage, info: PartyInfo) -> int:
    hidden = (cfg.hidden, cfg.hidden)
    with torch.device("meta"):
        net = MLPGenerator(cfg.latent, len(info.class_counts), stage.data.shape, hidden)
    return sum(p.numel() for p in net.parameters())
