"""A generator while it learns from what was released, and the set that is drawn from it.

The loop around it belongs to the method: it asks for a batch, computes a loss or the slopes at the
images, and lets the generator move. Codes and labels are public randomness, keyed by the step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.randomness import torch_generator

AT_ONCE = 1000  # images drawn for the set at a time


class LearningGenerator:
    """A network of codes and labels (positions 0..classes-1), its optimiser and its draws."""

    def __init__(
        self,
        net: nn.Module,
        optimiser: torch.optim.Optimizer,
        *,
        code: int,
        weights: Tensor,
        key: tuple[object, ...],
        device: torch.device | str = "cpu",
        uniform: bool = False,
    ) -> None:
        """`weights` are the shares of the classes among labels; codes are standard normal, or
        `uniform` in (-1, 1)."""
        self.net, self.optimiser = net, optimiser
        self.code, self.weights, self.key, self.device = code, weights, key, device
        self._draw = _uniform if uniform else torch.randn

    @property
    def state(self) -> dict[str, object]:
        """What a checkpoint must keep; restored in place."""
        return {"generator": self.net, "optimiser": self.optimiser}

    def batch(self, number: int, labels: int | Tensor) -> tuple[Tensor, Tensor]:
        """The images of step `number`, with their graph, and their labels: these, or as many."""
        generator = torch_generator(*self.key, "batch", number)
        if isinstance(labels, int):
            labels = torch.multinomial(self.weights, labels, replacement=True, generator=generator)
        codes = self._draw((len(labels), self.code), generator=generator)
        self.net.train()
        return self.net(codes.to(self.device), labels.to(self.device)), labels

    def descend(self, loss: Tensor) -> None:
        """One step of the optimiser against a loss."""
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()

    def follow(self, images: Tensor, slopes: Tensor) -> None:
        """One step of the optimiser against a loss whose slopes at `images` are these."""
        self.optimiser.zero_grad()
        images.backward(slopes)
        self.optimiser.step()

    @torch.no_grad()
    def sample(
        self, classes: Sequence[int], spc: int, finish: Callable[[Tensor], Tensor] | None = None
    ) -> SyntheticSet:
        """`spc` records a class on average, by class weight, at least one of each; `classes` are
        the names of the positions, and `finish` turns what the network draws into records."""
        self.net.eval()
        counts = (self.weights * len(classes) * spc).round().long().clamp_min(1)
        places = torch.repeat_interleave(torch.arange(len(classes)), counts)
        codes = self._draw((len(places), self.code), generator=torch_generator(*self.key, "sample"))
        drawn = [
            self.net(some.to(self.device), mine.to(self.device)).cpu()
            for some, mine in zip(codes.split(AT_ONCE), places.split(AT_ONCE), strict=True)
        ]
        records = torch.cat([finish(part) for part in drawn] if finish else drawn)
        return SyntheticSet(records, torch.tensor(list(classes))[places])


def _uniform(size: tuple[int, int], generator: torch.Generator) -> Tensor:
    return torch.rand(size, generator=generator) * 2 - 1
