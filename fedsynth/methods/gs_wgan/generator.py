"""The generator of a Wasserstein GAN at the server: creation, training and sampling.

It is never trained on records: all it learns comes from upstream gradients.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor, nn

from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import DatasetInfo
from fedsynth.methods.common.generator_release import load_state_vector, state_vector
from fedsynth.methods.common.intermediate import KeptValues
from fedsynth.nn import optimizers
from fedsynth.nn.compute_dtype import autocast
from fedsynth.nn.gan.common import make_generator
from fedsynth.nn.gan.conv_generators import DCGANGenerator
from fedsynth.nn.gan.resnet_generator import ResNetGenerator
from fedsynth.nn.gan.spectral_norm import SpectralWeight

SAMPLING_BATCH = 1000


class Architecture(StrEnum):
    """The architecture of a generator."""

    DCGAN = "dcgan"
    RESNET = "resnet"


ARCHITECTURES: dict[str, Callable[..., nn.Module]] = {
    Architecture.DCGAN: DCGANGenerator,
    Architecture.RESNET: ResNetGenerator,
}


def new_generator(
    architecture: str, depth: int, latent: int, classes: int, data: DatasetInfo, *key: object
) -> nn.Module:
    """A generator whose initial weights depend on the key alone."""
    build = functools.partial(ARCHITECTURES[architecture], depth=depth)
    return make_generator(build, latent, classes, data, *key)


def draw_latents(n: int, latent: int, generator: torch.Generator) -> Tensor:
    """Latent vectors of independent fair bits."""
    return torch.randint(0, 2, (n, latent), generator=generator).float()


def draw_inputs(
    n: int, latent: int, class_indices: Tensor, key: tuple[object, ...]
) -> tuple[Tensor, Tensor]:
    """Latents of `n` images and uniform ones of these class indices, from public randomness."""
    generator = torch_generator(*key)
    latents = draw_latents(n, latent, generator)
    return latents, class_indices[torch.randint(len(class_indices), (n,), generator=generator)]


class GeneratorTrainer:
    """Adam on the gradients that parties release; the moving average of weights is released."""

    def __init__(
        self,
        net: nn.Module,
        *,
        learning_rate: float,
        ema_decay: float,
        dtype: str = "float32",
        device: torch.device | str = "cpu",
        kept_steps: Sequence[int] = (),
    ) -> None:
        """`kept_steps` are the numbers of steps after which the average is kept, for intermediate
        sets."""
        self.dtype = dtype
        self.net = net.to(device).eval()
        self.mean = copy.deepcopy(self.net)
        self.adam = optimizers.Adam(self.net.parameters(), learning_rate, betas=(0.5, 0.9))
        self.ema_decay, self.device = ema_decay, device
        self.kept = KeptValues(kept_steps, state_vector(self.mean))

    @property
    def state(self) -> dict[str, Any]:
        """The state that a checkpoint holds; restored in place."""
        nets = {"generator": self.net, "mean": self.mean, "adam": self.adam}
        return {**nets, **self.kept.state}

    def images(self, latents: Tensor, labels: Tensor) -> Tensor:
        """The images of these latents and labels, with the graph that `step` needs."""
        with autocast(self.dtype, self.device):
            images: Tensor = self.net(latents.to(self.device), labels.to(self.device))
        return images.float()

    def step(self, number: int, images: Tensor, gradients: Tensor) -> None:
        """One step against `gradients`, those of the loss at these `images`."""
        self.adam.zero_grad()
        images.backward(gradients.to(images))
        self.adam.step()
        if any(True for _ in self.net.buffers()):  # spectral norms follow the weights
            with torch.no_grad():
                self.net.train()
                for part in self.net.modules():
                    if isinstance(part, SpectralWeight):
                        part.normalised()
                self.net.eval()
        self._average(min(1 - 1 / (number + 1), self.ema_decay))
        if self.kept.due(number + 1):
            self.kept.keep(number + 1, state_vector(self.mean))

    @torch.no_grad()
    def _average(self, decay: float) -> None:
        means: list[Tensor] = list(self.mean.parameters())
        torch._foreach_lerp_(means, list(self.net.parameters()), 1 - decay)
        for mean, current in zip(self.mean.buffers(), self.net.buffers(), strict=True):
            mean.copy_(current)

    def sample(
        self, classes: Sequence[int], spc: int, latent: int, key: tuple[object, ...]
    ) -> SyntheticSet:
        """Draw `spc` images per class from the moving average, and as many from each one that was
        kept on the way, of the same latents."""
        indices = torch.arange(len(classes)).repeat_interleave(spc)
        latents = draw_latents(len(indices), latent, torch_generator(*key))
        labels, earlier = torch.tensor(classes)[indices], copy.deepcopy(self.mean)

        def drawn(net: nn.Module) -> SyntheticSet:
            return SyntheticSet(self._drawn(net, latents, indices), labels)

        sets = {}
        for steps, weights in self.kept:
            load_state_vector(earlier, weights)
            sets[steps] = drawn(earlier)
        return replace(drawn(self.mean), earlier=sets)

    @torch.no_grad()
    def _drawn(self, net: nn.Module, latents: Tensor, indices: Tensor) -> Tensor:
        batches = zip(latents.split(SAMPLING_BATCH), indices.split(SAMPLING_BATCH), strict=True)
        return torch.cat([net(z.to(self.device), c.to(self.device)).cpu() for z, c in batches])
