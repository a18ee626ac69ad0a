"""A generator in training on what parties released, and the set that is drawn from it.

The loop around it belongs to the method: it asks for a batch, computes a loss or the gradients at
the images, and lets the generator take a step. Latent vectors and labels are public randomness,
keyed by the step. Labels are class indices, 0 to classes - 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.randomness import torch_generator

DRAW_BATCH = 1000  # records drawn at a time


class LearningGenerator:
    """A conditional generator with its optimiser and its public randomness."""

    def __init__(
        self,
        net: nn.Module,
        optimiser: torch.optim.Optimizer,
        *,
        latent: int,
        weights: Tensor,
        key: tuple[object, ...],
        device: torch.device | str = "cpu",
        uniform: bool = False,
    ) -> None:
        """Start training.

        Args:
            net: The generator, a function of latent vectors and labels.
            optimiser: The optimiser of its weights.
            latent: The length of a latent vector.
            weights: The shares of the classes among labels.
            key: The key of its public randomness.
            device: The device of `net`.
            uniform: Draw latent vectors uniformly from (-1, 1), not from a standard normal.
        """
        self.net, self.optimiser = net, optimiser
        self.latent, self.weights, self.key, self.device = latent, weights, key, device
        self._draw = uniform_latents if uniform else normal_latents

    @property
    def state(self) -> dict[str, object]:
        """The state to checkpoint; restored in place."""
        return {"generator": self.net, "optimiser": self.optimiser}

    def batch(self, number: int, labels: int | Tensor) -> tuple[Tensor, Tensor]:
        """The images of step `number`, with their graph, and their labels.

        Args:
            number: The number of the step.
            labels: The labels, or how many to draw.
        """
        generator = torch_generator(*self.key, "batch", number)
        if isinstance(labels, int):
            labels = torch.multinomial(self.weights, labels, replacement=True, generator=generator)
        latents = self._draw(len(labels), self.latent, generator)
        self.net.train()
        return self.net(latents.to(self.device), labels.to(self.device)), labels

    def descend(self, loss: Tensor) -> None:
        """Take one step of the optimiser down a loss."""
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()

    def descend_gradients(self, images: Tensor, gradients: Tensor) -> None:
        """Take one step of the optimiser down a loss with these gradients at `images`."""
        self.optimiser.zero_grad()
        images.backward(gradients)
        self.optimiser.step()

    def sample(
        self, classes: Sequence[int], spc: int, decode: Callable[[Tensor], Tensor] | None = None
    ) -> SyntheticSet:
        """Draw `spc` records per class on average, by class weight, at least one of each.

        Args:
            classes: The label of each class index.
            spc: The average number of records per class.
            decode: Turns outputs of the network into records, where they are not yet.
        """
        counts = (self.weights * len(classes) * spc).round().long().clamp_min(1)
        indices = torch.repeat_interleave(torch.arange(len(classes)), counts)
        latents = self._draw(len(indices), self.latent, torch_generator(*self.key, "sample"))
        records = draw(self.net, latents, indices, decode)
        return SyntheticSet(records, torch.tensor(list(classes))[indices])


@torch.no_grad()
def draw(
    net: nn.Module,
    latents: Tensor,
    labels: Tensor,
    decode: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """The records of these latent vectors and labels, on the CPU, some at a time."""
    net.eval()
    device = next(net.parameters()).device
    parts = [
        net(some_latents.to(device), some_labels.to(device)).cpu()
        for some_latents, some_labels in zip(
            latents.split(DRAW_BATCH), labels.split(DRAW_BATCH), strict=True
        )
    ]
    return torch.cat([decode(part) for part in parts] if decode else parts)


def uniform_latents(count: int, latent: int, generator: torch.Generator) -> Tensor:
    """Latent vectors uniform in (-1, 1)."""
    return torch.rand(count, latent, generator=generator) * 2 - 1


def normal_latents(count: int, latent: int, generator: torch.Generator) -> Tensor:
    """Standard normal latent vectors."""
    return torch.randn(count, latent, generator=generator)
