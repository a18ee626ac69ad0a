"""Hand-written forward and backward passes of the layers of the classifiers.

After one forward and one backward pass of the activations, each layer gives the gradient of every
record (for clipping) or their sum (for plain training).

What makes them fast, each measured: NCHW only; convolutions, including those of per-example weight
gradients (one group per record), by the convolution kernels and never by a float32 matmul; pools as
sums of views; the norm of a batch as one image of many channels, so that its affine gradients come
out per record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.grad import conv2d_input, conv2d_weight

from fedsynth.nn.per_example.gradient_rows import Dense, OuterProduct, PerExampleGradient

aten = torch.ops.aten


class Layer(ABC):
    """One layer of a sequence.

    `forward` keeps what `backward` needs, and `backward` what the gradients need. `backward` may
    overwrite what `forward` kept, so it runs once per forward. Matrix products and convolutions run
    in `compute` (bfloat16 or the type of the weights), all else in the type of the weights, which
    is also that of the gradients.
    """

    weights: tuple[Tensor, ...] = ()

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """The output for a batch; may overwrite `x` unless it is the first layer."""

    @abstractmethod
    def backward(self, g: Tensor, onward: bool) -> Tensor:
        """The gradient at the input from that at the output; undefined unless `onward`."""

    def per_example_gradients(self) -> list[PerExampleGradient]:
        """The gradients of all records of the batch, for each of `weights`."""
        return []

    def summed_gradients(self) -> list[Tensor]:
        """The gradient summed over the batch, for each of `weights`."""
        return [
            rows.dense.sum(0) for rows in self.per_example_gradients() if isinstance(rows, Dense)
        ]


class Convolution(Layer):
    """`nn.Conv2d` with one group.

    Where a following norm cancels the bias (`bias_cancels`), the bias is left out and its gradient
    is exactly zero. With `summed`, the gradient summed over the batch is computed together with
    that at the input, which saves the kernels a reordering."""

    def __init__(
        self,
        module: nn.Conv2d,
        compute: torch.dtype,
        bias_cancels: bool = False,
        summed: bool = False,
    ) -> None:
        self.summed = summed
        self.weights = weights_of(module)
        self.compute = compute
        self.kernel = module.weight.detach().to(compute).contiguous()
        self.has_bias, self.bias_cancels = module.bias is not None, bias_cancels
        used = None if bias_cancels else module.bias
        self.bias = None if used is None else used.detach().to(compute)
        self.stride, self.padding, self.dilation = module.stride, module.padding, module.dilation

    def forward(self, x: Tensor) -> Tensor:
        self.x = x.to(self.compute)
        z = F.conv2d(self.x, self.kernel, self.bias, self.stride, self.padding, self.dilation)
        return z.to(x.dtype)

    def backward(self, g: Tensor, onward: bool) -> Tensor:
        self.g = g.to(self.compute)
        if self.has_bias:
            self.g_sums = g.new_zeros(g.shape[:2]) if self.bias_cancels else g.sum((2, 3))
        if self.summed:
            rest = (self.stride, self.padding, self.dilation, False, (0, 0), 1)
            back, self.total, _ = aten.convolution_backward(
                self.g, self.x, self.kernel, None, *rest, (onward, True, False)
            )
            return back.to(g.dtype) if onward else g
        if not onward:
            return g
        size = self.x.shape
        back = conv2d_input(size, self.kernel, self.g, self.stride, self.padding, self.dilation)
        return back.to(g.dtype)

    def per_example_gradients(self) -> list[PerExampleGradient]:
        batch = len(self.x)
        kernels = self._kernel_gradient(
            self.x.reshape(1, -1, *self.x.shape[2:]),
            self.g.reshape(1, -1, *self.g.shape[2:]),
            batch,
        )
        gradients: list[PerExampleGradient] = [
            Dense(kernels.view(batch, *self.kernel.shape).to(self.weights[0].dtype))
        ]
        return [*gradients, Dense(self.g_sums)] if self.has_bias else gradients

    def summed_gradients(self) -> list[Tensor]:
        total = self.total if self.summed else self._kernel_gradient(self.x, self.g, 1)
        total = total.to(self.weights[0].dtype)
        return [total, self.g_sums.sum(0)] if self.has_bias else [total]

    def _kernel_gradient(self, x: Tensor, g: Tensor, groups: int) -> Tensor:
        outputs, *rest = self.kernel.shape
        size = (groups * outputs, *rest)
        return conv2d_weight(x, size, g, self.stride, self.padding, self.dilation, groups)


class Norm(Layer):
    """`nn.GroupNorm`, and instance norm as the case of one group per channel."""

    def __init__(self, module: nn.GroupNorm | nn.InstanceNorm2d) -> None:
        self.weights = weights_of(module)
        self.groups, self.channels = norm_groups(module), norm_channels(module)
        self.eps = module.eps
        self.scale = None if module.weight is None else module.weight.detach()
        self.shift = None if module.bias is None else module.bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        self.x = x.contiguous()
        b = len(x)
        self.scales = None if self.scale is None else self.scale.expand(b, -1).reshape(-1)
        shifts = None if self.shift is None else self.shift.expand(b, -1).reshape(-1)
        self.sizes = (1, b * self.channels, x[0, 0].numel(), b * self.groups)
        y, self.mean, self.rstd = aten.native_group_norm(
            self.x, self.scales, shifts, *self.sizes, self.eps
        )
        return y

    def backward(self, g: Tensor, onward: bool) -> Tensor:
        affine = bool(self.weights)
        back, scales, shifts = aten.native_group_norm_backward(
            g.contiguous(), self.x, self.mean, self.rstd, self.scales, *self.sizes,
            [True, affine, affine],
        )  # fmt: skip
        self.rows = [r.view(len(g), -1) for r in (scales, shifts)] if affine else []
        return back

    def per_example_gradients(self) -> list[PerExampleGradient]:
        return [Dense(rows) for rows in self.rows]


class Relu(Layer):
    """`nn.ReLU`, in place."""

    def forward(self, x: Tensor) -> Tensor:
        self.y = x.relu_()
        return self.y

    def backward(self, g: Tensor, onward: bool) -> Tensor:
        return aten.threshold_backward(g, self.y, 0)


class AveragePool(Layer):
    """`nn.AvgPool2d` with windows that do not overlap."""

    def __init__(self, module: nn.AvgPool2d) -> None:
        side = module.kernel_size
        self.side = side if isinstance(side, int) else side[0]
        self.rest = ((self.side,) * 2, (self.side,) * 2, (0, 0), module.ceil_mode, True, None)

    def forward(self, x: Tensor) -> Tensor:
        k = self.side
        b, c, height, width = x.shape
        self.uneven = x if height % k or width % k else None
        if self.uneven is not None:
            return aten.avg_pool2d(x, *self.rest)
        x = x.contiguous()
        rows = add([x.view(b, c, height // k, k, width)[:, :, :, i] for i in range(k)])
        pairs = rows.view(b, c, height // k, width // k, k)
        return add([pairs[..., i] for i in range(k)]).mul_(1 / k**2)

    def backward(self, g: Tensor, onward: bool) -> Tensor:
        if self.uneven is not None:
            return aten.avg_pool2d_backward(g, self.uneven, *self.rest)
        k = self.side
        b, c, h, w = g.shape
        g = g * (1 / k**2)
        wide = g.new_empty(b, c, h, w, k)
        for i in range(k):
            wide[..., i] = g
        rows = wide.view(b, c, h, w * k)
        return torch.cat([rows] * k, 3).view(b, c, h * k, w * k)


class MaxPool(Layer):
    """`nn.MaxPool2d` without padding or dilation; windows may overlap.

    The largest pixel of all windows is found place by place in the window, over shifted views of
    the image. Of equal pixels the first one gets the gradient, as in torch's own kernel, which
    takes many times as long going forward."""

    def __init__(self, module: nn.MaxPool2d) -> None:
        self.sides, self.strides = _pair(module.kernel_size), _pair(module.stride)

    def forward(self, x: Tensor) -> Tensor:
        self.size = x.shape
        first, *rest = self._views(x)
        y = first.clone()
        self.larger = []
        for view in rest:
            self.larger.append(view > y)
            torch.maximum(y, view, out=y)
        return y

    def backward(self, g: Tensor, onward: bool) -> Tensor:
        back = g.new_zeros(self.size)
        first, *rest = self._views(back)
        g = g.contiguous()
        for view, larger in zip(reversed(rest), reversed(self.larger), strict=True):
            part = g * larger
            view.add_(part)
            g = g - part
        first.add_(g)
        return back

    def _views(self, x: Tensor) -> list[Tensor]:
        """The pixels of all windows, per place in the window."""
        (h, w), (down, right) = self.sides, self.strides
        last_row, last_column = x.shape[2] - h + 1, x.shape[3] - w + 1
        return [
            x[:, :, i : i + last_row : down, j : j + last_column : right]
            for i in range(h)
            for j in range(w)
        ]


class Flatten(Layer):
    """`nn.Flatten()`."""

    def forward(self, x: Tensor) -> Tensor:
        self.shape = x.shape
        return x.flatten(1)

    def backward(self, g: Tensor, onward: bool) -> Tensor:
        return g.view(self.shape)


class Linear(Layer):
    """`nn.Linear` on one vector per record, in the type of the weights: its cost is small."""

    def __init__(self, module: nn.Linear) -> None:
        self.weights = weights_of(module)
        self.matrix = module.weight.detach()
        self.bias = None if module.bias is None else module.bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        self.x = x
        return F.linear(x, self.matrix, self.bias)

    def backward(self, g: Tensor, onward: bool) -> Tensor:
        self.g = g
        return g @ self.matrix if onward else g

    def per_example_gradients(self) -> list[PerExampleGradient]:
        gradients: list[PerExampleGradient] = [OuterProduct(self.g, self.x)]
        return [*gradients, Dense(self.g.clone())] if self.bias is not None else gradients

    def summed_gradients(self) -> list[Tensor]:
        total = self.g.t() @ self.x
        return [total, self.g.sum(0)] if self.bias is not None else [total]


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def norm_groups(module: nn.GroupNorm | nn.InstanceNorm2d) -> int:
    """The number of groups of channels over which a norm takes its means."""
    return module.num_groups if isinstance(module, nn.GroupNorm) else module.num_features


def norm_channels(module: nn.GroupNorm | nn.InstanceNorm2d) -> int:
    """The number of channels that a norm expects."""
    return module.num_channels if isinstance(module, nn.GroupNorm) else module.num_features


def weights_of(module: nn.Module) -> tuple[Tensor, ...]:
    """The weights of a module itself, without those of its parts."""
    return tuple(weight for weight in module._parameters.values() if weight is not None)


def add(terms: Sequence[Tensor]) -> Tensor:
    """The sum of tensors of one shape, in new memory."""
    if len(terms) == 1:
        return terms[0].clone()
    total = terms[0] + terms[1]
    for term in terms[2:]:
        total.add_(term)
    return total
