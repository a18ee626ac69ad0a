"""PSG with a generator as prior: the images are a small network's output, and it is what learns.

The variant of Chen, Kerkouche, Fritz (2022) in which every image has a fixed code and label, and
the matching loss moves the generator's weights instead of pixels. Real gradients, noise and price
are PSG's. The generator stays at home: what is released are its images of the fixed codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from fedsynth.core.messages import Request
from fedsynth.core.plan import Plan
from fedsynth.core.randomness import torch_generator
from fedsynth.core.settings import setting
from fedsynth.core.types import Budget, DatasetInfo, Stage
from fedsynth.methods.psg.gradient_matching import MatchedImages
from fedsynth.methods.psg.psg import LAPTOP, PSG, PSGConfig
from fedsynth.nn.gan.common import make_generator
from fedsynth.nn.gan.conv_generators import PriorGenerator

LAPTOP_PRIOR = {**LAPTOP, "image_rate": 0.01}


@dataclass(frozen=True)
class PSGPriorConfig(PSGConfig):
    """PSG's settings; those of the images are the generator's. The defaults are the published
    ones."""

    image_rate: float = setting(0.01, "Adam's learning rate of the generator", above=0)
    image_momentum: float = setting(
        0.9, "Adam's average of gradients (beta 1)", at_least=0, at_most=0.999
    )
    image_init: float = setting(
        1.0, "standard deviation of images of classes to come (inner_set=all)", at_least=0
    )
    code: int = setting(10, "length of an image's code", at_least=1)


class GeneratedImages(MatchedImages):
    """Matched images that are a generator's output for fixed codes."""

    def __init__(
        self,
        cfg: PSGPriorConfig,
        data: DatasetInfo,
        classes: list[int],
        key: tuple[object, ...],
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(cfg, data, classes, key, device)
        codes = torch.randn((len(self.labels), cfg.code), generator=torch_generator(*key, "codes"))
        self.codes = codes.to(device)
        net = make_generator(PriorGenerator, cfg.code, data.classes, data, *key, "generator")
        self.generator = net.to(device)
        betas = (cfg.image_momentum, 0.999)
        self.adam = torch.optim.Adam(self.generator.parameters(), cfg.image_rate, betas=betas)
        with torch.no_grad():
            self.images = self.generator(self.codes, self.labels)

    @property
    def state(self) -> dict[str, Any]:
        """What a checkpoint must keep; restored in place."""
        return {"images": self.images, "generator": self.generator, "adam": self.adam}

    def move(self, slope: torch.Tensor) -> None:
        """One step of the generator, against the gradient of the loss at its images."""
        self.adam.zero_grad()
        self.generator(self.codes, self.labels).backward(slope)
        self.adam.step()
        with torch.no_grad():
            self.images.copy_(self.generator(self.codes, self.labels))


class PSGPrior(PSG):
    """PSG whose images come from a generator that learns in the party."""

    name = "psg_prior"
    summary = "PSG whose images are a generator's: fewer degrees of freedom than pixels"
    Config = PSGPriorConfig
    presets = {
        "smoke": {**LAPTOP_PRIOR, "runs": 3, "updates": 3},
        "laptop": {**LAPTOP_PRIOR, "runs": 20},
        "paper": {},
    }

    def plan(self, cfg: Any, stage: Stage, budget: Budget) -> Plan:
        with torch.device("meta"):  # refuses sizes it cannot draw before anything is spent
            PriorGenerator(cfg.code, stage.data.classes, stage.data.shape)
        return super().plan(cfg, stage, budget)

    def start(
        self, cfg: Any, plan: Plan, party: int, request: Request, device: torch.device
    ) -> MatchedImages:
        key = (request.numbers["seed"], self.name, plan.stage.index, party)
        classes = sorted(plan.info(party).class_counts, key=plan.stage.classes.index)
        return GeneratedImages(cfg, plan.stage.data, classes, key, device)
