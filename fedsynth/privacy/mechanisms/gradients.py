"""Sums of clipped per-record gradients of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from dp_accounting import DpEvent
from torch import Tensor, nn

from fedsynth.core.enums import Unit
from fedsynth.data.records import Records
from fedsynth.nn.per_example.gradients import Loss
from fedsynth.privacy.clipping import clipped_gradient_sum, sum_sensitivity
from fedsynth.privacy.mechanisms.base import BoundedValues, SampledMechanism
from fedsynth.privacy.noise import Streams
from fedsynth.privacy.party_data import PartyData, Sealed
from fedsynth.privacy.sparsification import Sparsification, sparse_gradient_sum
from fedsynth.privacy.subsets import ClassSubset


def gradient_sensitivity(clip: float, sparsification: Sparsification | None = None) -> float:
    """The L2 bound by which one record moves a `ClippedGradientSum`, with rounding.

    The server of a joint method needs it for the grid of distributed noise."""
    return sparsification.l2_bound(clip) if sparsification else sum_sensitivity(clip)


@dataclass(frozen=True, kw_only=True, eq=False)
class ClippedGradientSum(SampledMechanism):
    """The sum of clipped loss gradients over a Poisson sample, one tensor per parameter.

    Claim: adding or removing one record moves the sum by at most `sensitivity` in L2 over all
    parameters together. Every record enters independently with probability `sampling_rate`, and
    its gradient is clipped to `clip`.
    Assumption: row i of `inputs` and of `loss` is a function of record i alone.
    Consequence: an empty sample gives zeros, which become noise like any other sum. Divide the
    result by a public constant, never by the size of the sample.

    Attributes:
        model: The public model; the result is in the order of `model.parameters()`.
        inputs: Maps pixels [n, c, h, w] in [0, 1] and labels [n] to the model's inputs.
        clip: The L2 bound of one record's gradient over all parameters.
        loss: A name, or a function of the model's outputs and the labels, one number per record.
        dtype: The type of matrix products and convolutions (`privacy.clipping`).
        subset: Only the records of this class take part and are charged, so that sums of different
            classes compose in parallel.
        sparsification: Keeps only the largest coordinates of each clipped gradient.
    """

    model: nn.Module
    inputs: Callable[[Tensor, Tensor], Tensor]
    clip: float
    loss: str | Loss = "cross_entropy"
    dtype: str = "float32"
    subset: ClassSubset | None = None
    sparsification: Sparsification | None = None

    @property
    def sensitivity(self) -> float:
        """The L2 bound of one record's part of the sum."""
        return gradient_sensitivity(self.clip, self.sparsification)

    def unit_event(self, unit: Unit) -> DpEvent:
        event = super().unit_event(unit)
        return self.subset.event(event, unit) if self.subset else event

    def select(self, data: PartyData) -> Sealed[Records]:
        return self.subset.records(data) if self.subset else data.records

    def evaluate(self, value: Records, streams: Streams, device: torch.device) -> BoundedValues:
        chosen = self.sample(value, streams)
        device = next(self.model.parameters()).device
        labels = value.labels[chosen].to(device)
        inputs = self.inputs(value.pixels(chosen).to(device), labels)
        if self.sparsification is None:
            sums = clipped_gradient_sum(
                self.model, inputs, labels, clip=self.clip, loss=self.loss, dtype=self.dtype
            )
        else:
            sums = sparse_gradient_sum(
                self.model,
                inputs,
                labels,
                clip=self.clip,
                sparsification=self.sparsification,
                loss=self.loss,
                dtype=self.dtype,
            )
        return BoundedValues(sums, self.sensitivity)
