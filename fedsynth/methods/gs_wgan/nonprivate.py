"""The GAN without privacy: GS-WGAN's networks and losses with one critic on all records.

A non-private reference, which tells the effect of adversarial training from that of subsets,
clipping and noise: no subsets, no warm start, and the generator follows the exact gradients of its
critic. Records are disclosed; the ledger says epsilon = infinity.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedsynth.core.messages import Request
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.settings import setting
from fedsynth.core.types import ComputeCost, DatasetInfo, PartyInfo, Stage
from fedsynth.data.records import Records
from fedsynth.methods.common.one_shot import NonPrivateReference, set_bytes
from fedsynth.methods.gs_wgan.config import WassersteinConfig
from fedsynth.methods.gs_wgan.critic import TrainedCritic
from fedsynth.methods.gs_wgan.generator import ARCHITECTURES, GeneratorTrainer, new_generator
from fedsynth.methods.method import PartyContext
from fedsynth.nn.gan.critics import ProjectionCritic


@dataclass(frozen=True)
class GANConfig(WassersteinConfig):
    """Settings of the GAN; the defaults are those of GS-WGAN."""

    steps: int = setting(20000, "generator steps", at_least=1)
    ema_decay: float = setting(
        0.999, "decay of the moving average of generators that is released", at_least=0, at_most=1
    )
    spc: int = setting(
        6000, "images per class drawn from the generator", at_least=1, at_most=1_000_000
    )


class GAN(NonPrivateReference[GANConfig]):
    """GS-WGAN with one subset, no clipping and no noise."""

    name = "gan"
    summary = "NOT private: GS-WGAN's networks with exact gradients, as the bound of private GANs"
    source = "the non-private GAN of Chen et al. 2020 (GS-WGAN), after Gulrajani et al. 2017"
    presets = {
        "smoke": {
            "steps": 200, "width": 16, "generator": "dcgan", "depth": 64, "learning_rate": 1e-3,
            "ema_decay": 0.9, "spc": 200,
        },
        "laptop": {
            "steps": 1000, "width": 32, "generator": "dcgan", "depth": 64, "learning_rate": 1e-3,
            "ema_decay": 0.99, "spc": 1000,
        },
    }  # fmt: skip

    def check(self, cfg: GANConfig, data: DatasetInfo) -> None:
        with torch.device("meta"):
            ARCHITECTURES[cfg.generator](cfg.latent, data.classes, data.shape, cfg.depth)
            ProjectionCritic(cfg.width, data.classes, data.shape)

    def set_size(self, cfg: GANConfig, stage: Stage, info: PartyInfo) -> int:
        return set_bytes(stage, len(info.class_counts), cfg.spc)

    def work(self, cfg: GANConfig, info: PartyInfo) -> tuple[int, tuple[ComputeCost, ...]]:
        critic_steps = cfg.steps * cfg.critic_steps
        return cfg.steps, (
            ComputeCost("critic", cfg.width, cfg.batch, critic_steps, cfg.dtype),
            ComputeCost(f"{cfg.generator} draw", cfg.depth, cfg.batch, critic_steps, cfg.dtype),
            ComputeCost(f"{cfg.generator} step", cfg.depth, cfg.batch, cfg.steps, cfg.dtype),
        )

    def synthesize_from(
        self, ctx: PartyContext[GANConfig], request: Request, records: Records
    ) -> SyntheticSet:
        cfg, classes, key = (
            ctx.config,
            tuple(sorted(ctx.info.class_counts)),
            ctx.random_key(request),
        )
        critic = TrainedCritic(cfg, ctx.dataset, classes, key, ctx.device)
        critic.reset()
        trainer = GeneratorTrainer(
            new_generator(
                cfg.generator, cfg.depth, cfg.latent, len(classes), ctx.dataset, *key, "generator"
            ),
            learning_rate=cfg.learning_rate,
            ema_decay=cfg.ema_decay,
            dtype=cfg.dtype,
            device=ctx.device,
        )
        every_class = torch.arange(len(classes))
        state = {"critic": critic.net, "of critic": critic.adam, **trainer.state}
        for step in ctx.data.rounds(cfg.steps, state):
            critic.train(records, trainer.net, step)
            latents, labels = critic.inputs(every_class, "generator", step)
            images = trainer.images(latents, labels)
            trainer.step(step, images, critic.upstream(images.detach(), labels) / cfg.batch)
        return trainer.sample(classes, cfg.spc, cfg.latent, (*key, "sample"))
