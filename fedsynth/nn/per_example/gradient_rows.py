"""Per-example gradients of one weight, materialised or as outer products."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

_PIECE = 256  # numbers


def row_squares(rows: Tensor) -> Tensor:
    """The squared L2 norm over the last dimension, to 2^-19 of it.

    PyTorch's norm of a long row is off by up to 6e-4 on CPUs, which add its squares up in float32
    one after the other. Pieces are too short for that."""
    pieces = [torch.linalg.vector_norm(p, dim=-1).square_() for p in rows.split(_PIECE, dim=-1)]
    return torch.stack(pieces).sum(0) if len(pieces) > 1 else pieces[0]


class PerExampleGradient(ABC):
    """The gradients of one weight, one per record of a batch."""

    @abstractmethod
    def squares(self) -> Tensor:
        """The squared L2 norm of each record's gradient: [batch]."""

    @abstractmethod
    def weighted_sum(self, factors: Tensor, records: slice = slice(None)) -> Tensor:
        """The sum of factor times gradient over the records of a slice, shaped like the weight.

        `factors` has one number per record of the slice; its type is that of the sum."""

    @abstractmethod
    def rows(self) -> Tensor:
        """The gradients themselves, flattened: [batch, numbers of the weight]."""

    @abstractmethod
    def drop(self, records: Tensor) -> None:
        """Set the gradients of the records in this mask to zero, also where they are not finite."""


class Dense(PerExampleGradient):
    """Materialised gradients: [batch, *weight.shape]."""

    def __init__(self, dense: Tensor) -> None:
        self.dense = dense

    def squares(self) -> Tensor:
        blocks = self.dense.flatten(2) if self.dense.dim() > 2 else self.dense.unsqueeze(1)
        return row_squares(blocks).sum(1)

    def weighted_sum(self, factors: Tensor, records: slice = slice(None)) -> Tensor:
        rows = self.dense[records].flatten(1).to(factors.dtype)
        return (factors @ rows).view(self.dense.shape[1:])

    def rows(self) -> Tensor:
        return self.dense.flatten(1)

    def drop(self, records: Tensor) -> None:
        self.dense.masked_fill_(records.view(-1, *[1] * (self.dense.dim() - 1)), 0)


class OuterProduct(PerExampleGradient):
    """Gradients that are outer products of two vectors per record, materialised by `rows` only.

    This is the gradient of a linear layer; its norm is the product of the two vectors' norms, which
    are float64: in float32 the squares of a short one vanish, however long the other one is."""

    def __init__(self, left: Tensor, right: Tensor) -> None:
        self.left, self.right = left, right

    def squares(self) -> Tensor:
        left, right = (
            torch.linalg.vector_norm(v, dim=1, dtype=torch.float64) for v in (self.left, self.right)
        )
        return (left * right).square_().to(self.left.dtype)

    def weighted_sum(self, factors: Tensor, records: slice = slice(None)) -> Tensor:
        left = self.left[records].to(factors.dtype) * factors.unsqueeze(1)
        return left.t() @ self.right[records].to(factors.dtype)

    def rows(self) -> Tensor:
        return (self.left.unsqueeze(2) * self.right.unsqueeze(1)).flatten(1)

    def drop(self, records: Tensor) -> None:
        self.left, self.right = (
            v.masked_fill(records.unsqueeze(1), 0) for v in (self.left, self.right)
        )
