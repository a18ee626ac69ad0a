"""PSG with a generator as prior: the images are outputs of a small network, whose weights learn.

The variant of Chen, Kerkouche, Fritz (2022) in which every image has a fixed latent vector and
label, and the matching loss moves the generator's weights in place of pixels. Real gradients, noise
and cost are those of PSG. The generator never leaves its party: the release is its images of the
fixed latent vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from fedsynth.core.randomness import torch_generator
from fedsynth.core.settings import setting
from fedsynth.core.types import DatasetInfo
from fedsynth.methods.psg.gradient_matching import LAPTOP, MatchedImages, PrivateMatchingConfig
from fedsynth.methods.psg.psg import PrivateSetGeneration
from fedsynth.nn import optimizers
from fedsynth.nn.gan.common import make_generator
from fedsynth.nn.gan.conv_generators import PriorGenerator

LAPTOP_PRIOR = {**LAPTOP, "image_learning_rate": 0.01}


@dataclass(frozen=True)
class PSGPriorConfig(PrivateMatchingConfig):
    """PSG's settings; those of the images are the generator's. The defaults are the published
    ones."""

    image_learning_rate: float = setting(
        0.01, "Adam's learning rate of the generator", above=0, formerly="image_rate"
    )
    image_momentum: float = setting(
        0.9, "Adam's average of gradients (beta 1)", at_least=0, at_most=0.999
    )
    image_init: float = setting(
        1.0, "standard deviation of images of later classes (inner_set=all)", at_least=0
    )
    latent: int = setting(10, "length of an image's latent vector", at_least=1, formerly="code")


class GeneratedImages(MatchedImages):
    """Matched images that are a generator's output for fixed latent vectors."""

    def start(self) -> None:
        super().start()
        cfg, data, key, device = self.cfg, self.data, self.key, self.labels.device
        assert isinstance(cfg, PSGPriorConfig)
        size, generator = (len(self.labels), cfg.latent), torch_generator(*key, "codes")
        self.latents = torch.randn(size, generator=generator).to(device)
        net = make_generator(PriorGenerator, cfg.latent, data.classes, data, *key, "generator")
        self.generator = net.to(device)
        betas = (cfg.image_momentum, 0.999)
        self.adam = optimizers.Adam(
            self.generator.parameters(), cfg.image_learning_rate, betas=betas
        )
        with torch.no_grad():
            self.images = self.generator(self.latents, self.labels)

    @property
    def state(self) -> dict[str, Any]:
        """The state to checkpoint; restored in place."""
        return {
            **{name: value for name, value in super().state.items() if name != "velocity"},
            "generator": self.generator,
            "adam": self.adam,
        }

    def move(self, gradient: torch.Tensor) -> None:
        """Take one step of the generator, against the gradient of the loss at its images."""
        self.adam.zero_grad()
        self.generator(self.latents, self.labels).backward(gradient)
        self.adam.step()
        with torch.no_grad():
            self.images.copy_(self.generator(self.latents, self.labels))


class PSGPrior(PrivateSetGeneration[PSGPriorConfig]):
    """PSG whose images come from a generator that learns inside the party."""

    name = "psg_prior"
    summary = "PSG on the images of a generator, which has fewer degrees of freedom than pixels"
    source = "Chen et al. 2022, Private Set Generation with Discriminative Information"
    images = GeneratedImages
    presets = {
        "smoke": {**LAPTOP_PRIOR, "runs": 3, "updates": 3},
        "laptop": {**LAPTOP_PRIOR, "runs": 20},
    }

    def check(self, cfg: PSGPriorConfig, data: DatasetInfo) -> None:
        with torch.device("meta"):
            PriorGenerator(cfg.latent, data.classes, data.shape)
