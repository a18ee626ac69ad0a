"""The generator of a Wasserstein GAN: how it is made, sent, trained at the curator, and drawn from.

It never meets a record: all it learns is in the upstream gradients it is given.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import DatasetInfo
from fedsynth.nn.gan.common import make_generator
from fedsynth.nn.gan.conv_generators import DCGANGenerator
from fedsynth.nn.gan.resnet_generator import ResNetGenerator

KINDS = {"dcgan": DCGANGenerator, "resnet": ResNetGenerator}
SAMPLED_AT_ONCE = 1000


def new_generator(
    kind: str, depth: int, code: int, classes: int, data: DatasetInfo, *key: object
) -> nn.Module:
    """A generator whose first weights depend on the key alone."""
    made = functools.partial(KINDS[kind], depth=depth)
    return make_generator(made, code, classes, data, *key)


def flat(net: nn.Module) -> Tensor:
    """All weights and buffers of a network as one vector: quicker to send than many tensors."""
    tensors = [*net.parameters(), *net.buffers()]
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors]).cpu()


@torch.no_grad()
def fill(net: nn.Module, vector: Tensor) -> None:
    """Give a network the weights and buffers of `flat`."""
    tensors = [*net.parameters(), *net.buffers()]
    pieces = vector.split([tensor.numel() for tensor in tensors])
    for tensor, piece in zip(tensors, pieces, strict=True):
        tensor.copy_(piece.view_as(tensor))


def draw_codes(n: int, code: int, generator: torch.Generator) -> Tensor:
    """Codes: fair coins."""
    return torch.randint(0, 2, (n, code), generator=generator).float()


def draw_inputs(
    n: int, code: int, places: Tensor, key: tuple[object, ...]
) -> tuple[Tensor, Tensor]:
    """Codes and labels of `n` fakes, from public randomness; labels uniform among `places`."""
    generator = torch_generator(*key)
    codes = draw_codes(n, code, generator)
    return codes, places[torch.randint(len(places), (n,), generator=generator)]


class GeneratorTrainer:
    """The generator in training: Adam on what parties answer. Its moving average is released."""

    def __init__(
        self, net: nn.Module, *, rate: float, average: float, device: torch.device | str = "cpu"
    ) -> None:
        self.net = net.to(device).eval()
        self.mean = copy.deepcopy(self.net)
        self.adam = torch.optim.Adam(self.net.parameters(), rate, betas=(0.5, 0.9))
        self.average, self.device = average, device

    @property
    def state(self) -> dict[str, Any]:
        """What a checkpoint must keep; restored in place."""
        return {"generator": self.net, "mean": self.mean, "adam": self.adam}

    def step(self, number: int, codes: Tensor, labels: Tensor, slopes: Tensor) -> None:
        """One step against `slopes`, the gradients of the loss at the images of these codes."""
        images = self.net(codes.to(self.device), labels.to(self.device))
        self.adam.zero_grad()
        images.backward(slopes.to(images))
        self.adam.step()
        if any(True for _ in self.net.buffers()):  # spectral norms follow the weights
            with torch.no_grad():
                self.net.train()(codes[:1].to(self.device), labels[:1].to(self.device))
                self.net.eval()
        self._follow(min(1 - 1 / (number + 1), self.average))

    @torch.no_grad()
    def _follow(self, keep: float) -> None:
        means: list[Tensor] = list(self.mean.parameters())
        torch._foreach_lerp_(means, list(self.net.parameters()), 1 - keep)
        for mean, now in zip(self.mean.buffers(), self.net.buffers(), strict=True):
            mean.copy_(now)

    @torch.no_grad()
    def sample(
        self, classes: Sequence[int], spc: int, code: int, key: tuple[object, ...]
    ) -> SyntheticSet:
        """`spc` images a class from the moving average."""
        places = torch.arange(len(classes)).repeat_interleave(spc)
        codes = draw_codes(len(places), code, torch_generator(*key))
        images = [
            self.mean(some.to(self.device), mine.to(self.device)).cpu()
            for some, mine in zip(
                codes.split(SAMPLED_AT_ONCE), places.split(SAMPLED_AT_ONCE), strict=True
            )
        ]
        return SyntheticSet(torch.cat(images), torch.tensor(classes)[places])
