"""The party's side of GS-WGAN: train critics at home, answer with sanitised gradients."""

from __future__ import annotations

import functools

from torch import Tensor, nn

from fedsynth.core.messages import Request
from fedsynth.core.plan import Plan
from fedsynth.core.types import DatasetInfo
from fedsynth.methods.gs_wgan.config import GSWGANConfig, upstream_inputs
from fedsynth.methods.gs_wgan.critic import Critic, StoredCritic
from fedsynth.methods.gs_wgan.generator import fill, new_generator
from fedsynth.methods.gs_wgan.schedule import SubsetTurn
from fedsynth.privacy.guard import Guard
from fedsynth.privacy.mechanisms.upstream_gradients import UpstreamGradients
from fedsynth.privacy.party_data import PartyData, Records


class GSWGANClient:
    """One party while it answers one request."""

    def __init__(
        self, cfg: GSWGANConfig, plan: Plan, private: PartyData, request: Request, guard: Guard
    ) -> None:
        self.cfg, self.plan, self.private, self.request, self.guard = (
            cfg, plan, private, request, guard,
        )  # fmt: skip
        self.share = plan.of(private.info.party)

    def _home(self, index: int) -> StoredCritic:
        stage, seed = self.plan.stage, self.request.numbers["seed"]
        key = (seed, "gs_wgan", stage.index, self.share.party, index)
        critic = Critic(self.cfg, stage.data, stage.classes, key, self.guard.device)
        return StoredCritic(critic, self.private, index)

    def _visits(self) -> list[SubsetTurn]:
        return self.cfg.schedule(self.plan.stage).at(self.request.round, self.share.party)

    def _generator(self) -> nn.Module:
        stage, cfg = self.plan.stage, self.cfg
        net = _blank_generator(cfg.generator, cfg.depth, cfg.code, len(stage.classes), stage.data)
        fill(net, self.request.arrays["theta"])
        return net.to(self.guard.device)

    def warm(self) -> None:
        """Warm up one critic."""
        index = self.request.round
        parts = self.cfg.schedule(self.plan.stage).visits[self.share.party]
        part = next(part for part in parts if part.index == index)
        part.records(self.private).map(self._home(index).ready)

    def train(self) -> None:
        """Train one critic for its visit."""
        (visit,) = [v for v in self._visits() if v.slot == self.request.numbers["slot"]]
        home, generator = self._home(visit.part.index), self._generator()
        visit.part.records(self.private).map(lambda mine: home.train(visit, mine, generator))

    def answers(self) -> list[Tensor]:
        """The sanitised gradients of all visits of this round."""
        generator = self._generator()
        return [self._sanitised(visit, generator) for visit in self._visits()]

    def _sanitised(self, visit: SubsetTurn, generator: nn.Module) -> Tensor:
        home, seed = self._home(visit.part.index), self.request.numbers["seed"]
        codes, labels = upstream_inputs(self.cfg, self.plan, visit, self.request.round, seed)
        inputs = codes.to(self.guard.device), labels.to(self.guard.device)

        def gradients(records: Records) -> Tensor:
            return home.answer(visit, records, generator, inputs)

        mechanism = UpstreamGradients(
            gradients=gradients,
            subset=visit.part,
            clip=self.cfg.clip,
            noise_multiplier=self.share.noise_multiplier,
        )
        (sanitised,) = self.guard.apply(mechanism, self.private, call=visit.slot)
        return sanitised


@functools.lru_cache(maxsize=4)
def _blank_generator(
    kind: str, depth: int, code: int, classes: int, data: DatasetInfo
) -> nn.Module:
    """A generator to be filled with what the curator sent; one a process, as making it is slow."""
    return new_generator(kind, depth, code, classes, data, "blank").eval()
