"""Parties that train a generator at home and release it; the curator draws images from it.

What a generator learnt through a mechanism is public with all it can draw, so its weights may as
well be sent: they are smaller than the images, and whoever has them can draw as many as he likes.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import Outcome, SyntheticSet
from fedsynth.core.plan import Plan
from fedsynth.core.randomness import torch_generator
from fedsynth.methods.gs_wgan.generator import load_state_vector, state_vector
from fedsynth.methods.method import Method, ServerContext
from fedsynth.privacy.guard import Guard

C = TypeVar("C")

AT_ONCE = 1000  # images drawn at a time


class GeneratorRelease(Method[C]):
    """One question, one generator a party. Settings have `spc` and `code`."""

    @abstractmethod
    def network(self, cfg: C, plan: Plan, party: int, *key: object) -> nn.Module:
        """A party's fresh generator: codes in (-1, 1) and the positions of the classes it holds,
        in ascending order, to pixels."""

    def released(self, guard: Guard, net: nn.Module) -> Release:
        """The generator as it leaves the party."""
        return guard.release({"generator": state_vector(net)})

    def serve(self, ctx: ServerContext[C]) -> Outcome:
        cfg, plan = ctx.config, ctx.plan
        made = []
        for answer in ctx.ask(ctx.parties, Request(numbers={"seed": ctx.seed})):
            net = self.network(cfg, plan, answer.party, "blank").to(ctx.device)
            load_state_vector(net, answer.arrays["generator"])
            key = (ctx.seed, self.name, plan.stage.index, answer.party, "sample")
            made.append(drawn_set(net.eval(), plan, answer.party, cfg, key))
        return SyntheticSet.join(made)


@torch.no_grad()
def drawn_set(
    net: nn.Module, plan: Plan, party: int, cfg: Any, key: tuple[object, ...]
) -> SyntheticSet:
    """This party's share of `spc` images a class: those who hold a class share it equally."""
    names = sorted(plan.info(party).class_counts)
    shares = [-(-cfg.spc // sum(n in f.class_counts for f in plan.stage.parties)) for n in names]
    places = torch.repeat_interleave(torch.arange(len(names)), torch.tensor(shares))
    codes = uniform_codes(len(places), cfg.code, torch_generator(*key))
    device = next(net.parameters()).device
    images = [
        net(some.to(device), mine.to(device)).cpu()
        for some, mine in zip(codes.split(AT_ONCE), places.split(AT_ONCE), strict=True)
    ]
    return SyntheticSet(torch.cat(images), torch.tensor(names)[places])


def uniform_codes(count: int, code: int, generator: torch.Generator) -> Tensor:
    """Codes uniform in (-1, 1)."""
    return torch.rand(count, code, generator=generator) * 2 - 1


def uniform_inputs(count: int, code: int, classes: int, *key: object) -> tuple[Tensor, Tensor]:
    """Codes and uniform labels (positions) of a batch of fakes, from public randomness."""
    generator = torch_generator(*key)
    codes = uniform_codes(count, code, generator)
    return codes, torch.randint(classes, (count,), generator=generator)


def held_places(plan: Plan, party: int) -> tuple[list[int], Tensor]:
    """The classes a party holds, ascending, and a table from class names to their positions."""
    held = sorted(plan.info(party).class_counts)
    table = torch.full((plan.stage.data.classes,), -1)
    table[held] = torch.arange(len(held))
    return held, table
