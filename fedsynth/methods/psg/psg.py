"""PSG, private set generation: each party distils its records into a few private images.

Chen, Kerkouche, Fritz: "Private Set Generation with Discriminative Information", 2022. Everything
happens inside the party; one release a stage. Where the published program and its text disagree,
this follows what the accounting covers: noise once on the sum, Poisson sampling, a constant
denominator (which the matching loss cancels), exactly R T K real gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fedsynth.core.model import (
    Arrays,
    Budget,
    Method,
    Outcome,
    Parties,
    PartyFacts,
    PartyPlan,
    Plan,
    Release,
    Request,
    SyntheticSet,
    Task,
    Work,
)
from fedsynth.core.randomness import torch_generator
from fedsynth.data.normalization import Scale
from fedsynth.methods.common.poisson_plan import sampled_share, step_event
from fedsynth.methods.psg.gradient_matching import (
    MatchedImages,
    MatchingConfig,
    PrivateMatchingConfig,
    match_run,
    set_bytes,
)
from fedsynth.privacy.guard import Guard
from fedsynth.privacy.party_data import Private

LAPTOP = {"width": 32, "outer": 1, "inner": 0, "image_rate": 0.5, "image_init": 0.1, "updates": 3}


@dataclass(frozen=True)
class PSGConfig(PrivateMatchingConfig):
    """PSG's settings: those of the matching loop."""


class PSG(Method):
    """One-shot: the party runs the whole loop and releases its images."""

    name = "psg"
    summary = "Private set generation: images matched to clipped, noised gradients at home"
    source = "Chen et al. 2022, Private Set Generation with Discriminative Information"
    Config = PSGConfig
    presets = {
        "smoke": {**LAPTOP, "runs": 2},
        "laptop": {**LAPTOP, "runs": 15},
        "paper": {},
    }

    def inherits(self, cfg: PSGConfig) -> bool:
        return cfg.inner_set == "all"

    def plan(self, cfg: PSGConfig, task: Task, budget: Budget) -> Plan:
        parties = tuple(self._party_plan(cfg, task, facts, budget) for facts in task.parties)
        assumes = ("the number of records of each party", "the classes a party holds")
        return Plan(self.name, task, budget, parties, assumes=assumes)

    def _party_plan(
        self, cfg: PSGConfig, task: Task, facts: PartyFacts, budget: Budget
    ) -> PartyPlan:
        held = len(facts.class_counts)
        return sampled_share(
            facts,
            budget,
            rate=min(1.0, cfg.batch / facts.records),
            steps=cfg.steps,
            bytes_up=set_bytes(task, held, cfg.spc),
            work=(
                Work("gradient", cfg.width, cfg.batch, cfg.steps),
                *cfg.curator_work(held),
            ),
        )

    def party(
        self, cfg: PSGConfig, plan: Plan, private: Private, request: Request, guard: Guard
    ) -> Release:
        share = plan.of(private.facts.party)
        scale = Scale.standard(plan.task.data)

        def real_gradient(net: nn.Module, call: int) -> list[torch.Tensor]:
            return guard.noisy_gradient(
                private,
                net,
                scale,
                clip=cfg.clip,
                noise_multiplier=share.noise_multiplier,
                sampling_rate=share.sampling_rate,
                call=call,
                dtype=cfg.dtype,
            )

        matched = self.start(cfg, plan, private.facts.party, request, guard.device)
        others = other_classes(cfg, plan, matched, request.arrays)
        with guard.reserve(step_event(share), cfg.steps):
            for run in private.rounds(cfg.runs, matched.state):
                match_run(matched, run, real_gradient, others)
        result = matched.result()
        return guard.release({"images": result.images, "labels": result.labels})

    def start(
        self, cfg: Any, plan: Plan, party: int, request: Request, device: torch.device
    ) -> MatchedImages:
        """What the loop moves: a party's first images."""
        return start_images(cfg, plan, party, request, device)

    def serve(self, cfg: PSGConfig, plan: Plan, parties: Parties) -> Outcome:
        return pooled(parties.ask(parties.who, psg_request(cfg, parties)))


def psg_request(cfg: MatchingConfig, parties: Parties) -> Request:
    """Ask for a set; with `inner_set=all` the earlier stages' images go along."""
    arrays = earlier_images(parties) if cfg.inner_set == "all" else {}
    return Request(arrays=arrays, numbers={"seed": parties.seed})


def earlier_images(parties: Parties) -> Arrays:
    """The images of the stages before, with their labels; nothing in the first stage."""
    if not parties.inherited:
        return {}
    before = SyntheticSet.join([s for s in parties.inherited if isinstance(s, SyntheticSet)])
    return {"images": before.images, "labels": before.labels}


def start_images(
    cfg: MatchingConfig, plan: Plan, party: int, request: Request, device: torch.device
) -> MatchedImages:
    """The first images of a party, from public randomness."""
    key = (request.numbers["seed"], "psg", plan.task.stage, party)
    classes = sorted(plan.facts(party).class_counts, key=plan.task.classes.index)
    return MatchedImages(cfg, plan.task.data, classes, key, device)


def other_classes(
    cfg: MatchingConfig, plan: Plan, matched: MatchedImages, known: Arrays
) -> SyntheticSet | None:
    """With `inner_set=all`: earlier stages' images (`known`), and noise for the classes still to
    come."""
    if cfg.inner_set == "own":
        return None
    have = set(matched.labels.tolist()) | set(known["labels"].tolist() if known else [])
    future = [c for c in range(plan.task.data.classes) if c not in have for _ in range(cfg.spc)]
    noise = torch.randn(
        (len(future), *plan.task.data.shape), generator=torch_generator(*matched.key, "future")
    )
    to_come = SyntheticSet(
        matched.scale.to_pixels(noise * cfg.image_init), torch.tensor(future, dtype=torch.int64)
    )
    if not known:
        return to_come
    return SyntheticSet.join([SyntheticSet(known["images"], known["labels"]), to_come])


def pooled(releases: list[Release]) -> SyntheticSet:
    """All parties' images together."""
    return SyntheticSet.join(
        [SyntheticSet(r.arrays["images"], r.arrays["labels"]) for r in releases]
    )
