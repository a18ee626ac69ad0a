"""Stacks of DataLens's conditional discriminators (the PATE teachers), trained side by side.

One discriminator: twice [images and one constant map per label -> 5x5 convolution, stride 2,
'same'], a hidden layer and one output, each with the label as a further input; batch norm over each
batch of real and each batch of generated images separately, leaky ReLU 0.2. The label maps are
never formed: the convolution of a constant map is a bias per class and position. The published
biases of the two layers before a batch norm are left out, as the norm subtracts them.

All teachers of a stack go through one `bmm` per layer, forward and backward, by hand: convolutions
as products with unfolded windows, batch norms as group norms of one channel per group. Claim: each
teacher is a function of its own records alone, as the teachers share no other computation. Images
are channels-last. On one core a teacher and round took 12.8 ms so, against 18.3 ms one after
another and 21 ms by vmap (15 images, two updates).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim.adam import adam

from fedsynth.nn.ensembles.strided_conv import input_gradient, valid_taps, windows
from fedsynth.nn.ensembles.teacher_config import TeacherConfig

NEGATIVE_SLOPE, EPSILON = 0.2, 1e-5
LEARNING_RATE, BETA1, BETA2 = 1e-3, 0.5, 0.999


@dataclass
class _Trace:
    """Values of a forward pass that the backward pass needs."""

    groups: int
    one_hot: Tensor  # [T, images, classes]
    windows1: Tensor  # [T, images positions, 25 c]
    active1: Tensor  # after the activation, [T images, side/2, side/2, first]
    windows2: Tensor
    norm2: tuple[Tensor, Tensor, Tensor]  # input, mean, 1/deviation
    active2: Tensor  # [T, second, images positions]
    flat: Tensor  # [T, images, flat]
    norm3: tuple[Tensor, Tensor, Tensor]
    active3: Tensor  # [T, hidden, images]
    logits: Tensor  # [T, images], float32


class TeacherStack:
    """Forward and backward passes of a stack of teachers with the parameters `views`."""

    def __init__(self, shape: TeacherConfig, views: Mapping[str, Tensor]) -> None:
        self.shape, self.w = shape, views
        self.teachers = len(views["conv1"])

    def forward(self, rows1: Tensor, labels: Tensor, groups: int) -> _Trace:
        """The logits of images.

        Args:
            rows1: The images as windows [T, images, positions, 25 c], group after group.
            labels: Class indices [T, images].
            groups: Batch norm is over each of so many equal groups of images.
        """
        w, shape, count = self.w, self.shape, self.teachers
        images = labels.shape[1]
        half, quarter = shape.side // 2, shape.side // 4
        dtype, device = rows1.dtype, rows1.device
        one_hot = F.one_hot(labels, shape.classes).to(dtype)
        label_rows = labels + shape.classes * torch.arange(count, device=device)[:, None]
        taps1 = valid_taps(shape.side, dtype, device)
        maps = torch.bmm(taps1.expand(count, -1, -1), w["conv1_label"])
        maps = maps.view(count, half**2, shape.classes, shape.first).transpose(1, 2)
        maps = (maps + w["conv1_bias"][:, None, None]).reshape(count * shape.classes, -1)
        start = maps.index_select(0, label_rows.flatten()).view(count, -1, shape.first)
        rows1 = rows1.reshape(count, images * half**2, -1)
        active1 = F.leaky_relu_(start.baddbmm_(rows1, w["conv1"].transpose(1, 2)), NEGATIVE_SLOPE)
        active1 = active1.view(count * images, half, half, shape.first)

        rows2 = windows(active1).view(count, images * quarter**2, -1)
        taps2 = valid_taps(half, dtype, device)
        maps = torch.matmul(w["conv2_label"], taps2.t()).view(count * shape.classes, -1)
        start = maps.index_select(0, label_rows.flatten()).view(count, images, shape.second, -1)
        start = start.transpose(1, 2).reshape(count, shape.second, images * quarter**2)
        before = start.baddbmm_(w["conv2"], rows2.transpose(1, 2))
        active2, norm2 = self._norm("norm2", before, groups)
        flat = (
            active2.view(count, shape.second, images, -1).transpose(1, 2).reshape(count, images, -1)
        )

        start = torch.bmm(w["hidden_label"], one_hot.transpose(1, 2))
        before = start.baddbmm_(w["hidden"], flat.transpose(1, 2))
        active3, norm3 = self._norm("norm3", before, groups)
        logits = torch.bmm(w["out"], active3) + torch.bmm(w["out_label"], one_hot.transpose(1, 2))
        logits = logits.float().squeeze(1) + w["out_bias"].float()
        return _Trace(
            groups, one_hot, rows1, active1, rows2, norm2, active2, flat, norm3, active3, logits
        )

    def _norm(
        self, name: str, before: Tensor, groups: int
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        """Batch norm of [T, channels, groups x n] over each n, and leaky ReLU."""
        rows, long = self._rows(name, before, groups)
        after, mean, scale = torch.native_group_norm(
            before, self._each(name, "scale", groups), self._each(name, "shift", groups),
            1, rows, long, rows, EPSILON,
        )  # fmt: skip
        return F.leaky_relu_(after, NEGATIVE_SLOPE), (before, mean, scale)

    def _rows(self, name: str, values: Tensor, groups: int) -> tuple[int, int]:
        rows = self.w[f"{name}_scale"].numel() * groups
        return rows, values.numel() // rows

    def _each(self, name: str, what: str, groups: int) -> Tensor:
        return self.w[f"{name}_{what}"].reshape(-1).repeat_interleave(groups)

    def _norm_back(
        self, name: str, gradient: Tensor, trace: _Trace, grads: Mapping[str, Tensor] | None
    ) -> Tensor:
        """The gradient at the input of norm and leaky ReLU from that at their output.

        The gradients of scale and shift are stored in `grads`."""
        groups = trace.groups
        active, norm = {
            "norm2": (trace.active2, trace.norm2),
            "norm3": (trace.active3, trace.norm3),
        }[name]
        gradient = torch.ops.aten.leaky_relu_backward(gradient, active, NEGATIVE_SLOPE, True)
        rows, long = self._rows(name, gradient, groups)
        before, mean, scale = norm
        wanted = [True, grads is not None, grads is not None]
        gradient, by_scale, by_shift = torch.ops.aten.native_group_norm_backward(
            gradient, before, mean, scale, self._each(name, "scale", groups), 1, rows, long, rows,
            wanted,
        )  # fmt: skip
        if grads is not None:
            for what, result in (("scale", by_scale), ("shift", by_shift)):
                target = grads[f"{name}_{what}"]
                target.copy_(result.view(*target.shape, groups).sum(-1))
        return gradient

    def backward(
        self, trace: _Trace, gradient: Tensor, grads: Mapping[str, Tensor] | None
    ) -> Tensor | None:
        """The gradients for the `gradient` [T, images] of the loss at the logits.

        Returns:
            None, with the gradients of the parameters in `grads`; or without `grads` the gradient
            at the images, [T images, side, side, c].
        """
        w, shape, count = self.w, self.shape, self.teachers
        images = gradient.shape[1]
        half, quarter = shape.side // 2, shape.side // 4
        gradient4 = gradient.to(trace.active3.dtype)[:, None]  # [T, 1, images]
        if grads is not None:
            torch.bmm(gradient4, trace.active3.transpose(1, 2), out=grads["out"])
            torch.bmm(gradient4, trace.one_hot, out=grads["out_label"])
            grads["out_bias"].copy_(gradient.sum(1, keepdim=True))
        gradient3 = self._norm_back("norm3", w["out"].transpose(1, 2) * gradient4, trace, grads)
        if grads is not None:
            torch.bmm(gradient3, trace.flat, out=grads["hidden"])
            torch.bmm(gradient3, trace.one_hot, out=grads["hidden_label"])
        into = torch.bmm(gradient3.transpose(1, 2), w["hidden"])
        into = into.view(count, images, shape.second, -1).transpose(1, 2)
        gradient2 = self._norm_back("norm2", into.reshape(trace.active2.shape), trace, grads)
        if grads is not None:
            torch.bmm(gradient2, trace.windows2, out=grads["conv2"])
        rim2 = gradient2.new_zeros(count, images, quarter + 2, quarter + 2, shape.second)
        rim2[:, :, 1:-1, 1:-1] = gradient2.view(
            count, shape.second, images, quarter, quarter
        ).permute(0, 2, 3, 4, 1)
        if grads is not None:
            self._conv2_label(trace, rim2, grads["conv2_label"])
        gradient1 = input_gradient(rim2.flatten(0, 1), w["conv2"], count)
        gradient1 = torch.ops.aten.leaky_relu_backward(
            gradient1, trace.active1, NEGATIVE_SLOPE, True
        )
        if grads is not None:
            self._conv1(trace, gradient1.view(count, images, half**2, shape.first), grads)
            return None
        rim1 = F.pad(gradient1, (0, 0, 1, 1, 1, 1))
        return input_gradient(rim1, w["conv1"], count)

    def _conv2_label(self, trace: _Trace, rim: Tensor, target: Tensor) -> None:
        """The gradient of the weights of the label maps of the second convolution."""
        count, shape = self.teachers, self.shape
        by_class = torch.bmm(trace.one_hot.transpose(1, 2), rim.flatten(2))
        by_class = by_class.view(count, shape.classes, *rim.shape[2:])[:, :, 1:-1, 1:-1]
        by_class = by_class.flatten(2, 3).transpose(2, 3)  # [T, classes, second, positions]
        taps = valid_taps(shape.side // 2, rim.dtype, rim.device)
        target.copy_(torch.matmul(by_class.reshape(count, -1, len(taps)), taps))

    def _conv1(self, trace: _Trace, gradient: Tensor, grads: Mapping[str, Tensor]) -> None:
        count, shape = self.teachers, self.shape
        flat = gradient.view(count, -1, shape.first)
        torch.bmm(flat.transpose(1, 2), trace.windows1, out=grads["conv1"])
        by_class = torch.bmm(trace.one_hot.transpose(1, 2), gradient.flatten(2))
        by_class = by_class.view(count, shape.classes, -1, shape.first)
        grads["conv1_bias"].copy_(by_class.sum((1, 2)))
        taps = valid_taps(shape.side, gradient.dtype, gradient.device).t().expand(count, -1, -1)
        by_place = by_class.transpose(1, 2).reshape(count, taps.shape[-1], -1)
        torch.bmm(taps, by_place, out=grads["conv1_label"])

    def training_gradient(self, rows1: Tensor, labels: Tensor, grads: Mapping[str, Tensor]) -> None:
        """Store the gradients of BCE(real, 1) + BCE(generated, 0) in `grads`.

        The first half of the images is real; each term is the mean over its half."""
        trace = self.forward(rows1, labels, 2)
        gradient = torch.sigmoid(trace.logits)
        batch = gradient.shape[1] // 2
        gradient[:, :batch] -= 1.0
        self.backward(trace, gradient / batch, grads)

    def image_gradient(self, rows1: Tensor, labels: Tensor) -> Tensor:
        """-d/dX of the mean over images of BCE(X, 1), per teacher: [T, images, side, side, c]."""
        trace = self.forward(rows1, labels, 1)
        gradient = (1.0 - torch.sigmoid(trace.logits)) / labels.shape[1]
        result = self.backward(trace, gradient, None)
        if result is None:
            raise RuntimeError("a backward pass without `grads` returns the gradient at the images")
        return result.view(self.teachers, labels.shape[1], *result.shape[1:])


def adam_step(flat: Tensor, grads: Tensor, first: Tensor, second: Tensor, done: int) -> None:
    """Step number `done` (from 0) of Adam on a whole stack, in one pass over its memory."""
    adam(
        [flat], [grads], [first], [second], [], [torch.tensor(float(done))], fused=True,
        amsgrad=False, beta1=BETA1, beta2=BETA2, lr=LEARNING_RATE, weight_decay=0.0, eps=1e-8,
        maximize=False,
    )  # fmt: skip
