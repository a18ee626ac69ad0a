"""Features of an untrained convolutional network, and their gradient at the images.

Distribution matching draws a new random network for each step and never trains it. It therefore
needs no gradient of the weights, only features and the vector-Jacobian product from features back
to images. Both are computed by the hand-written layers of this package, in chunks whose activations
fit the last-level cache.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedsynth.nn.per_example.fused_first_block import FusedConvNormReluPool
from fedsynth.nn.per_example.layers import AveragePool, Convolution, Flatten, Layer, Norm, Relu

POOL = 2  # side of the pooling windows of a ConvNet
CHUNK_FLOATS = 1 << 21  # of the largest activation: a few of them fit the last-level cache


class ConvFeatures:
    """The flattened output of `ConvNet.features` and its gradient at the images."""

    def __init__(self, blocks: nn.Sequential, compute: torch.dtype | None = None) -> None:
        """Args:
        blocks: Convolutions, group norms, ReLUs and average pools, as in `ConvNet.features`.
        compute: Type of matrix products and convolutions, by default that of the weights.
            Features and gradients have the type of the weights.
        """
        self._modules = list(blocks)
        self._weight = next(blocks.parameters())
        self._compute = compute or self._weight.dtype
        self._passed: list[tuple[list[Layer], Tensor]] = []

    @torch.no_grad()
    def forward(self, images: Tensor, *, keep: bool = False) -> Tensor:
        """The features of each image: [n, width * side * side]. After a forward with `keep`,
        `backward` may be called once."""
        self._passed = []
        outputs = []
        for x in images.split(self._chunk_size(images)):
            layers = self._layers(images)
            y = x
            for layer in layers:
                y = layer.forward(y)
            outputs.append(y)
            if keep:
                self._passed.append((layers, x))
        return torch.cat(outputs)

    @torch.no_grad()
    def backward(self, gradients: Tensor) -> Tensor:
        """The gradient at the images of the last `forward(..., keep=True)`, from the gradient at
        its features."""
        outputs = []
        start = 0
        for layers, x in self._passed:
            g = gradients[start : start + len(x)]
            start += len(x)
            for layer in reversed(layers):
                g = layer.backward(g, onward=True)
            outputs.append(g)
        self._passed = []
        return torch.cat(outputs)

    def _chunk_size(self, images: Tensor) -> int:
        width = self._weight.shape[0]
        side = images.shape[-1] + 4
        return max(8, CHUNK_FLOATS // (width * side * side))

    def _layers(self, images: Tensor) -> list[Layer]:
        match self._modules:
            case [nn.Conv2d() as conv, nn.GroupNorm() as norm, nn.ReLU(), nn.AvgPool2d(), *rest]:
                first = _FirstBlock(conv, norm, POOL, self._compute)
                if all(side % POOL == 0 for side in first.sides(images.shape)):
                    return [first, *map(self._layer, rest), Flatten()]
        return [*map(self._layer, self._modules), Flatten()]

    def _layer(self, module: nn.Module) -> Layer:
        if isinstance(module, nn.Conv2d):
            return Convolution(module, self._compute)
        if isinstance(module, nn.GroupNorm):
            return Norm(module)
        return AveragePool(module) if isinstance(module, nn.AvgPool2d) else Relu()


class LinearFeatures:
    """The output of a linear layer and its gradient at the inputs, for rows of a table."""

    def __init__(self, layer: nn.Linear) -> None:
        self._layer = layer
        self._shape: torch.Size | None = None

    @torch.no_grad()
    def forward(self, records: Tensor, *, keep: bool = False) -> Tensor:
        """The features of each record: [n, features]."""
        self._shape = records.shape if keep else None
        flat: Tensor = self._layer(records.flatten(1))
        return flat

    @torch.no_grad()
    def backward(self, gradients: Tensor) -> Tensor:
        """The gradient at the records of the last `forward(..., keep=True)`."""
        if self._shape is None:
            raise ValueError("backward needs a forward with keep=True before it")
        return (gradients @ self._layer.weight).view(self._shape)


class _FirstBlock(FusedConvNormReluPool):
    """`FusedConvNormReluPool` with the gradient at the image.

    With z the normalised convolution, u its patches and G the gradient at z where ReLU passed it on
    (times the norm's scale), instance norm gives K'(G - mean(G z) z - mean(G)) / std at the
    patches, K being the kernel. As z = K u / std and the patches are centred, the second term is a
    small matrix times the patches and the third vanishes by the centring.
    """

    def forward(self, x: Tensor) -> Tensor:
        self.size = x.shape
        return super().forward(x)

    def backward(self, g: Tensor, onward: bool) -> Tensor:
        """The gradient at the image, a few records at a time."""
        g = g.flatten(2).mul(1 / self.side**2).unsqueeze(2)
        return self._fold(torch.cat([self._at_patches(g[part], part) for part in self._parts()]))

    def _at_patches(self, g: Tensor, part: slice) -> Tensor:
        y, centred, gain = self.y[part], self.patches[part, :-1], self.gain[part].unsqueeze(2)
        masked = torch.ops.aten.threshold_backward(g.expand_as(y), y, 0).flatten(2)
        masked = masked.to(self.compute)
        product = torch.bmm(centred, masked.transpose(1, 2)).transpose(1, 2).to(g.dtype)
        along = (product * self.flat).sum(2)
        weights = self.gain[part] * self.rstd[part] ** 2 * along / centred.shape[2]
        matrix = self.flat.t() @ (weights.unsqueeze(2) * self.flat)
        back = torch.bmm((gain * self.flat).transpose(1, 2).to(self.compute), masked)
        back = back.baddbmm_(matrix.to(self.compute), centred, alpha=-1).to(g.dtype)
        return back.sub_(back.mean(2, keepdim=True))

    def _fold(self, patches: Tensor) -> Tensor:
        """Each patch pixel added at the pixel it was taken from: the transpose of `_patches`."""
        b, c, height, width = self.size
        kh, kw = self.kernel.shape[2:]
        pad_h, pad_w = self.padding
        k = self.side
        h, w = self.sides(self.size)
        image = patches.new_zeros(b, c, height + 2 * pad_h, width + 2 * pad_w)
        parts = patches.view(b, c, kh, kw, k, k, h // k, w // k)
        for i in range(kh):
            for j in range(kw):
                for m in range(k):
                    for n in range(k):
                        top, left = i + m, j + n
                        image[:, :, top : top + h - k + 1 : k, left : left + w - k + 1 : k] += (
                            parts[:, :, i, j, m, n]
                        )
        return image[:, :, pad_h : pad_h + height, pad_w : pad_w + width]
