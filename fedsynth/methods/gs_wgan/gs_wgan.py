"""GS-WGAN: many private critics at the parties, one generator at the curator, sanitised gradients.

Chen, Orekondy, Fritz: "GS-WGAN: A Gradient-Sanitized Approach for Learning Differentially Private
Generators", 2020. Records are cut into K subsets for ever; each has a critic that never leaves its
party. In a round the curator sends the generator's weights to the parties of a few subsets; each
trains its critic a little on its own records and answers with the gradients of the loss at a batch
of generated images, clipped and noised one by one; the curator sends them back through the
generator. Parties run the generator themselves, so labels stay home. With one subset a party this
is the federated algorithm of the supplement, and a subset may be a user (unit "user").

What it costs. All B answers of a visit come from one critic, and any change of its subset may turn
every one of them round, so a visit is one Gaussian mechanism of multiplier sigma / sqrt(B). Visits
are counted as everybody can count them: by the schedule, which is public. The paper instead treats
every single answer as a mechanism of its own on a subset drawn afresh, and amplifies T B of them by
K (`paper_event`): 9.99 at its settings. All answers of a round share one draw, which makes that
330 (the view "joint order"), and the subsets are fixed and their critics remember, so that no
theorem on subsampling applies at all: that view is no bound, and is shown for comparison only.

Departures: the schedule takes turns (`order=random` draws as the paper does, counted by the subset
that is drawn most); a record's subset is a hash of the record (`privacy.parts`), since equal slices
of a shuffled list move with every record; batches of B always, drawn anew each time; several
subsets a round, if asked for.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from fedsynth.core.enums import Unit
from fedsynth.core.errors import UserError
from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import Outcome
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import Budget, ComputeCost, Stage
from fedsynth.methods.gs_wgan.client import GSWGANClient
from fedsynth.methods.gs_wgan.config import GSWGANConfig, upstream_inputs
from fedsynth.methods.gs_wgan.generator import KINDS, GeneratorTrainer, flat, new_generator
from fedsynth.methods.gs_wgan.schedule import ParticipationSchedule, SubsetTurn
from fedsynth.methods.method import Method, PartyContext, ServerContext
from fedsynth.nn.gan.critics import ProjectionCritic
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.calibration import gaussian_mu, noise_multiplier
from fedsynth.privacy.accounting.events import gaussian, poisson, repeated, without_replacement
from fedsynth.privacy.charging import CURATOR

WARM, TRAIN, VISIT = "warm", "train", "visit"
LAPTOP = {
    "subsets": 100, "steps": 10, "per_round": 10, "warm": 3, "batch": 8, "width": 16, "depth": 64,
    "rate": 0.01, "average": 0.7, "spc": 1000,
}  # fmt: skip
JOINT_ORDER = "joint order (no bound)"
AT_ONCE = 16  # requests that wait for an answer at a time


class GSWGAN(Method[GSWGANConfig]):
    """A conversation of T rounds."""

    name = "gs_wgan"
    summary = "A generator trained on sanitised gradients of many private critics"
    source = "Chen, Orekondy, Fritz 2020, GS-WGAN"
    Config = GSWGANConfig
    paper_convention = "wor_bound"
    units = tuple(Unit)
    presets = {
        "test": {
            "subsets": 4, "per_round": 2, "batch": 4, "critic_steps": 2, "warm": 2, "depth": 8,
            "rate": 0.01, "keep": False,
        },
        "smoke": {**LAPTOP, "subsets": 40, "steps": 4, "spc": 200},
        "laptop": LAPTOP,
        "paper": {},
    }  # fmt: skip

    def plan(self, cfg: GSWGANConfig, stage: Stage, budget: Budget) -> Plan:
        shape, classes = stage.data.shape, len(stage.classes)
        with torch.device("meta"):  # refuses sizes it cannot draw before anything is spent
            net = KINDS[cfg.generator](cfg.code, classes, shape, cfg.depth)
            ProjectionCritic(cfg.width, classes, shape)
        schedule = cfg.schedule(stage)
        sigma = cfg.noise or self._sigma(cfg, schedule, budget)
        multiplier = sigma / math.sqrt(cfg.batch)
        model_bytes = 4 * sum(t.numel() for t in [*net.parameters(), *net.buffers()])
        answer_bytes = 4 * cfg.batch * math.prod(shape)
        q = 1 / schedule.total
        joint = repeated(poisson(q, gaussian(multiplier)), cfg.steps * cfg.per_round)
        paper = repeated(
            without_replacement(schedule.total, 1, gaussian(sigma)),
            cfg.steps * cfg.per_round * cfg.batch,
        )
        parties = []
        for info in stage.parties:
            visits = sum(schedule.visits[info.party].values())
            event = schedule.event(info.party, multiplier, budget.unit)
            parties.append(
                PartyPlan(
                    info.party,
                    info.records,
                    event,
                    steps=max(1, visits),
                    noise_multiplier=multiplier,
                    views={CURATOR: event, JOINT_ORDER: joint},
                    paper_event=paper,
                    bytes_up=visits * answer_bytes,
                    bytes_down=visits * model_bytes,
                    cost=_work(cfg, schedule.subsets[info.party], visits),
                )
            )
        assumes = (
            "the number of records of each party, roughly: its share of the subsets",
            "the schedule: which subset is visited in which round",
            *(() if budget.unit == "user" else ("the classes a party holds",)),
        )
        return Plan(
            self.name, stage, budget, tuple(parties), rounds=cfg.steps, assumes=assumes
        )  # fmt: skip

    def _sigma(self, cfg: GSWGANConfig, schedule: ParticipationSchedule, budget: Budget) -> float:
        """The noise that the budget allows, for what is counted: visits, not the paper's draws."""
        worst = schedule.worst(budget.unit)
        if budget.accounting == self.paper_convention:
            answers = cfg.steps * cfg.per_round * cfg.batch
            sigma = noise_multiplier(
                lambda s: repeated(without_replacement(schedule.total, 1, gaussian(s)), answers),
                budget.epsilon,
                budget.delta,
                budget.accounting,
            )
            real = repeated(gaussian(sigma / math.sqrt(cfg.batch)), worst)
            raise UserError(
                f"accounting=paper: by the published count epsilon={budget.epsilon:g} needs "
                f"gs_wgan.noise={sigma:.4g}, but whoever sees the visits counts "
                f"epsilon={epsilon(real, budget.delta):.4g}, and no party accepts the one for the "
                f"other. To run the published noise give gs_wgan.noise={sigma:.4g} and the epsilon "
                "that it costs (both counts are printed); or leave accounting=pld."
            )
        mu = gaussian_mu(budget.epsilon, budget.delta, budget.accounting, budget.relation)
        return math.sqrt(worst * cfg.batch) / mu

    # The party

    def party(self, ctx: PartyContext[GSWGANConfig], request: Request) -> Release:
        cfg, plan, private, guard = ctx.config, ctx.plan, ctx.data, ctx.guard
        me = GSWGANClient(cfg, plan, private, request, guard)
        if request.kind == WARM:
            me.warm()
            return guard.acknowledge()
        if request.kind == TRAIN:
            me.train()
            return guard.acknowledge()
        return guard.release({"gradients": torch.cat(me.answers())})

    # The curator

    def serve(self, ctx: ServerContext[GSWGANConfig]) -> Outcome:
        cfg, plan = ctx.config, ctx.plan
        stage, schedule = plan.stage, cfg.schedule(plan.stage)
        key = (ctx.seed, self.name, stage.index)
        net = new_generator(
            cfg.generator, cfg.depth, cfg.code, len(stage.classes), stage.data, *key
        )
        released = GeneratorTrainer(
            net,
            rate=cfg.generator_rate or cfg.rate,
            average=cfg.average,
            device=ctx.device,
        )
        with ThreadPoolExecutor(AT_ONCE) as pool:
            if cfg.warm:
                warm_up(schedule, plan, ctx, pool)
            for number in ctx.rounds(cfg.steps, released.state):
                visits = schedule.rounds[number]
                request = Request(
                    VISIT, number, arrays={"theta": flat(released.net)},
                    numbers={"seed": ctx.seed},
                )  # fmt: skip
                self._train_at_once(pool, visits, request, ctx)
                who = list(dict.fromkeys(visit.party for visit in visits))
                answers = ctx.ask(who, request)
                slopes = torch.cat([answer.arrays["gradients"] for answer in answers])
                mine = [visit for party in who for visit in visits if visit.party == party]
                inputs = [upstream_inputs(cfg, plan, visit, number, ctx.seed) for visit in mine]
                codes, labels = (torch.cat(part) for part in zip(*inputs, strict=True))
                released.step(number, codes, labels, slopes / len(slopes))
        return released.sample(stage.classes, cfg.spc, cfg.code, (*key, "sample"))

    @staticmethod
    def _train_at_once(
        pool: ThreadPoolExecutor,
        visits: tuple[SubsetTurn, ...],
        request: Request,
        parties: ServerContext[Any],
    ) -> None:
        """Where a party hosts several of the subsets visited, let them be trained side by side:
        their answers are then ready when they are asked for, in order."""
        crowded = [v for v in visits if sum(v.party == other.party for other in visits) > 1]

        def train(visit: SubsetTurn) -> None:
            numbers = {**request.numbers, "slot": visit.slot}
            parties.ask([visit.party], Request(TRAIN, request.round, request.arrays, numbers))

        list(pool.map(train, crowded))


def warm_up(
    schedule: ParticipationSchedule,
    plan: Plan,
    parties: ServerContext[Any],
    pool: ThreadPoolExecutor,
) -> None:
    """Have all critics that will be visited warmed up, on as many workers as there are. Jobs that
    run beside each other take them in different orders, so that one finds what another has made."""
    places = [(party, part.index) for party, parts in schedule.visits.items() for part in parts]
    draw = torch_generator("gs_wgan", "warm order", _budget_text(plan.budget))

    def ask(place: int) -> None:
        party, index = places[place]
        parties.ask([party], Request(WARM, index, numbers={"seed": parties.seed}))

    list(pool.map(ask, torch.randperm(len(places), generator=draw).tolist()))


def _work(cfg: GSWGANConfig, subsets: int, visits: int) -> tuple[ComputeCost, ...]:
    """About what critics take: a step of a critic as long as one of a ConvNet 5/2 as wide."""
    steps = cfg.critic_steps * (visits + subsets * cfg.warm)
    return (ComputeCost("train", max(1, 5 * cfg.width // 2), cfg.batch, steps),)


def _budget_text(budget: Budget) -> str:
    """The budget as the key of the public warm-up order: these words must stay as they are."""
    return (
        f"Budget(epsilon={budget.epsilon!r}, delta={budget.delta!r}, unit={str(budget.unit)!r}, "
        f"relation={str(budget.relation)!r}, accounting={str(budget.accounting)!r})"
    )
