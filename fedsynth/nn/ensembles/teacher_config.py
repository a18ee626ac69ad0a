"""The sizes of DataLens's discriminators, and their initial parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fedsynth.core.errors import UserError
from fedsynth.nn.ensembles.strided_conv import TAPS

INIT_STD = 0.02


@dataclass(frozen=True)
class TeacherConfig:
    """The sizes of one teacher; the defaults are the published ones."""

    image: tuple[int, int, int]  # channels, height, width
    classes: int
    batch: int  # real images, and generated ones, in a training step (m)
    channels: int = 32  # of the second convolution, besides one per class
    hidden: int = 256

    def __post_init__(self) -> None:
        if self.image[1] != self.image[2] or self.image[1] % 4:
            raise UserError(
                "DataLens's teachers halve square images twice, so their sides must be multiples "
                f"of 4, not {self.image[1]}x{self.image[2]}."
            )

    @property
    def side(self) -> int:
        """Side of an image."""
        return self.image[1]

    @property
    def first(self) -> int:
        """Channels of the first convolution."""
        return self.image[0] + self.classes

    @property
    def second(self) -> int:
        """Channels of the second convolution."""
        return self.channels + self.classes

    @property
    def flat(self) -> int:
        """Inputs of the hidden layer."""
        return self.second * (self.side // 4) ** 2

    @cached_property
    def parts(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the parameters of one teacher, by name."""
        return {
            "conv1": (self.first, TAPS * self.image[0]),
            "conv1_label": (TAPS, self.classes * self.first),
            "conv1_bias": (self.first,),
            "conv2": (self.second, TAPS * self.first),
            "conv2_label": (self.classes * self.second, TAPS),
            "norm2_scale": (self.second,),
            "norm2_shift": (self.second,),
            "hidden": (self.hidden, self.flat),
            "hidden_label": (self.hidden, self.classes),
            "norm3_scale": (self.hidden,),
            "norm3_shift": (self.hidden,),
            "out": (1, self.hidden),
            "out_label": (1, self.classes),
            "out_bias": (1,),
        }

    @property
    def parameters(self) -> int:
        """The number of parameters of a teacher."""
        return sum(math.prod(part) for part in self.parts.values())

    def state_bytes(self, teachers: int, dtype: torch.dtype) -> int:
        """The memory of teachers: their parameters and the averaged squares of their gradients."""
        return 2 * self.parameters * teachers * dtype.itemsize

    def views(self, flat: Tensor, teachers: int) -> dict[str, Tensor]:
        """The parameters of a stack, [teachers, ...], as views of its flat memory."""
        views, start = {}, 0
        for name, part in self.parts.items():
            size = teachers * math.prod(part)
            views[name] = flat[start : start + size].view(teachers, *part)
            start += size
        return views


def initial_parameters(
    shape: TeacherConfig, teachers: int, generator: torch.Generator, dtype: torch.dtype
) -> Tensor:
    """Initial parameters of a stack, flat: N(0, 0.02^2), truncated at 0.04 in convolutions."""
    flat = torch.randn(teachers * shape.parameters, generator=generator).mul_(INIT_STD)
    for name, view in shape.views(flat, teachers).items():
        if name.startswith("conv") and not name.endswith("bias"):
            while (outside := view.abs() > 2 * INIT_STD).any():
                view[outside] = torch.randn(int(outside.sum()), generator=generator) * INIT_STD
        elif name.endswith(("bias", "shift")):
            view.zero_()
        elif name.endswith("scale"):
            view.fill_(1.0)
    return flat.to(dtype)
