"""Norms of the gradients that GS-WGAN clips, and of those that other GANs would clip.

    python benchmarks/gradient_norms.py [--critics 2] [--warm 50] [--rounds 20] [--out FOLDER]

PRIVATE INFORMATION, NOT A RELEASE: these are functions of raw records without any noise. Only
public data may be given to this program; no party computes them for a server.

Critics are warmed up on subsets of 60 MNIST records (training data without the hold-out), each with
a generator of its own; then one released generator takes a step per round along the clipped
gradients of one critic, without noise, and the norm of the gradient at each generated image is
recorded before clipping to C = 1. The kinds of critic: the published one (Wasserstein loss with
gradient penalty, spectral norm on every weight), the same without the penalty, without the spectral
norm, and without both; and a discriminator of a DCGAN with the standard loss, which gives a
generator the gradient of log(1 + e^-score). Beside them, as in Figure A1 of the supplement,
the gradients that DP-SGD clips: those of a discriminator's weights, one per record, in DP-CGAN's
networks with its bound C = 1.1, clipped in training and not noised.

Prints quantiles and the share that clipping shortens, and writes a figure of norm over bound.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedsynth.core.randomness import torch_generator
from fedsynth.core.text import markdown_table
from fedsynth.data.records import Records
from fedsynth.engine.process_setup import prepare_worker
from fedsynth.experiment.scenario import party_records
from fedsynth.experiment.scenario_config import ScenarioConfig, dataset_info
from fedsynth.methods.common.generator_release import uniform_inputs
from fedsynth.methods.dp_gan.dp_cgan import DPCGANConfig, fake_loss, real_loss
from fedsynth.methods.gs_wgan import critic as critics
from fedsynth.methods.gs_wgan.config import GSWGANConfig
from fedsynth.methods.gs_wgan.critic import Critic
from fedsynth.methods.gs_wgan.generator import GeneratorTrainer, new_generator
from fedsynth.nn import optimizers
from fedsynth.nn.gan.label_discriminator import LabelDiscriminator
from fedsynth.nn.gan.mlp import mlp_discriminator, rows_with_labels
from fedsynth.nn.gan.spectral_norm import SpectralWeight
from fedsynth.privacy.clipping import clipped_gradient_sum
from fedsynth.report.figures import cumulative_shares, render
from fedsynth.storage.files import write_file

MNIST = ScenarioConfig(data="mnist", partition="single", parties=1, holdout=5000)
SUBSET, CLIP, QUANTILES = 60, 1.0, (0.05, 0.25, 0.5, 0.75, 0.95)
CLASSES = tuple(range(10))


class WholeLoop:
    """The part of a party's data that a warm start needs, without checkpoints."""

    @staticmethod
    def rounds(n: int, *_: object) -> Iterator[int]:
        """0 to n - 1."""
        yield from range(n)

    @staticmethod
    def file(name: str) -> Path:
        """A file that is not there."""
        return Path("absent") / name


class LogProbability(nn.Module):
    """A discriminator's logarithm of the probability that an image is real."""

    def __init__(self, discriminator: nn.Module) -> None:
        super().__init__()
        self.discriminator = discriminator

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """The logarithm of the probability."""
        return F.logsigmoid(self.discriminator(images, labels))


def standard_loss(
    net: nn.Module, real: Tensor, fake: Tensor, labels: Tensor, *_: object, **__: object
) -> Tensor:
    """The cross-entropy of real and generated images, from `LogProbability`."""
    on_fake = net(fake, labels).clamp(max=-1e-7)
    return -net(real, labels).mean() - torch.log(-torch.expm1(on_fake)).mean()


class StandardCritic(Critic):
    """A discriminator with the standard loss in the place of a critic."""

    def reset(self) -> None:
        self.net = LogProbability(LabelDiscriminator(len(CLASSES), self.data.shape, 16, 128))
        self.adam = self._adam(self.net)


def without_spectral_norm(net: nn.Module) -> nn.Module:
    """The network with its weights as they are."""
    for part in net.modules():
        if isinstance(part, SpectralWeight):
            part.normalised = lambda part=part: part.weight  # type: ignore[method-assign]
    return net


def make_critic(cfg: GSWGANConfig, index: int, *, standard: bool, spectral: bool) -> Critic:
    """A critic of one kind with networks of its own."""
    kind = StandardCritic if standard else Critic
    made = kind(cfg, dataset_info(MNIST), CLASSES, ("norms", index), torch.device("cpu"))
    made.net = copy.deepcopy(made.net)
    if not (standard or spectral):
        without_spectral_norm(made.net)
    return made


def upstream_norms(
    records: Records, arguments: argparse.Namespace, cfg: GSWGANConfig, **kind: bool
) -> Tensor:
    """Norms of the gradients at all generated images of the rounds, before clipping."""
    generator = new_generator(
        cfg.generator, cfg.depth, cfg.latent, len(CLASSES), dataset_info(MNIST), "norms"
    )
    trainer = GeneratorTrainer(generator, learning_rate=cfg.learning_rate, ema_decay=cfg.ema_decay)
    loss: Callable[..., Tensor] = standard_loss if kind["standard"] else critics.wasserstein_loss
    norms = []
    with mock.patch.object(critics, "wasserstein_loss", loss):
        subsets = []
        for index in range(arguments.critics):
            chosen = torch.arange(index * SUBSET, (index + 1) * SUBSET)
            own = Records(records.images[chosen], records.labels[chosen])
            subsets.append((make_critic(cfg, index, **kind), own))
            subsets[-1][0].warm_up(own, WholeLoop, "warm")  # type: ignore[arg-type]
        for number in range(arguments.rounds):
            critic, own = subsets[number % len(subsets)]
            critic.train(own, trainer.net, "visit", number)
            latents, labels = critic.inputs(torch.arange(len(CLASSES)), "upstream", number)
            images = trainer.images(latents, labels)
            gradients = critic.upstream(images.detach(), labels)
            norms.append(gradients.flatten(1).norm(dim=1))
            factors = (CLIP / norms[-1]).clamp(max=1).view(-1, 1, 1, 1)
            trainer.step(number, images, gradients * factors / cfg.batch)
    return torch.cat(norms)


def record_norms(records: Records, steps: int, cfg: DPCGANConfig) -> Tensor:
    """Norms of a discriminator's gradients at single records in the last tenth of its training."""
    torch.manual_seed(0)
    generator = cfg.generator(len(CLASSES), dataset_info(MNIST).shape)
    net = mlp_discriminator(28 * 28 + len(CLASSES), (cfg.hidden,))
    adam, weights = optimizers.Adam(generator.parameters(), cfg.learning_rate), [*net.parameters()]
    draw, norms = torch_generator("norms", "batches"), []
    for step in range(steps):
        chosen = torch.randperm(len(records.labels), generator=draw)[: cfg.batch]
        real = rows_with_labels(records.pixels(chosen), records.labels[chosen], len(CLASSES))
        latents, labels = uniform_inputs(cfg.batch, cfg.latent, len(CLASSES), "norms", step)
        fake = rows_with_labels(generator(latents, labels), labels, len(CLASSES))
        sums = [
            clipped_gradient_sum(net, rows.detach(), labels, clip=cfg.clip, loss=loss)
            for rows, loss in ((real, real_loss), (fake, fake_loss))
        ]
        if step >= 0.9 * steps:
            norms.append(_norms_at_rows(net, real))
        with torch.no_grad():
            rate = cfg.discriminator_learning_rate(step) / cfg.batch
            for weight, *parts in zip(weights, *sums, strict=True):
                weight.sub_(sum(parts).float(), alpha=rate)
        adam.zero_grad()
        real_loss(net(fake), labels).mean().backward()
        adam.step()
    return torch.cat(norms)


def _norms_at_rows(net: nn.Module, rows: Tensor) -> Tensor:
    """The norm of the gradient over all weights at each row."""
    state = {name: value.detach() for name, value in net.named_parameters()}

    def loss(weights: dict[str, Tensor], row: Tensor) -> Tensor:
        scores = torch.func.functional_call(net, weights, (row[None],))
        return F.softplus(-scores).sum()

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(state, rows)
    return torch.cat([g.flatten(1) for g in each.values()], dim=1).norm(dim=1)


def line(name: str, norms: Tensor, bound: float) -> list[str]:
    """The row of a table: quantiles and moments before clipping, moments after it."""
    clipped = norms.clamp(max=bound)
    before = [norms.quantile(q).item() for q in QUANTILES]
    moments = [norms.mean(), norms.std(), clipped.mean(), clipped.std()]
    share = (norms > bound).double().mean().item()
    lost = 1 - (clipped.mean() / norms.mean()).item()
    return [
        name,
        f"{bound:g}",
        *(f"{value:.3g}" for value in before),
        *(f"{value.item():.3g}" for value in moments),
        f"{share:.1%}",
        f"{lost:.1%}",
    ]


def main() -> None:
    """Print the table and write the figure."""
    parser = argparse.ArgumentParser()
    for name, default in (("critics", 2), ("warm", 50), ("rounds", 20), ("steps", 200)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--depth", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--out", type=Path, default=Path())
    arguments = parser.parse_args()
    prepare_worker()
    records = party_records(MNIST, 0)
    base = GSWGANConfig(
        generator="dcgan", width=arguments.width, depth=arguments.depth,
        warm_steps=arguments.warm, learning_rate=arguments.learning_rate,
    )  # fmt: skip
    without = replace(base, penalty=0.0)
    found: dict[str, tuple[Tensor, float]] = {}
    for name, cfg, standard, spectral in (
        ("GS-WGAN", base, False, True),
        ("no penalty", without, False, True),
        ("no spectral norm", base, False, False),
        ("neither", without, False, False),
        ("standard loss", base, True, False),
    ):
        norms = upstream_norms(records, arguments, cfg, standard=standard, spectral=spectral)
        found[name] = norms, CLIP
        print(f"{name}: {len(norms)} gradients", file=sys.stderr, flush=True)
    dp_cgan = DPCGANConfig()
    found["DP-SGD, per record"] = record_norms(records, arguments.steps, dp_cgan), dp_cgan.clip
    quantiles = [f"{q:.0%}" for q in QUANTILES]
    moments = ("mean", "deviation", "mean after", "deviation after", "clipped", "lost of the mean")
    columns = ("gradients", "C", *quantiles, *moments)
    print("PRIVATE INFORMATION, NOT A RELEASE: norms computed on raw records without noise\n")
    print(markdown_table(columns, [line(name, *pair) for name, pair in found.items()]))
    over_bound = {name: (norms / bound).numpy() for name, (norms, bound) in found.items()}
    figure = cumulative_shares(
        over_bound, 1.0, "norm of a gradient over its bound C", title="private: not a release"
    )
    write_file(arguments.out / "gradient_norms.svg", render(figure, "svg"))
    assert all(np.isfinite(values).all() for values in over_bound.values())


if __name__ == "__main__":
    main()
