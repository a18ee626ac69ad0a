"""The queries of the sketch: three or four noised sums over records.

1. `means`: the mean point of each class.
2. `common`: the second moment of points around their class means, pooled over all classes. Its
   leading directions are the basis of the later queries.
3. `spreads`: the same in this basis, per class.
4. `cells`, where the budget allows it: the moments around several centres per class, which follow
   from the earlier answers.

From the second query on, records are clipped to radii that earlier answers set: a record close to
its centre needs little noise. Everything that a query depends on besides the records is public and
travels with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fedsynth.core.enums import NoisePlacement
from fedsynth.core.errors import Refusal, Refused
from fedsynth.core.messages import Arrays
from fedsynth.data.records import Records, class_indices
from fedsynth.methods.sketch_teach.representation import Sketch
from fedsynth.privacy.clipping import clip_rows
from fedsynth.privacy.guard import Guard
from fedsynth.privacy.mechanisms.base import Mechanism
from fedsynth.privacy.mechanisms.outer_products import GroupedRows, SecondMoments
from fedsynth.privacy.mechanisms.sums import ClassSums
from fedsynth.privacy.party_data import PartyData

COUNT, CELL_COUNT = 0.3, 0.5  # weights of a record's count, relative to its point
BATCH_SIZE = 2048

MEANS, COMMON, SPREADS, CELLS = QUERIES = ("means", "common", "spreads", "cells")


@dataclass(frozen=True)
class Query:
    """One query about some classes.

    Attributes:
        kind: One of `QUERIES`.
        sketch: The map from images to points.
        classes: The classes in question.
        public: What the answer depends on besides the records: means [classes, width], basis
            [width, r], radii [classes, cells] and, for `cells`, centres [classes, cells, r].
    """

    kind: str
    sketch: Sketch
    classes: tuple[int, ...]
    public: Arrays

    def check_shapes(self, cells: int) -> None:
        """Refuse public arrays of other shapes than `cells` cells per class need.

        A party calls this before it looks at a record. Otherwise a missing row would make only the
        records that need it fail, and the failure would disclose that there are some.

        Raises:
            Refused: The arrays have other names, shapes or types.
        """
        classes, width = len(self.classes), self.sketch.width
        given = {name: (tuple(value.shape), value.dtype) for name, value in self.public.items()}
        basis = self.public.get("basis", torch.empty(0))
        directions = basis.shape[1] if basis.dim() == 2 else 0
        shapes: dict[str, tuple[int, ...]] = {}
        if self.kind != MEANS:
            shapes = {"means": (classes, width), "basis": (width, min(directions, width))}
            shapes["radii"] = (classes, cells if self.kind == CELLS else 1)
        if self.kind == CELLS:
            shapes["centres"] = (classes, cells, directions)
        expected = {name: (shape, torch.float32) for name, shape in shapes.items()}
        if given != expected:
            raise Refused(
                Refusal.REQUEST,
                f"the server sent query {self.kind!r} with {_describe(given)}; expected "
                f"{_describe(expected)}",
            )

    @property
    def number(self) -> int:
        """The position of this kind among all queries."""
        return QUERIES.index(self.kind)

    @property
    def bound(self) -> float:
        """The L2 bound of one record's contribution to the answer."""
        if self.kind == MEANS:
            return math.hypot(self.sketch.max_norm, COUNT)
        return 1 + CELL_COUNT**2 if self.kind == CELLS else 1.0

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the answer."""
        classes = len(self.classes)
        if self.kind == MEANS:
            return classes, self.sketch.width + 1
        width = self.public["basis"].shape[1] + (1 if self.kind == CELLS else 0)
        groups = {COMMON: 1, SPREADS: classes, CELLS: self.public["radii"].numel()}
        return groups[self.kind], width, width

    def answer(
        self,
        data: PartyData,
        guard: Guard,
        *,
        noise_multiplier: float,
        noise_at: NoisePlacement = NoisePlacement.PARTY,
    ) -> torch.Tensor:
        """The noised sum over a party's records, each clipped to `bound`."""
        mechanism: Mechanism[PartyData, Any]
        if self.kind == MEANS:
            mechanism = ClassSums(
                contribution=lambda pixels, _: self.points_and_counts(pixels),
                width=self.sketch.width + 1,
                clip=self.bound,
                noise_multiplier=noise_multiplier,
                sampling_rates=dict.fromkeys(self.classes, 1.0),
            )
        else:
            mechanism = SecondMoments(
                rows=data.records.map(self.grouped_rows),
                width=self.shape[-1],
                groups=self.shape[0],
                clip=self.bound,
                noise_multiplier=noise_multiplier,
            )
        (noised,) = guard.apply(mechanism, data, call=self.number, noise_at=noise_at)
        return noised

    def points_and_counts(self, pixels: torch.Tensor) -> torch.Tensor:
        """[point, 0.3] of each image: summed up, the last column counts records."""
        points = self.sketch.points(pixels)
        return torch.cat([points, points.new_full((len(points), 1), COUNT)], dim=1)

    def grouped_rows(self, records: Records) -> GroupedRows:
        """A row and a group number per record, from that record alone.

        Records of other classes have the group -1 and a row of zeros."""
        of_query = torch.isin(records.labels, torch.tensor(self.classes))
        groups = torch.full_like(records.labels, -1)
        rows = torch.zeros(len(groups), self.shape[-1])
        for batch in of_query.nonzero().flatten().split(BATCH_SIZE) if bool(of_query.any()) else ():
            indices = class_indices(records.labels[batch], self.classes)
            rows[batch], groups[batch] = self._relative_rows(records.pixels(batch), indices)
        return rows, groups

    def _relative_rows(self, pixels: torch.Tensor, class_index: torch.Tensor) -> GroupedRows:
        """Points relative to their centres, in the basis, in units of the radius and clipped to 1;
        for `cells` followed by 0.5, which counts the records of each cell."""
        points = self.sketch.points(pixels)
        offsets = (points - self.public["means"][class_index]) @ self.public["basis"]
        if self.kind != CELLS:
            rows = clip_rows(offsets / self.public["radii"][class_index], 1.0)
            return rows, torch.zeros_like(class_index) if self.kind == COMMON else class_index
        cell, offsets = nearest(offsets, self.public["centres"][class_index])
        radii = self.public["radii"]
        rows = clip_rows(offsets / radii[class_index, cell][:, None], 1.0)
        rows = torch.cat([rows, rows.new_full((len(rows), 1), CELL_COUNT)], dim=1)
        return rows, class_index * radii.shape[1] + cell


def _describe(arrays: Mapping[str, tuple[tuple[int, ...], torch.dtype]]) -> str:
    parts = (f"{name} {list(shape)} of {dtype}" for name, (shape, dtype) in arrays.items())
    return ", ".join(parts) or "no arrays"


def nearest(points: torch.Tensor, centres: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The index of each point's nearest centre, and the point relative to it.

    Args:
        points: [n, r].
        centres: [n, cells, r], a set of centres per point, or [cells, r], one set for all points.
    """
    offsets = points[:, None] - centres
    cell = offsets.square().sum(-1).argmin(1)
    return cell, offsets[torch.arange(len(points)), cell]
