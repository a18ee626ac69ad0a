"""Stacks of DataLens's small label-aware discriminators, trained side by side by batched products.

One discriminator: twice [images beside one constant map a label -> 5x5 convolution, stride 2,
'same'], a hidden layer and one output, each of which sees the label again; batch norm over every
batch of real and every batch of made images on its own, leaky ReLU 0.2. The label maps never exist:
what a convolution makes of a constant map is a bias for its class, position by position. The
published biases of the two layers before a batch norm are left out, as it subtracts them again.

All teachers of a stack go through one `bmm` a layer, forward and backward, by hand: convolutions as
products with unfolded windows, batch norms as group norms of one channel a group. Teachers share
nothing else, so each is a function of its own records alone. Images are kept channels-last here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim.adam import adam

from fedsynth.nn.ensembles.strided_conv import turned_round, valid_taps, windows
from fedsynth.nn.ensembles.teacher_config import TeacherShape

SLOPE, EPSILON = 0.2, 1e-5
RATE, BETA1, BETA2 = 1e-3, 0.5, 0.999


@dataclass
class _Trace:
    """What a forward pass leaves for the backward pass."""

    groups: int
    one_hot: Tensor  # [T, images, classes]
    windows1: Tensor  # [T, images positions, 25 c]
    made1: Tensor  # after the activation, [T images, side/2, side/2, first]
    windows2: Tensor
    norm2: tuple[Tensor, Tensor, Tensor]  # input, mean, 1/deviation
    made2: Tensor  # [T, second, images positions]
    flat: Tensor  # [T, images, flat]
    norm3: tuple[Tensor, Tensor, Tensor]
    made3: Tensor  # [T, hidden, images]
    logits: Tensor  # [T, images], float32


class TeacherStack:
    """Forward and backward passes of a stack whose parameters lie in `views`."""

    def __init__(self, shape: TeacherShape, views: Mapping[str, Tensor]) -> None:
        self.shape, self.w = shape, views
        self.teachers = len(views["conv1"])

    def forward(self, rows1: Tensor, labels: Tensor, groups: int) -> _Trace:
        """Logits of images given as windows [T, images, positions, 25 c] with labels [T, images];
        images lie group after group, and batch norm is over each group."""
        w, shape, count = self.w, self.shape, self.teachers
        images = labels.shape[1]
        half, quarter = shape.side // 2, shape.side // 4
        dtype, device = rows1.dtype, rows1.device
        one_hot = F.one_hot(labels, shape.classes).to(dtype)
        places = labels + shape.classes * torch.arange(count, device=device)[:, None]
        taps1 = valid_taps(shape.side, dtype, device)
        maps = torch.bmm(taps1.expand(count, -1, -1), w["conv1_label"])
        maps = maps.view(count, half**2, shape.classes, shape.first).transpose(1, 2)
        maps = (maps + w["conv1_bias"][:, None, None]).reshape(count * shape.classes, -1)
        start = maps.index_select(0, places.flatten()).view(count, -1, shape.first)
        rows1 = rows1.reshape(count, images * half**2, -1)
        made1 = F.leaky_relu_(start.baddbmm_(rows1, w["conv1"].transpose(1, 2)), SLOPE)
        made1 = made1.view(count * images, half, half, shape.first)

        rows2 = windows(made1).view(count, images * quarter**2, -1)
        taps2 = valid_taps(half, dtype, device)
        maps = torch.matmul(w["conv2_label"], taps2.t()).view(count * shape.classes, -1)
        start = maps.index_select(0, places.flatten()).view(count, images, shape.second, -1)
        start = start.transpose(1, 2).reshape(count, shape.second, images * quarter**2)
        before = start.baddbmm_(w["conv2"], rows2.transpose(1, 2))
        made2, norm2 = self._norm("norm2", before, groups)
        flat = (
            made2.view(count, shape.second, images, -1).transpose(1, 2).reshape(count, images, -1)
        )

        start = torch.bmm(w["hidden_label"], one_hot.transpose(1, 2))
        before = start.baddbmm_(w["hidden"], flat.transpose(1, 2))
        made3, norm3 = self._norm("norm3", before, groups)
        logits = torch.bmm(w["out"], made3) + torch.bmm(w["out_label"], one_hot.transpose(1, 2))
        logits = logits.float().squeeze(1) + w["out_bias"].float()
        return _Trace(
            groups, one_hot, rows1, made1, rows2, norm2, made2, flat, norm3, made3, logits
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
        return F.leaky_relu_(after, SLOPE), (before, mean, scale)

    def _rows(self, name: str, values: Tensor, groups: int) -> tuple[int, int]:
        rows = self.w[f"{name}_scale"].numel() * groups
        return rows, values.numel() // rows

    def _each(self, name: str, what: str, groups: int) -> Tensor:
        return self.w[f"{name}_{what}"].reshape(-1).repeat_interleave(groups)

    def _norm_back(
        self, name: str, slope: Tensor, trace: _Trace, grads: Mapping[str, Tensor] | None
    ) -> Tensor:
        """The gradient before leaky ReLU and norm from that behind them; theirs into `grads`."""
        groups = trace.groups
        made, norm = {
            "norm2": (trace.made2, trace.norm2),
            "norm3": (trace.made3, trace.norm3),
        }[name]
        slope = torch.ops.aten.leaky_relu_backward(slope, made, SLOPE, True)
        rows, long = self._rows(name, slope, groups)
        before, mean, scale = norm
        wanted = [True, grads is not None, grads is not None]
        slope, by_scale, by_shift = torch.ops.aten.native_group_norm_backward(
            slope, before, mean, scale, self._each(name, "scale", groups), 1, rows, long, rows,
            wanted,
        )  # fmt: skip
        if grads is not None:
            for what, found in (("scale", by_scale), ("shift", by_shift)):
                target = grads[f"{name}_{what}"]
                target.copy_(found.view(*target.shape, groups).sum(-1))
        return slope

    def backward(
        self, trace: _Trace, slope: Tensor, grads: Mapping[str, Tensor] | None
    ) -> Tensor | None:
        """Gradients for the slope [T, images] of the loss in the logits: into `grads`, or, without
        them, of the images, [T images, side, side, c]."""
        w, shape, count = self.w, self.shape, self.teachers
        images = slope.shape[1]
        half, quarter = shape.side // 2, shape.side // 4
        slope4 = slope.to(trace.made3.dtype)[:, None]  # [T, 1, images]
        if grads is not None:
            torch.bmm(slope4, trace.made3.transpose(1, 2), out=grads["out"])
            torch.bmm(slope4, trace.one_hot, out=grads["out_label"])
            grads["out_bias"].copy_(slope.sum(1, keepdim=True))
        slope3 = self._norm_back("norm3", w["out"].transpose(1, 2) * slope4, trace, grads)
        if grads is not None:
            torch.bmm(slope3, trace.flat, out=grads["hidden"])
            torch.bmm(slope3, trace.one_hot, out=grads["hidden_label"])
        into = torch.bmm(slope3.transpose(1, 2), w["hidden"])
        into = into.view(count, images, shape.second, -1).transpose(1, 2)
        slope2 = self._norm_back("norm2", into.reshape(trace.made2.shape), trace, grads)
        if grads is not None:
            torch.bmm(slope2, trace.windows2, out=grads["conv2"])
        rim2 = slope2.new_zeros(count, images, quarter + 2, quarter + 2, shape.second)
        rim2[:, :, 1:-1, 1:-1] = slope2.view(count, shape.second, images, quarter, quarter).permute(
            0, 2, 3, 4, 1
        )
        if grads is not None:
            self._conv2_label(trace, rim2, grads["conv2_label"])
        slope1 = turned_round(rim2.flatten(0, 1), w["conv2"], count)
        slope1 = torch.ops.aten.leaky_relu_backward(slope1, trace.made1, SLOPE, True)
        if grads is not None:
            self._conv1(trace, slope1.view(count, images, half**2, shape.first), grads)
            return None
        rim1 = F.pad(slope1, (0, 0, 1, 1, 1, 1))
        return turned_round(rim1, w["conv1"], count)

    def _conv2_label(self, trace: _Trace, rim: Tensor, target: Tensor) -> None:
        """What each class's constant map adds up to at each tap."""
        count, shape = self.teachers, self.shape
        by_class = torch.bmm(trace.one_hot.transpose(1, 2), rim.flatten(2))
        by_class = by_class.view(count, shape.classes, *rim.shape[2:])[:, :, 1:-1, 1:-1]
        by_class = by_class.flatten(2, 3).transpose(2, 3)  # [T, classes, second, positions]
        taps = valid_taps(shape.side // 2, rim.dtype, rim.device)
        target.copy_(torch.matmul(by_class.reshape(count, -1, len(taps)), taps))

    def _conv1(self, trace: _Trace, slope: Tensor, grads: Mapping[str, Tensor]) -> None:
        count, shape = self.teachers, self.shape
        flat = slope.view(count, -1, shape.first)
        torch.bmm(flat.transpose(1, 2), trace.windows1, out=grads["conv1"])
        by_class = torch.bmm(trace.one_hot.transpose(1, 2), slope.flatten(2))
        by_class = by_class.view(count, shape.classes, -1, shape.first)
        grads["conv1_bias"].copy_(by_class.sum((1, 2)))
        taps = valid_taps(shape.side, slope.dtype, slope.device).t().expand(count, -1, -1)
        by_place = by_class.transpose(1, 2).reshape(count, taps.shape[-1], -1)
        torch.bmm(taps, by_place, out=grads["conv1_label"])

    def training_gradient(self, rows1: Tensor, labels: Tensor, grads: Mapping[str, Tensor]) -> None:
        """Into `grads`: of BCE(real, 1) + BCE(made, 0), each the mean over its batch. The first
        half of the images is real."""
        trace = self.forward(rows1, labels, 2)
        slope = torch.sigmoid(trace.logits)
        batch = slope.shape[1] // 2
        slope[:, :batch] -= 1.0
        self.backward(trace, slope / batch, grads)

    def image_gradient(self, rows1: Tensor, labels: Tensor) -> Tensor:
        """-d/dX of the mean over images of BCE(X, 1): which way each teacher would have each image
        go, [T, images, side, side, c]."""
        trace = self.forward(rows1, labels, 1)
        slope = (1.0 - torch.sigmoid(trace.logits)) / labels.shape[1]
        found = self.backward(trace, slope, None)
        if found is None:
            raise RuntimeError("a pass without gradients of weights ends in the images")
        return found.view(self.teachers, labels.shape[1], *found.shape[1:])


def adam_step(flat: Tensor, grads: Tensor, first: Tensor, second: Tensor, done: int) -> None:
    """Step number `done` (from 0) of Adam on a whole stack, in one pass over its memory."""
    adam(
        [flat], [grads], [first], [second], [], [torch.tensor(float(done))], fused=True,
        amsgrad=False, beta1=BETA1, beta2=BETA2, lr=RATE, weight_decay=0.0, eps=1e-8,
        maximize=False,
    )  # fmt: skip
