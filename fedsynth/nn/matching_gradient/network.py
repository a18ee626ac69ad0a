"""A network read as blocks of convolution, norm, ReLU and mean pool, and a last layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedsynth.nn.per_example.sequential import UnsupportedModel, check_weights, layers_in_order


@dataclass(frozen=True)
class Block:
    """Convolution of stride 1, norm of single channels, ReLU, mean pool of windows."""

    convolution: nn.Conv2d
    norm: nn.GroupNorm | nn.InstanceNorm2d
    side: int

    @property
    def padding(self) -> tuple[int, int]:
        height, width = map(int, self.convolution.padding)
        return height, width

    def sides(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of the convolution's output."""
        (kh, kw), (ph, pw) = self.convolution.kernel_size, self.padding
        return height + 2 * ph - kh + 1, width + 2 * pw - kw + 1


@dataclass(frozen=True)
class Network:
    """Blocks and a last layer."""

    blocks: list[Block]
    head: nn.Linear

    @property
    def weights(self) -> list[Tensor]:
        """The weights of two or more dimensions, in order."""
        return [*(block.convolution.weight for block in self.blocks), self.head.weight]


def read_network(model: nn.Module, shape: torch.Size) -> Network:
    """A network as blocks and a last layer.

    Raises:
        UnsupportedModel: It is not made of such blocks, or a window does not fit its plane.
    """
    match layers_in_order(model):
        case [*layers, nn.Flatten(), nn.Linear() as head] if layers and len(shape) == 4:
            pass
        case _:
            raise UnsupportedModel("it does not end in a flattening and a linear layer")
    blocks = []
    height, width = shape[2:]
    for start in range(0, len(layers), 4):
        match layers[start : start + 4]:
            case [
                nn.Conv2d() as convolution,
                (nn.GroupNorm() | nn.InstanceNorm2d()) as norm,
                nn.ReLU(),
                nn.AvgPool2d() as pool,
            ]:
                side = pool.kernel_size
                block = Block(convolution, norm, side if isinstance(side, int) else side[0])
            case _:
                raise UnsupportedModel("its layers are no blocks of convolution, norm, ReLU, pool")
        if convolution.stride != (1, 1) or convolution.dilation != (1, 1):
            raise UnsupportedModel("a convolution has a stride or a dilation")
        groups = norm.num_groups if isinstance(norm, nn.GroupNorm) else norm.num_features
        if groups != convolution.out_channels:
            raise UnsupportedModel("a norm mixes channels")
        height, width = block.sides(height, width)
        if height % block.side or width % block.side or not height or not width:
            raise UnsupportedModel("a plane is no multiple of the pool's window")
        height, width = height // block.side, width // block.side
        blocks.append(block)
    weights: list[Tensor] = [p for layer in (*layers, head) for p in layer.parameters()]
    check_weights(list(model.parameters()), weights)
    return Network(blocks, head)
