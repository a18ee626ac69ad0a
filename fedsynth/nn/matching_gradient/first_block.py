"""The first block of the network, with its derivatives along a direction."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fedsynth.nn.matching_gradient.norm_and_pool import NormAndPool
from fedsynth.nn.per_example.layers import add, aten


class FirstBlock(NormAndPool):
    """The block of the images themselves, whose few channels make few rows of patches.

    With the patches u centred over positions, z = K u has mean zero, so that n = rstd K u and all
    means of products with n and z' follow from the patches' covariance and from the products of the
    patches with g and g'. Positions are in the order (position in the window, window). Its
    products are small and run in the type of the weights.
    """

    def forward(self, x: Tensor) -> Tensor:
        """The pooled activations [n, h, w, c] of images [n, c, h, w]."""
        self.size = x.shape
        self.patches = self._patches(x)
        self.u, self.count = self.patches[:, :-1], self.patches.shape[2]
        self.covariance = torch.bmm(self.u, self.u.transpose(1, 2)) / self.count
        self.flat = self.kernel.flatten(1)
        variance = (self.flat @ self.covariance * self.flat).sum(2).clamp_(min=0)
        self.rstd = torch.rsqrt(variance + self.eps)  # [n, c]
        gain = (self.scale * self.rstd).unsqueeze(2)
        matrix = torch.cat([gain * self.flat, self.shift.expand_as(self.rstd).unsqueeze(2)], 2)
        self.relu = torch.bmm(self.patches.transpose(1, 2), matrix.transpose(1, 2)).relu_()
        return self._pool(self.relu)

    def backward(self, g: Tensor) -> Tensor:
        """The gradient at the kernel; that at the images is not needed."""
        self.g = self._unpool(g)
        self.product = torch.bmm(self.u, self.g).transpose(1, 2)  # [n, c, rows]
        self.q = self.rstd * (self.product * self.flat).sum(2) / self.count
        parts = self.product * self.rstd.unsqueeze(2)
        parts -= (self.count * self.rstd.square() * self.q).unsqueeze(2) * (
            self.flat @ self.covariance
        )
        return parts.sum(0).view_as(self.kernel)

    def forward_along(self, v: Tensor) -> Tensor:
        """The derivative of `forward` along v at the kernel."""
        self.v = v.flatten(1)
        self.s = self.rstd * (self.v @ self.covariance * self.flat).sum(2)
        rstd = self.rstd.unsqueeze(2)
        self.matrix = rstd * self.v - rstd.square() * self.s.unsqueeze(2) * self.flat
        along = self.scale.unsqueeze(1) * self.matrix
        y = torch.bmm(self.u.transpose(1, 2), along.transpose(1, 2))
        return self._pool(aten.threshold_backward(y, self.relu, 0))

    def backward_along(self, g: Tensor) -> Tensor:
        """The derivative of the gradient at the images."""
        g = self._unpool(g)
        product = torch.bmm(self.u, g).transpose(1, 2)
        rstd, s, q = self.rstd, self.s, self.q
        squared = rstd.square()
        t = rstd * ((self.product * self.v).sum(2) / self.count - s * q)
        w = rstd * (product * self.flat).sum(2) / self.count
        of_kernel = (2 * squared * rstd * s * q - squared * (t + w)).unsqueeze(2)
        of_v = -(squared * q).unsqueeze(2)
        square = self.flat.t() @ (of_v * self.v + of_kernel * self.flat)
        square += self.v.t() @ (of_v * self.flat)
        back = torch.bmm((rstd.unsqueeze(2) * self.flat).transpose(1, 2), g.transpose(1, 2))
        back.baddbmm_(self.matrix.transpose(1, 2), self.g.transpose(1, 2))
        back.baddbmm_(square, self.u)
        back -= back.mean(2, keepdim=True)
        return self._fold(back)

    def _unpool(self, g: Tensor) -> Tensor:
        """The gradient at the norm, from that at the pooled activations: [n, positions, c]."""
        g = (g * (self.scale / self.side**2)).flatten(1, 2).unsqueeze(1)
        relu = self.relu.unflatten(1, (self.side**2, -1))
        return aten.threshold_backward(g.expand_as(relu), relu, 0).flatten(1, 2)

    def _pool(self, y: Tensor) -> Tensor:
        height, width = self.block.sides(*self.size[2:])
        pooled = add(y.unflatten(1, (self.side**2, -1)).unbind(1)).mul_(1 / self.side**2)
        return pooled.unflatten(1, (height // self.side, width // self.side))

    def _patches(self, x: Tensor) -> Tensor:
        """The centred patch under each position of the kernel, and a row of ones."""
        c, kh, kw = self.kernel.shape[1:]
        pad_h, pad_w = self.padding
        padded = F.pad(x, (pad_w, pad_w, pad_h, pad_h)).contiguous()
        height, width = self.block.sides(*x.shape[2:])
        s0, s1, s2, s3 = padded.stride()
        k = self.side
        size = (len(x), c, kh, kw, k, k, height // k, width // k)
        under = padded.as_strided(size, (s0, s1, s2, s3, s2, s3, k * s2, k * s3))
        patches = x.new_empty(len(x), c * kh * kw + 1, height * width)
        patches[:, :-1].view(size).copy_(under)
        patches[:, :-1] -= patches[:, :-1].mean(2, keepdim=True)
        patches[:, -1] = 1
        return patches

    def _fold(self, patches: Tensor) -> Tensor:
        """Each patch pixel added at the pixel it was taken from: the transpose of `_patches`."""
        n, c, rows, columns = self.size
        kh, kw = self.kernel.shape[2:]
        pad_h, pad_w = self.padding
        height, width = self.block.sides(rows, columns)
        k = self.side
        parts = patches.view(n, c * kh * kw, k, k, height // k, width // k)
        planes = parts.permute(0, 1, 4, 2, 5, 3).reshape(n, c * kh * kw, height * width)
        size = (rows + 2 * pad_h, columns + 2 * pad_w)
        image = F.fold(planes, size, (kh, kw))
        return image[:, :, pad_h : pad_h + rows, pad_w : pad_w + columns]
