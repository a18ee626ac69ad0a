"""GS-WGAN: private critics at the parties, one generator at the server, sanitised gradients.

Chen, Orekondy, Fritz: "GS-WGAN: A Gradient-Sanitized Approach for Learning Differentially Private
Generators", 2020. Records are divided into K fixed subsets; each has a critic that never leaves its
party. In a round the server sends the generator's weights to the parties of a few subsets, whose
turn it is. Each of them trains its critic for a few steps on its own records and releases the
gradients of the loss at a batch of generated images, clipped and noised image by image; the server
propagates them through the generator. Parties run the generator themselves, so the labels of their
records are not sent. With one subset per party this is the federated algorithm of the supplement,
and a subset may be a user (unit "user").

What it costs. All B gradients of a turn come from one critic, and any change of its subset may
reverse all of them, so a turn is one Gaussian mechanism of multiplier sigma / sqrt(B), whatever the
relation. A replaced record may change two subsets, and counts for the turns of both. The schedule
is public, and turns are counted by it. The paper instead treats each single gradient as a mechanism
of its own on a subset drawn afresh, and amplifies T B of them by K (`paper_event`): 9.99 at its
settings. All gradients of a round share one draw, which makes that 330 (the view "joint order"),
and the subsets are fixed and their critics keep their state, so that no theorem on subsampling
applies: that view is not a bound, and is reported for comparison only.

Sets on the way (`intermediate`) are drawn from the moving average after fewer rounds. All gradients
that it follows by then were sanitised and charged, and the server has them, so such a set is
post-processing; its epsilon is that of the turns by then. A record whose subset has one turn pays
in that turn: only from pass to pass over the subsets does the epsilon grow.

Departures. Subsets take turns in a fixed order (`order=random` draws them as the paper does, and
counts the turns of the subset that is drawn most). The subset of a record is a hash of the record
(`privacy.subsets`), since equal slices of a shuffled list move with every record. Batches always
have B images, drawn anew for each step. A round may have several turns.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import torch
from dp_accounting import DpEvent
from torch import nn

from fedsynth.core.enums import Relation, Unit, ViewKind
from fedsynth.core.errors import UserError
from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import Outcome
from fedsynth.core.plan import SERVER_VIEW, PartyPlan, Plan, View
from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import Budget, ComputeCost, PartyInfo, Stage
from fedsynth.methods.common.generator_release import state_vector
from fedsynth.methods.gs_wgan.client import GSWGANClient
from fedsynth.methods.gs_wgan.config import GSWGANConfig, images_key, upstream_inputs
from fedsynth.methods.gs_wgan.generator import ARCHITECTURES, GeneratorTrainer, new_generator
from fedsynth.methods.gs_wgan.schedule import ParticipationSchedule, SubsetTurn
from fedsynth.methods.method import Method, PartyContext, ServerContext
from fedsynth.nn.gan.critics import ProjectionCritic
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.calibration import gaussian_mu, noise_multiplier
from fedsynth.privacy.accounting.events import (
    gaussian,
    gaussian_in_ball,
    poisson,
    repeated,
    without_replacement,
)

WARM, TRAIN, VISIT = "warm", "train", "visit"  # kinds of requests
LAPTOP = {
    "subsets": 100, "steps": 10, "per_round": 10, "warm_steps": 3, "batch": 8, "width": 16,
    "generator": "dcgan", "depth": 64, "learning_rate": 0.01, "ema_decay": 0.7, "spc": 1000,
}  # fmt: skip
JOINT_ORDER = View(ViewKind.COMPARISON, label="joint order (no bound)")
CONCURRENT_REQUESTS = 16


class GSWGAN(Method[GSWGANConfig]):
    """T rounds, each with the gradients of a few critics."""

    name = "gs_wgan"
    summary = "A generator trained on sanitised gradients of many private critics"
    source = "Chen, Orekondy, Fritz 2020, GS-WGAN"
    paper_convention = "wor_bound"
    paper_relation = Relation.REPLACE_ONE
    units = tuple(Unit)
    presets = {"smoke": {**LAPTOP, "subsets": 40, "steps": 4, "spc": 200}, "laptop": LAPTOP}

    def plan(self, cfg: GSWGANConfig, stage: Stage, budget: Budget) -> Plan:
        classes, shape = len(stage.classes), stage.data.shape
        with torch.device("meta"):  # refuses sizes it cannot draw before anything is spent
            net = ARCHITECTURES[cfg.generator](cfg.latent, classes, shape, cfg.depth)
            ProjectionCritic(cfg.width, classes, shape)
        schedule = cfg.schedule(stage)
        sigma = cfg.noise or self._calibrated_sigma(cfg, schedule, budget)
        assumes = (
            "the number of records of each party, roughly: its share of the subsets",
            "the schedule: which subset is visited in which round",
            *(() if budget.unit == Unit.USER else ("the classes a party holds",)),
        )
        return Plan(
            self.name,
            stage,
            budget,
            tuple(
                _party_plan(cfg, stage, budget, info, schedule=schedule, sigma=sigma, generator=net)
                for info in stage.parties
            ),
            rounds=cfg.steps,
            assumes=assumes,
            server_cost=(
                ComputeCost(
                    f"{cfg.generator} step",
                    cfg.depth,
                    cfg.batch * cfg.per_round,
                    cfg.steps,
                    cfg.dtype,
                ),
            ),
        )

    def _calibrated_sigma(
        self, cfg: GSWGANConfig, schedule: ParticipationSchedule, budget: Budget
    ) -> float:
        """The noise that the budget allows for the turns of the schedule."""
        turns = schedule.most_turns(budget.unit, budget.relation)
        if budget.accounting == self.paper_convention:
            gradients = cfg.steps * cfg.per_round * cfg.batch
            subsets = schedule.total_subsets
            sigma = noise_multiplier(
                lambda s: repeated(without_replacement(subsets, 1, gaussian(s)), gradients),
                budget.epsilon,
                budget.delta,
                budget.accounting,
            )
            true_cost = repeated(gaussian(sigma / math.sqrt(cfg.batch)), turns)
            true_epsilon = epsilon(true_cost, budget.delta)
            raise UserError(
                f"accounting=paper: by the published count epsilon={budget.epsilon:g} needs "
                f"gs_wgan.noise={sigma:.4g}, but an observer of the schedule can count "
                f"epsilon={true_epsilon:.4g}, and no party accepts the first "
                f"for the second. To run the published noise give gs_wgan.noise={sigma:.4g} and "
                "the epsilon that it costs (both counts are printed); or leave accounting=pld."
            )
        # A replacement moves the values of a turn no further than a removal, but of more turns.
        mu = gaussian_mu(budget.epsilon, budget.delta, budget.accounting)
        return math.sqrt(turns * cfg.batch) / mu

    def event_after(self, cfg: GSWGANConfig, plan: Plan, share: PartyPlan, steps: int) -> DpEvent:
        """The event of the turns that a party has in the first rounds."""
        schedule = cfg.schedule(plan.stage).first(steps)
        return schedule.event(share.party, share.noise_multiplier, plan.budget.unit)

    def party(self, ctx: PartyContext[GSWGANConfig], request: Request) -> Release:
        """Warm up a critic, train a critic, or release the gradients of a round."""
        client = GSWGANClient(ctx, request)
        if request.kind == WARM:
            return client.warm_up()
        if request.kind == TRAIN:
            return client.train()
        return client.release_gradients()

    def serve(self, ctx: ServerContext[GSWGANConfig]) -> Outcome:
        """Have critics warmed up; then, per round, step the generator along their gradients."""
        cfg, plan = ctx.config, ctx.plan
        stage, schedule = plan.stage, cfg.schedule(plan.stage)
        key = plan.random_key(ctx.seed)
        net = new_generator(
            cfg.generator, cfg.depth, cfg.latent, len(stage.classes), stage.data, *key
        )
        trainer = GeneratorTrainer(
            net,
            learning_rate=cfg.generator_learning_rate or cfg.learning_rate,
            ema_decay=cfg.ema_decay,
            dtype=cfg.dtype,
            device=ctx.device,
            kept_steps=cfg.kept_steps,
        )
        with ThreadPoolExecutor(CONCURRENT_REQUESTS) as pool:
            if cfg.warm_steps:
                warm_up(schedule, ctx, pool)
            for number in ctx.rounds(cfg.steps, trainer.state):
                turns = schedule.rounds[number]
                inputs = [upstream_inputs(cfg, plan, turn, number, ctx.seed) for turn in turns]
                latents, labels = (torch.cat(part) for part in zip(*inputs, strict=True))
                images = trainer.images(latents, labels)
                shown = images.detach().cpu().split(cfg.batch)
                arrays = dict(zip(map(images_key, turns), shown, strict=True))
                arrays["theta"] = state_vector(trainer.net)
                request = Request(VISIT, number, arrays=arrays, scalars={"seed": ctx.seed})
                _train_concurrently(pool, turns, request, ctx)
                parties = list(dict.fromkeys(turn.party for turn in turns))
                releases = ctx.ask(parties, request)
                gradients = torch.cat([release.arrays["gradients"] for release in releases])
                slots = [turn.slot for party in parties for turn in turns if turn.party == party]
                parts = dict(zip(slots, gradients.split(cfg.batch), strict=True))
                gradients = torch.cat([parts[turn.slot] for turn in turns])
                trainer.step(number, images, gradients / len(gradients))
        return trainer.sample(stage.classes, cfg.spc, cfg.latent, (*key, "sample"))


def warm_up(
    schedule: ParticipationSchedule, ctx: ServerContext[GSWGANConfig], pool: ThreadPoolExecutor
) -> None:
    """Have all critics of the schedule warmed up, on all workers.

    Concurrent jobs take the critics in different orders, so that one finds in the parties' caches
    what another has warmed up."""
    critics = [(party, part.index) for party, parts in schedule.turns.items() for part in parts]
    generator = torch_generator("gs_wgan", "warm order", _budget_text(ctx.plan.budget))

    def ask(position: int) -> None:
        party, index = critics[position]
        ctx.ask([party], Request(WARM, index, scalars={"seed": ctx.seed}))

    list(pool.map(ask, torch.randperm(len(critics), generator=generator).tolist()))


def _train_concurrently(
    pool: ThreadPoolExecutor,
    turns: tuple[SubsetTurn, ...],
    request: Request,
    ctx: ServerContext[GSWGANConfig],
) -> None:
    """Have the critics of parties with several turns in this round trained concurrently, before
    these parties are asked for all their gradients in one request."""
    several = [t for t in turns if sum(t.party == other.party for other in turns) > 1]

    def train(turn: SubsetTurn) -> None:
        scalars = {**request.scalars, "slot": turn.slot}
        ctx.ask([turn.party], Request(TRAIN, request.round, request.arrays, scalars))

    list(pool.map(train, several))


def _party_plan(
    cfg: GSWGANConfig,
    stage: Stage,
    budget: Budget,
    info: PartyInfo,
    *,
    schedule: ParticipationSchedule,
    sigma: float,
    generator: nn.Module,
) -> PartyPlan:
    multiplier, all_turns = sigma / math.sqrt(cfg.batch), cfg.steps * cfg.per_round
    turns = sum(schedule.turns[info.party].values())
    event = schedule.event(info.party, multiplier, budget.unit)
    q = 1 / schedule.total_subsets
    one_gradient = without_replacement(schedule.total_subsets, 1, gaussian(sigma))
    weights = sum(t.numel() for t in [*generator.parameters(), *generator.buffers()])
    warm_steps = schedule.subsets[info.party] * cfg.warm_steps
    critic_steps = cfg.critic_steps * (turns + warm_steps)
    return PartyPlan(
        info.party,
        info.records,
        event,
        steps=max(1, turns),
        noise_multiplier=multiplier,
        views={
            SERVER_VIEW: event,
            JOINT_ORDER: repeated(poisson(q, gaussian_in_ball(multiplier)), all_turns),
        },
        paper_event=repeated(one_gradient, all_turns * cfg.batch),
        bytes_up=turns * 4 * cfg.batch * math.prod(stage.data.shape),
        bytes_down=turns * 4 * (weights + cfg.per_round * cfg.batch * math.prod(stage.data.shape)),
        cost=(
            ComputeCost("critic", cfg.width, cfg.batch, critic_steps, cfg.dtype),
            ComputeCost(f"{cfg.generator} draw", cfg.depth, cfg.batch, critic_steps, cfg.dtype),
            ComputeCost(f"{cfg.generator} step", cfg.depth, cfg.batch, warm_steps, cfg.dtype),
        ),
    )


def _budget_text(budget: Budget) -> str:
    """The budget as the key of the public warm-up order: these words must stay as they are."""
    return (
        f"Budget(epsilon={budget.epsilon!r}, delta={budget.delta!r}, unit={str(budget.unit)!r}, "
        f"relation={str(budget.relation)!r}, accounting={str(budget.accounting)!r})"
    )
