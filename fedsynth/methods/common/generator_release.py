"""Generators that parties train by themselves and release; the server draws the images.

A generator learnt through a mechanism is public with everything it can draw, so its weights may be
released: they are smaller than the images, and any number of images can be drawn from them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.plan import Plan
from fedsynth.core.randomness import torch_generator
from fedsynth.data.records import class_indices
from fedsynth.methods.common.generator_training import draw, uniform_latents
from fedsynth.methods.method import Method, ServerContext
from fedsynth.privacy.guard import Guard


class DrawConfig(Protocol):
    """The settings that drawing from a released generator needs."""

    @property
    def spc(self) -> int:
        """Images per class."""

    @property
    def latent(self) -> int:
        """Length of a latent vector."""


C = TypeVar("C", bound=DrawConfig)


class GeneratorRelease(Method[C]):
    """One request per stage, and one generator per party."""

    paper_convention = "rdp_classic"  # of the authors of all GANs that are released like this

    @abstractmethod
    def network(self, cfg: C, plan: Plan, party: int, *key: object) -> nn.Module:
        """A party's fresh generator: from latent vectors and class indices of the classes that the
        party holds, in ascending order, to pixels."""

    def latents(self, count: int, cfg: C, generator: torch.Generator) -> Tensor:
        """Latent vectors, from public randomness: uniform in (-1, 1) where not overridden."""
        return uniform_latents(count, cfg.latent, generator)

    def release_generator(self, guard: Guard, net: nn.Module) -> Release:
        """The release of a generator that mechanisms of `guard` paid for."""
        return guard.release({"generator": state_vector(net)})

    def serve(self, ctx: ServerContext[C]) -> SyntheticSet:
        cfg, plan = ctx.config, ctx.plan
        sets = []
        for release in ctx.ask(ctx.parties, Request(scalars={"seed": ctx.seed})):
            net = self.network(cfg, plan, release.party, "blank").to(ctx.device)
            load_state_vector(net, release.arrays["generator"])
            generator = torch_generator(*plan.random_key(ctx.seed, release.party, "sample"))
            latents = partial(self.latents, cfg=cfg, generator=generator)
            sets.append(drawn_set(net, plan, release.party, cfg.spc, latents))
        return SyntheticSet.join(sets)


def drawn_set(
    net: nn.Module, plan: Plan, party: int, spc: int, latents: Callable[[int], Tensor]
) -> SyntheticSet:
    """A party's part of `spc` images per class: the parties that hold a class share it equally.

    `latents` draws that many latent vectors."""
    classes = sorted(plan.info(party).class_counts)
    counts = [-(-spc // sum(c in f.class_counts for f in plan.stage.parties)) for c in classes]
    indices = torch.repeat_interleave(torch.arange(len(classes)), torch.tensor(counts))
    images = draw(net, latents(len(indices)), indices)
    return SyntheticSet(images, torch.tensor(classes)[indices])


def uniform_inputs(count: int, latent: int, classes: int, *key: object) -> tuple[Tensor, Tensor]:
    """Latent vectors and uniform class indices of a batch of fakes, from public randomness."""
    generator = torch_generator(*key)
    latents = uniform_latents(count, latent, generator)
    return latents, torch.randint(classes, (count,), generator=generator)


def held_classes(plan: Plan, party: int) -> tuple[list[int], Tensor]:
    """The classes that a party holds, ascending, and a table from labels to their indices."""
    held = sorted(plan.info(party).class_counts)
    return held, class_indices(torch.arange(plan.stage.data.classes), held)


def state_vector(net: nn.Module) -> Tensor:
    """All weights and buffers of a network as one vector: quicker to send than many tensors."""
    tensors = [*net.parameters(), *net.buffers()]
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors]).cpu()


@torch.no_grad()
def load_state_vector(net: nn.Module, vector: Tensor) -> None:
    """Set the weights and buffers of a network to those of a `state_vector`."""
    tensors = [*net.parameters(), *net.buffers()]
    vector = vector.to(tensors[0].device) if tensors else vector
    pieces = vector.split([tensor.numel() for tensor in tensors])
    for tensor, piece in zip(tensors, pieces, strict=True):
        tensor.copy_(piece.view_as(tensor))
