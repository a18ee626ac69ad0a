"""A party of GS-WGAN: it trains its critics on its records and releases sanitised gradients."""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn

from fedsynth.core.messages import Release, Request
from fedsynth.core.types import DatasetInfo
from fedsynth.data.records import Records
from fedsynth.methods.common.generator_release import load_state_vector
from fedsynth.methods.gs_wgan.config import GSWGANConfig, images_key, upstream_inputs
from fedsynth.methods.gs_wgan.critic import Critic, StoredCritic
from fedsynth.methods.gs_wgan.generator import new_generator
from fedsynth.methods.gs_wgan.schedule import SubsetTurn
from fedsynth.methods.method import PartyContext
from fedsynth.privacy.mechanisms.upstream_gradients import UpstreamGradients


class GSWGANClient:
    """One party while it answers one request."""

    def __init__(self, ctx: PartyContext[GSWGANConfig], request: Request) -> None:
        self.ctx, self.request = ctx, request
        self.stage = ctx.plan.stage
        self.schedule = ctx.config.schedule(self.stage)

    def warm_up(self) -> Release:
        """Warm up the critic of one subset; nothing is released."""
        subsets = self.schedule.turns[self.ctx.party]
        found = [subset for subset in subsets if subset.index == self.request.round]
        if not found:
            raise self.request.refused(f"is for subset {self.request.round}, which has no turn.")
        (subset,) = found
        subset.records(self.ctx.data).map(self._stored_critic(subset.index).load)
        return self.ctx.guard.acknowledge()

    def train(self) -> Release:
        """Train the critic of one subset for its turn; nothing is released."""
        slot = self.request.scalar("slot")
        found = [turn for turn in self._turns() if turn.slot == slot]
        if not found:
            raise self.request.refused(f"is for slot {slot!r}, which is not of this party.")
        (turn,) = found
        critic, generator = self._stored_critic(turn.subset.index), self._generator()
        turn.subset.records(self.ctx.data).map(lambda own: critic.train(turn, own, generator))
        return self.ctx.guard.acknowledge()

    def release_gradients(self) -> Release:
        """Release the sanitised upstream gradients of all turns of this round."""
        generator, turns = self._generator(), self._turns()
        images = [self._images(turn) for turn in turns]  # all are checked before any is charged
        gradients = [
            self._sanitised_gradients(*turn, generator) for turn in zip(turns, images, strict=True)
        ]
        return self.ctx.guard.release({"gradients": torch.cat(gradients)})

    def _sanitised_gradients(self, turn: SubsetTurn, shown: Tensor, generator: nn.Module) -> Tensor:
        ctx = self.ctx
        critic, seed = self._stored_critic(turn.subset.index), self.request.scalar("seed")
        _, labels = upstream_inputs(ctx.config, ctx.plan, turn, self.request.round, seed)
        images = shown, labels.to(ctx.device)

        def gradients(records: Records) -> Tensor:
            return critic.upstream_gradients(turn, records, generator, images)

        mechanism = UpstreamGradients(
            gradients=gradients,
            shape=(ctx.config.batch, *ctx.dataset.shape),
            subset=turn.subset,
            clip=ctx.config.clip,
            noise_multiplier=ctx.party_plan.noise_multiplier,
        )
        (sanitised,) = ctx.guard.apply(mechanism, ctx.data, call=turn.slot)
        return sanitised

    def _images(self, turn: SubsetTurn) -> Tensor:
        """The generated images of this turn, as the server sent them.

        Raises:
            Refused: They are missing or of another form than the settings say.
        """
        shape = (self.ctx.config.batch, *self.ctx.dataset.shape)
        return self.request.array(images_key(turn), shape).to(self.ctx.device)

    def _turns(self) -> list[SubsetTurn]:
        number, rounds = self.request.round, len(self.schedule.rounds)
        turns = self.schedule.turns_in_round(number, self.ctx.party) if 0 <= number < rounds else []
        if not turns:
            raise self.request.refused(f"is for round {number}, in which this party has no turn.")
        return turns

    def _stored_critic(self, index: int) -> StoredCritic:
        ctx, stage = self.ctx, self.stage
        key = (self.request.scalar("seed"), "gs_wgan", stage.index, ctx.party, index)
        critic = Critic(ctx.config, stage.data, stage.classes, key, ctx.device)
        return StoredCritic(critic, ctx.data, index)

    def _generator(self) -> nn.Module:
        cfg, stage = self.ctx.config, self.stage
        net = _blank_generator(cfg.generator, cfg.depth, cfg.latent, len(stage.classes), stage.data)
        weights = sum(tensor.numel() for tensor in [*net.parameters(), *net.buffers()])
        load_state_vector(net, self.request.array("theta", (weights,)))
        return net.to(self.ctx.device)


@functools.lru_cache(maxsize=4)
def _blank_generator(
    architecture: str, depth: int, latent: int, classes: int, data: DatasetInfo
) -> nn.Module:
    """A generator to load the server's weights into; one per process, as creating it is slow."""
    return new_generator(architecture, depth, latent, classes, data, "blank").eval()
