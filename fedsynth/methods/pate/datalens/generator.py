"""The curator's side of DataLens: a generator that goes where the teachers' votes point."""

from __future__ import annotations

from typing import Any

import torch

from fedsynth.core.messages import Request
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import Stage
from fedsynth.methods.pate.datalens.config import DataLensConfig
from fedsynth.methods.pate.datalens.parameters import Recipe
from fedsynth.nn.gan.label_dcgan import make_label_dcgan

AT_ONCE = 500  # images drawn together when the generator is sampled, classes in turn


class StudentGenerator:
    """The generator, what it asks in a round and what it learns from the answer."""

    def __init__(
        self,
        cfg: DataLensConfig,
        recipe: Recipe,
        stage: Stage,
        key: tuple[object, ...],
        device: torch.device,
    ) -> None:
        self.cfg, self.recipe, self.stage = cfg, recipe, stage
        self.key, self.device = key, device
        self.classes = len(stage.classes)
        self.generator = make_label_dcgan(
            recipe.code, self.classes, stage.data, cfg.generator_hidden, cfg.generator_channels,
            *key, "generator",
        ).to(device)  # fmt: skip
        self.adam = torch.optim.Adam(
            self.generator.parameters(), cfg.rate, betas=(0.5, 0.999), fused=True
        )

    @property
    def state(self) -> dict[str, Any]:
        """What a checkpoint must keep."""
        return {"generator": self.generator, "adam": self.adam}

    def question(self, number: int, seed: int) -> Request:
        """Images for the teachers: of each code in every class, to learn from (a teacher takes the
        classes of its own records), and of each code in one class, to vote on."""
        codes, labels = self._drawn(number)
        with torch.no_grad():
            every = torch.arange(self.classes, device=self.device).repeat(len(codes))
            made = self.generator(codes.repeat_interleave(self.classes, 0), every)
            images = self.generator(codes, labels)
        arrays = {
            "made": made.unflatten(0, (len(codes), self.classes)).cpu(),
            "images": images.cpu(),
            "labels": labels.cpu(),
        }
        return Request("votes", number, arrays=arrays, numbers={"seed": seed})

    def learn(self, number: int, direction: torch.Tensor) -> None:
        """Move the images of round `number` towards where the votes point."""
        codes, labels = self._drawn(number)
        step = self.cfg.step * direction.to(self.device)
        target = None
        for _ in range(self.cfg.generator_steps):
            images = self.generator(codes, labels)
            if target is None:
                target = images.detach() + step.view_as(images)
            self.adam.zero_grad()
            (target - images).square().sum().backward()
            self.adam.step()

    def result(self) -> SyntheticSet:
        """Images of every class in equal numbers, drawn from the generator as it is now."""
        total = self.cfg.spc * self.classes
        labels = torch.arange(total, device=self.device) % self.classes
        generator = torch_generator(*self.key, "samples")
        images = []
        with torch.no_grad():
            for part in labels.split(AT_ONCE - AT_ONCE % self.classes or self.classes):
                codes = self._codes(len(part), generator)
                images.append(self.generator(codes, part).cpu())
        names = torch.tensor(self.stage.classes, dtype=torch.int64)[labels.cpu()]
        return SyntheticSet(torch.cat(images), names)

    def _drawn(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The codes and the labels of a round."""
        generator = torch_generator(*self.key, "round", number)
        codes = self._codes(self.recipe.images, generator)
        labels = torch.randint(self.classes, (len(codes),), generator=generator)
        return codes, labels.to(self.device)

    def _codes(self, count: int, generator: torch.Generator) -> torch.Tensor:
        return (torch.rand(count, self.recipe.code, generator=generator) * 2 - 1).to(self.device)
