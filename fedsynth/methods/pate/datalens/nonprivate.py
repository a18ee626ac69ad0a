"""The conditional DCGAN without privacy: DataLens's networks, one discriminator on all records.

A non-private reference, which tells the effect of the networks from that of teachers, votes and
noise. Its settings are those of the program that DataLens names (DCGAN-tensorflow): cross-entropy,
two generator steps per discriminator step, generated images with the labels of the real batch.
Records are disclosed; the ledger says epsilon = infinity.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from fedsynth.core.messages import Request
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.randomness import default_seed, torch_generator
from fedsynth.core.settings import setting
from fedsynth.core.types import ComputeCost, DatasetInfo, PartyInfo, Stage
from fedsynth.data.records import Records, class_indices
from fedsynth.methods.common.generator_training import LearningGenerator, draw, uniform_latents
from fedsynth.methods.common.one_shot import NonPrivateReference, set_bytes
from fedsynth.methods.method import PartyContext
from fedsynth.nn import optimizers
from fedsynth.nn.gan.label_dcgan import LabelDCGAN, make_label_dcgan
from fedsynth.nn.gan.label_discriminator import LabelDiscriminator

BETAS = (0.5, 0.999)
GENERATOR_STEPS = 2  # per step of the discriminator
COST_AS_CONVNET_WIDTH = 128  # a step takes as long as one of such a ConvNet


@dataclass(frozen=True)
class DCGANConfig:
    """Settings of the DCGAN; the defaults are those of DCGAN-tensorflow."""

    epochs: int = setting(25, "passes over the records", at_least=1)
    batch: int = setting(64, "records, and generated images, per step", at_least=2)
    learning_rate: float = setting(2e-4, "Adam's learning rate of both networks", above=0)
    latent: int = setting(100, "length of a latent vector", at_least=1)
    channels: int = setting(64, "channels of the discriminator, besides one per class", at_least=1)
    hidden: int = setting(1024, "units of the discriminator's hidden layer", at_least=1)
    generator_channels: int = setting(128, "channels of the generator", at_least=1)
    generator_hidden: int = setting(1024, "units of the generator's hidden layer", at_least=1)
    spc: int = setting(
        10_000, "images per class drawn from the generator", at_least=1, at_most=1_000_000
    )

    def steps_per_epoch(self, records: int) -> int:
        """The number of whole batches among so many records; at least one."""
        return max(1, records // self.batch)


class DCGAN(NonPrivateReference[DCGANConfig]):
    """DataLens's networks, trained against each other on exact gradients."""

    name = "dc_gan"
    summary = "NOT private: a conditional DCGAN on all records, as the bound of DataLens"
    source = "Radford et al. 2016, DCGAN, as the non-private case of Wang et al. 2021 (DataLens)"
    presets = {
        "smoke": {
            "epochs": 1, "learning_rate": 1e-3, "channels": 8, "hidden": 32,
            "generator_channels": 16, "generator_hidden": 64, "spc": 200,
        },
        "laptop": {
            "epochs": 1, "channels": 32, "hidden": 256, "generator_channels": 64, "spc": 1000,
        },
    }  # fmt: skip

    def check(self, cfg: DCGANConfig, data: DatasetInfo) -> None:
        with torch.device("meta"):
            LabelDCGAN(
                cfg.latent, data.classes, data.shape, cfg.generator_hidden, cfg.generator_channels
            )
            LabelDiscriminator(data.classes, data.shape, cfg.channels, cfg.hidden)

    def set_size(self, cfg: DCGANConfig, stage: Stage, info: PartyInfo) -> int:
        return set_bytes(stage, len(info.class_counts), cfg.spc)

    def work(self, cfg: DCGANConfig, info: PartyInfo) -> tuple[int, tuple[ComputeCost, ...]]:
        steps = cfg.epochs * cfg.steps_per_epoch(info.records)
        return steps, (ComputeCost("train", COST_AS_CONVNET_WIDTH, cfg.batch, steps),)

    def synthesize_from(
        self, ctx: PartyContext[DCGANConfig], request: Request, records: Records
    ) -> SyntheticSet:
        cfg, classes = ctx.config, sorted(ctx.info.class_counts)
        key = ctx.random_key(request)
        indices = class_indices(records.labels, classes)
        learner = _learner(ctx, len(classes), key)
        with default_seed(*key, "discriminator"):
            net = LabelDiscriminator(len(classes), ctx.dataset.shape, cfg.channels, cfg.hidden)
        net = net.to(ctx.device)
        adam = optimizers.Adam(net.parameters(), cfg.learning_rate, betas=BETAS)
        per_epoch = cfg.steps_per_epoch(len(indices))
        state = {"discriminator": net, "of discriminator": adam, **learner.state}
        for step in ctx.data.rounds(cfg.epochs * per_epoch, state):
            epoch, position = divmod(step, per_epoch)
            order = torch.randperm(len(indices), generator=torch_generator(*key, "order", epoch))
            batch = order[position * cfg.batch : (position + 1) * cfg.batch]
            labels = indices[batch].to(ctx.device)
            with torch.no_grad():
                fake, _ = learner.batch(step * (GENERATOR_STEPS + 1), labels)
            real = records.pixels(batch).to(ctx.device)
            adam.zero_grad()
            (_loss(net(real, labels), 1.0) + _loss(net(fake, labels), 0.0)).backward()
            adam.step()
            for number in range(GENERATOR_STEPS):
                images, _ = learner.batch(step * (GENERATOR_STEPS + 1) + 1 + number, labels)
                learner.descend(_loss(net(images, labels), 1.0))
        return _sample(learner, classes, cfg, torch_generator(*key, "sample"))


def _learner(
    ctx: PartyContext[DCGANConfig], classes: int, key: tuple[object, ...]
) -> LearningGenerator:
    cfg = ctx.config
    net = make_label_dcgan(
        cfg.latent, classes, ctx.dataset, cfg.generator_hidden, cfg.generator_channels,
        *key, "generator",
    ).to(ctx.device)  # fmt: skip
    adam = optimizers.Adam(net.parameters(), cfg.learning_rate, betas=BETAS)
    weights = torch.full((classes,), 1 / classes)
    return LearningGenerator(
        net, adam, latent=cfg.latent, weights=weights, key=key, device=ctx.device, uniform=True
    )


def _loss(scores: Tensor, target: float) -> Tensor:
    return F.binary_cross_entropy_with_logits(scores, torch.full_like(scores, target))


def _sample(
    learner: LearningGenerator, classes: list[int], cfg: DCGANConfig, generator: torch.Generator
) -> SyntheticSet:
    """`spc` images per class, classes in turn: batch norm is over the images of a batch."""
    indices = torch.arange(len(classes) * cfg.spc) % len(classes)
    latents = uniform_latents(len(indices), cfg.latent, generator)
    return SyntheticSet(draw(learner.net, latents, indices), torch.tensor(classes)[indices])
