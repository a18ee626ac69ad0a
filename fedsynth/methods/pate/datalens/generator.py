"""The server's generator in DataLens: it follows the direction of the teachers' noised votes."""

from __future__ import annotations

from typing import Any

import torch

from fedsynth.core.device import CPU, moved
from fedsynth.core.messages import Request
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import Stage
from fedsynth.methods.pate.datalens.config import EnsembleConfig
from fedsynth.methods.pate.datalens.parameters import EnsembleParameters
from fedsynth.nn import optimizers
from fedsynth.nn.gan.label_dcgan import make_label_dcgan

SAMPLING_BATCH = 500  # images per batch of the released set, classes in turn


class StudentGenerator:
    """The generator, its queries to the teachers, and its updates from their votes."""

    def __init__(
        self,
        cfg: EnsembleConfig,
        parameters: EnsembleParameters,
        stage: Stage,
        key: tuple[object, ...],
        device: torch.device,
    ) -> None:
        """`key` names the public randomness."""
        self.cfg, self.parameters, self.stage = cfg, parameters, stage
        self.key, self.device = key, device
        self.classes = len(stage.classes)
        self.generator = make_label_dcgan(
            parameters.latent, self.classes, stage.data, cfg.generator_hidden,
            cfg.generator_channels, *key, "generator",
        ).to(device)  # fmt: skip
        self.adam = optimizers.Adam(
            self.generator.parameters(), cfg.learning_rate, betas=(0.5, 0.999), fused=True
        )

    @property
    def state(self) -> dict[str, Any]:
        """The state that a checkpoint holds."""
        return {"generator": self.generator, "adam": self.adam}

    def query(self, number: int, seed: int) -> Request:
        """The request of round `number`: public images for the teachers.

        "made" holds an image of each latent in every class, for training: the server does not
        learn which classes a teacher's records have. "images" holds one image per latent to vote
        on, with its label in "labels"."""
        latents, labels = self._inputs(number)
        with torch.no_grad():
            every = torch.arange(self.classes, device=self.device).repeat(len(latents))
            made = self.generator(latents.repeat_interleave(self.classes, 0), every)
            images = self.generator(latents, labels)
        arrays = {
            "made": made.unflatten(0, (len(latents), self.classes)),
            "images": images,
            "labels": labels,
        }
        on_cpu = moved([value.detach() for value in arrays.values()], torch.device(CPU))
        arrays = dict(zip(arrays, on_cpu, strict=True))
        return Request("votes", number, arrays=arrays, scalars={"seed": seed})

    def learn(self, number: int, direction: torch.Tensor) -> None:
        """Regress the images of round `number` on themselves plus a step in this direction."""
        latents, labels = self._inputs(number)
        step = self.cfg.step_size * direction.to(self.device)
        target = None
        for _ in range(self.cfg.generator_steps):
            images = self.generator(latents, labels)
            if target is None:
                target = images.detach() + step.view_as(images)
            self.adam.zero_grad()
            (target - images).square().sum().backward()
            self.adam.step()

    def sample(self) -> SyntheticSet:
        """Draw `spc` images per class from the current generator."""
        total = self.cfg.spc * self.classes
        labels = torch.arange(total, device=self.device) % self.classes
        generator = torch_generator(*self.key, "samples")
        images = []
        with torch.no_grad():
            for part in labels.split(
                SAMPLING_BATCH - SAMPLING_BATCH % self.classes or self.classes
            ):
                latents = self._latents(len(part), generator)
                images.append(self.generator(latents, part).cpu())
        classes = torch.tensor(self.stage.classes, dtype=torch.int64)
        return SyntheticSet(torch.cat(images), classes[labels.cpu()])

    def _inputs(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The latents and the labels of a round."""
        generator = torch_generator(*self.key, "round", number)
        latents = self._latents(self.parameters.images, generator)
        labels = torch.randint(self.classes, (len(latents),), generator=generator)
        return latents, labels.to(self.device)

    def _latents(self, count: int, generator: torch.Generator) -> torch.Tensor:
        uniform = torch.rand(count, self.parameters.latent, generator=generator)
        return (uniform * 2 - 1).to(self.device)
