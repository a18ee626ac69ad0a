"""A block within the network, with its derivatives along a direction."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fedsynth.nn.matching_gradient.norm_and_pool import NormAndPool
from fedsynth.nn.per_example.layers import add, aten


class InnerBlock(NormAndPool):
    """A block whose convolution runs as one."""

    def forward(self, x: Tensor) -> Tensor:
        """The pooled activations of x, both [n, h, w, c]."""
        self.x = x.to(self.compute)
        self.w = _channels_last(self.kernel.to(self.compute))
        z = self._convolve(self.x, self.w).to(x.dtype)
        self.plane = z.shape[1:3]
        z = z.flatten(1, 2)
        z -= z.mean(1, keepdim=True)
        self.rstd = torch.rsqrt((z * z).mean(1, keepdim=True) + self.eps)
        self.n = z.mul_(self.rstd)
        self.relu = torch.addcmul(self.shift, self.n, self.scale).relu_()
        return self._pool(self.relu)

    def backward(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients at the input and at the kernel."""
        self.g = self._unpool(g)
        self.mean_g, self.q = self.g.mean(1, keepdim=True), (self.n * self.g).mean(1, keepdim=True)
        at_z = torch.addcmul(-self.rstd * self.mean_g, self.n, -self.rstd * self.q)
        at_z.addcmul_(self.g, self.rstd)
        self.at_z = at_z.to(self.compute).unflatten(1, self.plane)
        back, total, _ = aten.convolution_backward(
            _planes_first(self.at_z), _planes_first(self.x), self.w, None,
            (1, 1), self.padding, (1, 1), False, (0, 0), 1, (True, True, False),
        )  # fmt: skip
        return back.permute(0, 2, 3, 1).to(g.dtype), total.to(g.dtype)

    def forward_along(self, x: Tensor, v: Tensor) -> Tensor:
        """The derivative of `forward` along v at the kernel and x at the input."""
        v = v.to(self.compute)
        both = torch.cat([x.to(self.compute), self.x], 3)
        self.pair = _channels_last(torch.cat([self.w, v], 1))
        z = self._convolve(both, self.pair).to(x.dtype).flatten(1, 2)
        self.moved, self.mean_moved = z, z.mean(1, keepdim=True)
        self.s, self.along_g = (
            (self.n * z).mean(1, keepdim=True),
            (self.g * z).mean(1, keepdim=True),
        )
        gain = self.rstd * self.scale
        y = torch.addcmul(-gain * self.mean_moved, self.n, -gain * self.s).addcmul_(z, gain)
        self.v = v
        return self._pool(aten.threshold_backward(y, self.relu, 0))

    def backward_along(self, g: Tensor) -> Tensor:
        """The derivative of the gradient at the input."""
        g = self._unpool(g)
        rstd, squared = self.rstd, self.rstd.square()
        t = rstd * (self.along_g - self.mean_moved * self.mean_g - self.s * self.q)
        w = (self.n * g).mean(1, keepdim=True)
        constant = squared * (self.s * self.mean_g + self.q * self.mean_moved)
        constant -= rstd * g.mean(1, keepdim=True)
        of_n = 2 * squared * self.s * self.q - rstd * (t + w)
        at_z = torch.addcmul(constant, self.n, of_n)
        at_z.addcmul_(self.moved, -squared * self.q)
        at_z.addcmul_(self.g, -squared * self.s).addcmul_(g, rstd)
        both = torch.cat([at_z.to(self.compute).unflatten(1, self.plane), self.at_z], 3)
        pair = _channels_last(torch.cat([self.w, self.v], 0))
        back, _, _ = aten.convolution_backward(
            _planes_first(both), _planes_first(self.x), pair, None,
            (1, 1), self.padding, (1, 1), False, (0, 0), 1, (True, False, False),
        )  # fmt: skip
        return back.permute(0, 2, 3, 1).to(g.dtype)

    def _convolve(self, x: Tensor, kernel: Tensor) -> Tensor:
        return F.conv2d(_planes_first(x), kernel, None, 1, self.padding).permute(0, 2, 3, 1)

    def _pool(self, y: Tensor) -> Tensor:
        k, (h, w) = self.side, self.plane
        windows = y.view(len(y), h // k, k, w // k, k, y.shape[2])
        parts = [windows[:, :, i, :, j] for i in range(k) for j in range(k)]
        return add(parts).mul_(1 / k**2)

    def _unpool(self, g: Tensor) -> Tensor:
        """The gradient at the norm, from that at the pooled activations."""
        k, (h, w) = self.side, self.plane
        c = g.shape[3]
        g = (g * (self.scale / k**2)).view(len(g), h // k, 1, w // k, 1, c)
        relu = self.relu.view(len(g), h // k, k, w // k, k, c)
        return aten.threshold_backward(g.expand(relu.shape), relu, 0).view(len(g), h * w, c)


def _planes_first(x: Tensor) -> Tensor:
    """[n, h, w, c] seen as [n, c, h, w]."""
    return x.permute(0, 3, 1, 2)


def _channels_last(kernel: Tensor) -> Tensor:
    return kernel.contiguous(memory_format=torch.channels_last)
