"""Features of a fresh, untrained ConvNet, and what a gradient at them means for the images.

Distribution matching draws a new random network for every step and never trains it, so nobody
needs gradients of its weights: only features, and the way back from features to images. Both are
hand-written here on the layers of `models.layers`, in chunks that fit a core's cache.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedsynth.nn.classifiers.convnet import ConvNet
from fedsynth.nn.per_example.fused_first_block import FusedConvNormReluPool
from fedsynth.nn.per_example.layers import Convolution, Flatten, Layer, MeanPool, Norm, Relu

POOL = 2  # side of a ConvNet's pooling windows
CHUNK_FLOATS = 1 << 21  # of the largest activation: a few of them fit the last-level cache


class Features:
    """The flattened features of a ConvNet (`ConvNet.embed`) and their gradient at the images."""

    def __init__(self, net: ConvNet, compute: torch.dtype | None = None) -> None:
        """`compute` is the type of matrix products and convolutions: the weights' own by default.
        Features and gradients come in the weights' type."""
        self._modules = list(net.features)
        self._weight = next(net.parameters())
        self._compute = compute or self._weight.dtype
        self._passed: list[tuple[list[Layer], Tensor]] = []

    @torch.no_grad()
    def rows(self, images: Tensor, *, keep: bool = False) -> Tensor:
        """The features of each image: [n, width * side * side]. With `keep`, `pull_back` may
        follow, once."""
        self._passed = []
        found = []
        for x in images.split(self._at_once(images)):
            layers = self._layers(images)
            y = x
            for layer in layers:
                y = layer.forward(y)
            found.append(y)
            if keep:
                self._passed.append((layers, x))
        return torch.cat(found)

    @torch.no_grad()
    def pull_back(self, slopes: Tensor) -> Tensor:
        """The gradient at the images of the last `rows(..., keep=True)`, from that at its rows."""
        found = []
        start = 0
        for layers, x in self._passed:
            g = slopes[start : start + len(x)]
            start += len(x)
            for layer in reversed(layers):
                g = layer.backward(g, onward=True)
            found.append(g)
        self._passed = []
        return torch.cat(found)

    def _at_once(self, images: Tensor) -> int:
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
        return MeanPool(module) if isinstance(module, nn.AvgPool2d) else Relu()


class LinearFeatures:
    """The same of a linear layer, for rows of a table."""

    def __init__(self, layer: nn.Linear) -> None:
        self._layer = layer
        self._shape: torch.Size | None = None

    @torch.no_grad()
    def rows(self, records: Tensor, *, keep: bool = False) -> Tensor:
        """The features of each record: [n, features]."""
        self._shape = records.shape if keep else None
        flat: Tensor = self._layer(records.flatten(1))
        return flat

    @torch.no_grad()
    def pull_back(self, slopes: Tensor) -> Tensor:
        """The gradient at the records of the last `rows(..., keep=True)`."""
        if self._shape is None:
            raise ValueError("there is nothing to go back to: keep the rows first")
        return (slopes @ self._layer.weight).view(self._shape)


class _FirstBlock(FusedConvNormReluPool):
    """`FusedConvNormReluPool` with the gradient at the image.

    With z the normalised convolution, u its patches and G the gradient at z where ReLU let it
    through (times the norm's scale), instance norm gives K'(G - mean(G z) z - mean(G)) / std at the
    patches, K being the kernel. As z = K u / std and the patches are centred, the second term is a
    small matrix times the patches and the third vanishes in the centring.
    """

    def forward(self, x: Tensor) -> Tensor:
        self.size = x.shape
        return super().forward(x)

    def backward(self, g: Tensor, onward: bool) -> Tensor:
        """The gradient at the image, a few records at a time."""
        g = g.flatten(2).mul(1 / self.side**2).unsqueeze(2)
        return self._folded(torch.cat([self._at_patches(g[part], part) for part in self._parts()]))

    def _at_patches(self, g: Tensor, part: slice) -> Tensor:
        y, centred, gain = self.y[part], self.patches[part, :-1], self.gain[part].unsqueeze(2)
        slopes = torch.ops.aten.threshold_backward(g.expand_as(y), y, 0).flatten(2)
        slopes = slopes.to(self.compute)
        product = torch.bmm(centred, slopes.transpose(1, 2)).transpose(1, 2).to(g.dtype)
        along = (product * self.flat).sum(2)
        weights = self.gain[part] * self.rstd[part] ** 2 * along / centred.shape[2]
        matrix = self.flat.t() @ (weights.unsqueeze(2) * self.flat)
        back = torch.bmm((gain * self.flat).transpose(1, 2).to(self.compute), slopes)
        back = back.baddbmm_(matrix.to(self.compute), centred, alpha=-1).to(g.dtype)
        return back.sub_(back.mean(2, keepdim=True))

    def _folded(self, patches: Tensor) -> Tensor:
        """Every patch pixel added where it came from: the transpose of `_patches`."""
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
