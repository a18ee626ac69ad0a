"""Parties that train a generator at home and release it; the curator draws images from it.

What a generator learnt through a mechanism is public with all it can draw, so its weights may as
well be sent: they are smaller than the images, and whoever has them can draw as many as he likes.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from fedsynth.core.model import Method, Outcome, Parties, Plan, Release, Request, SyntheticSet
from fedsynth.core.randomness import torch_generator
from fedsynth.methods.gs_wgan.generator import fill, flat
from fedsynth.privacy.guard import Guard

AT_ONCE = 1000  # images drawn at a time


class GeneratorRelease(Method):
    """One question, one generator a party. Settings have `spc` and `code`."""

    @abstractmethod
    def network(self, cfg: Any, plan: Plan, party: int, *key: object) -> nn.Module:
        """A party's fresh generator: codes in (-1, 1) and the positions of the classes it holds,
        in ascending order, to pixels."""

    def released(self, guard: Guard, net: nn.Module) -> Release:
        """The generator as it leaves the party."""
        return guard.release({"generator": flat(net)})

    def serve(self, cfg: Any, plan: Plan, parties: Parties) -> Outcome:
        made = []
        for answer in parties.ask(parties.who, Request(numbers={"seed": parties.seed})):
            net = self.network(cfg, plan, answer.party, "blank").to(parties.device)
            fill(net, answer.arrays["generator"])
            key = (parties.seed, self.name, plan.task.stage, answer.party, "sample")
            made.append(drawn_set(net.eval(), plan, answer.party, cfg, key))
        return SyntheticSet.join(made)


@torch.no_grad()
def drawn_set(
    net: nn.Module, plan: Plan, party: int, cfg: Any, key: tuple[object, ...]
) -> SyntheticSet:
    """This party's share of `spc` images a class: those who hold a class share it equally."""
    names = sorted(plan.facts(party).class_counts)
    shares = [-(-cfg.spc // sum(n in f.class_counts for f in plan.task.parties)) for n in names]
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
    held = sorted(plan.facts(party).class_counts)
    table = torch.full((plan.task.data.classes,), -1)
    table[held] = torch.arange(len(held))
    return held, table
