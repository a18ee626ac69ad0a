"""A party of GS-WGAN: it trains its critics on its records and releases sanitised gradients."""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn

from fedsynth.core.errors import UserError
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
        subset = next(subset for subset in subsets if subset.index == self.request.round)
        subset.records(self.ctx.data).map(self._stored_critic(subset.index).load)
        return self.ctx.guard.acknowledge()

    def train(self) -> Release:
        """Train the critic of one subset for its turn; nothing is released."""
        (turn,) = [t for t in self._turns() if t.slot == self.request.scalars["slot"]]
        critic, generator = self._stored_critic(turn.subset.index), self._generator()
        turn.subset.records(self.ctx.data).map(lambda own: critic.train(turn, own, generator))
        return self.ctx.guard.acknowledge()

    def release_gradients(self) -> Release:
        """Release the sanitised upstream gradients of all turns of this round."""
        generator = self._generator()
        gradients = [self._sanitised_gradients(turn, generator) for turn in self._turns()]
        return self.ctx.guard.release({"gradients": torch.cat(gradients)})

    def _sanitised_gradients(self, turn: SubsetTurn, generator: nn.Module) -> Tensor:
        ctx = self.ctx
        critic, seed = self._stored_critic(turn.subset.index), self.request.scalars["seed"]
        _, labels = upstream_inputs(ctx.config, ctx.plan, turn, self.request.round, seed)
        images = self._images(turn), labels.to(ctx.device)

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
            UserError: They are missing or of another shape than the settings say.
        """
        images = self.request.arrays.get(images_key(turn))
        shape = (self.ctx.config.batch, *self.ctx.dataset.shape)
        if images is None or images.shape != shape:
            raise UserError(
                f"a request of GS-WGAN must hold {images_key(turn)!r} of shape {shape}, "
                f"got {'nothing' if images is None else tuple(images.shape)}"
            )
        return images.float().to(self.ctx.device)

    def _turns(self) -> list[SubsetTurn]:
        return self.schedule.turns_in_round(self.request.round, self.ctx.party)

    def _stored_critic(self, index: int) -> StoredCritic:
        ctx, stage = self.ctx, self.stage
        key = (self.request.scalars["seed"], "gs_wgan", stage.index, ctx.party, index)
        critic = Critic(ctx.config, stage.data, stage.classes, key, ctx.device)
        return StoredCritic(critic, ctx.data, index)

    def _generator(self) -> nn.Module:
        cfg, stage = self.ctx.config, self.stage
        net = _blank_generator(cfg.generator, cfg.depth, cfg.latent, len(stage.classes), stage.data)
        load_state_vector(net, self.request.arrays["theta"])
        return net.to(self.ctx.device)


@functools.lru_cache(maxsize=4)
def _blank_generator(
    architecture: str, depth: int, latent: int, classes: int, data: DatasetInfo
) -> nn.Module:
    """A generator to load the server's weights into; one per process, as creating it is slow."""
    return new_generator(architecture, depth, latent, classes, data, "blank").eval()
