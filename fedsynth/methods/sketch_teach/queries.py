"""What the sketch asks of the parties: three or four questions, each a sum over records with noise.

First the mean point of each class. Then how records lie around the means of their classes, all
classes together: the directions in which this kind of picture varies. Then the same in these
directions, class by class; and last, where the budget allows it, within the parts of a class that
lie around centres drawn from what is known by then. A record near its centre says little and needs
little noise: from the second question on, records are clipped to radii that earlier answers set.
Whatever a question depends on is public, and travels with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fedsynth.core.enums import NoisePlacement
from fedsynth.core.errors import UserError
from fedsynth.core.messages import Arrays
from fedsynth.methods.sketch_teach.linear_teacher import places_in
from fedsynth.methods.sketch_teach.representation import Sketch
from fedsynth.privacy.clipping import clip_rows
from fedsynth.privacy.guard import Guard
from fedsynth.privacy.mechanisms.base import Mechanism
from fedsynth.privacy.mechanisms.outer_products import GroupedRows, SecondMoments
from fedsynth.privacy.mechanisms.sums import ClassSums
from fedsynth.privacy.party_data import PartyData, Records

COUNT, CELL_COUNT = 0.3, 0.5  # weights of a record's count beside its point
AT_ONCE = 2048

MEANS, COMMON, SPREADS, CELLS = QUESTIONS = ("means", "common", "spreads", "cells")


@dataclass(frozen=True)
class Query:
    """One question about some classes, and what it depends on besides the records."""

    kind: str
    sketch: Sketch
    classes: tuple[int, ...]
    known: Arrays
    """Public: means [classes, width], basis [width, r], radii [classes, cells] and, for CELLS,
    centres [classes, cells, r]."""

    def require_whole(self, cells: int) -> None:
        """Refuse a question whose public side is not of the shapes that `cells` cells a class want.

        A party asks for this before it looks at a record: where a row is missing, the records that
        need it would fail, and failing would say that there are some."""
        classes, width = len(self.classes), self.sketch.width
        found = {name: (tuple(value.shape), value.dtype) for name, value in self.known.items()}
        basis = self.known.get("basis", torch.empty(0))
        directions = basis.shape[1] if basis.dim() == 2 else 0
        shapes: dict[str, tuple[int, ...]] = {}
        if self.kind != MEANS:
            shapes = {"means": (classes, width), "basis": (width, min(directions, width))}
            shapes["radii"] = (classes, cells if self.kind == CELLS else 1)
        if self.kind == CELLS:
            shapes["centres"] = (classes, cells, directions)
        wanted = {name: (shape, torch.float32) for name, shape in shapes.items()}
        if found != wanted:
            raise UserError(
                f"the curator asks {self.kind!r} with {_shown(found)}, and it takes "
                f"{_shown(wanted)}"
            )

    @property
    def number(self) -> int:
        """Its place among the questions."""
        return QUESTIONS.index(self.kind)

    @property
    def bound(self) -> float:
        """What one record moves the answer by, at most, in L2."""
        if self.kind == MEANS:
            return math.hypot(self.sketch.longest, COUNT)
        return 1 + CELL_COUNT**2 if self.kind == CELLS else 1.0

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the answer."""
        classes = len(self.classes)
        if self.kind == MEANS:
            return classes, self.sketch.width + 1
        width = self.known["basis"].shape[1] + (1 if self.kind == CELLS else 0)
        groups = {COMMON: 1, SPREADS: classes, CELLS: self.known["radii"].numel()}
        return groups[self.kind], width, width

    def answer(
        self,
        private: PartyData,
        guard: Guard,
        *,
        noise_multiplier: float,
        noise_at: NoisePlacement = NoisePlacement.PARTY,
    ) -> torch.Tensor:
        """What a party says: a noised sum of contributions no longer than `bound`."""
        mechanism: Mechanism[PartyData, Any]
        if self.kind == MEANS:
            mechanism = ClassSums(
                contribution=lambda pixels, _: self.counted(pixels),
                width=self.sketch.width + 1,
                clip=self.bound,
                noise_multiplier=noise_multiplier,
                sampling_rates=dict.fromkeys(self.classes, 1.0),
            )
        else:
            mechanism = SecondMoments(
                rows=private.records.map(self.grouped),
                groups=self.shape[0],
                clip=self.bound,
                noise_multiplier=noise_multiplier,
            )
        (result,) = guard.apply(mechanism, private, call=self.number, noise_at=noise_at)
        return result

    def counted(self, pixels: torch.Tensor) -> torch.Tensor:
        """[point, 0.3] of each image."""
        points = self.sketch.points(pixels)
        return torch.cat([points, points.new_full((len(points), 1), COUNT)], dim=1)

    def grouped(self, records: Records) -> GroupedRows:
        """A row and the number of its group for each record, from the record alone; -1 and zeros
        for one of another class."""
        named = torch.isin(records.labels, torch.tensor(self.classes))
        groups = torch.full_like(records.labels, -1)
        rows = torch.zeros(len(groups), self.shape[-1])
        for mine in named.nonzero().flatten().split(AT_ONCE) if bool(named.any()) else ():
            places = places_in(records.labels[mine], self.classes)
            rows[mine], groups[mine] = self._around(records.pixels(mine), places)
        return rows, groups

    def _around(self, pixels: torch.Tensor, places: torch.Tensor) -> GroupedRows:
        """Where images lie from the centres they belong to, in the basis and in units of the radius
        there, clipped to 1; for CELLS with a 0.5 at the end."""
        apart = (self.sketch.points(pixels) - self.known["means"][places]) @ self.known["basis"]
        if self.kind != CELLS:
            rows = clip_rows(apart / self.known["radii"][places], 1.0)
            return rows, torch.zeros_like(places) if self.kind == COMMON else places
        cell, apart = nearest(apart, self.known["centres"][places])
        radii = self.known["radii"]
        rows = clip_rows(apart / radii[places, cell][:, None], 1.0)
        rows = torch.cat([rows, rows.new_full((len(rows), 1), CELL_COUNT)], dim=1)
        return rows, places * radii.shape[1] + cell


def _shown(arrays: Mapping[str, tuple[tuple[int, ...], torch.dtype]]) -> str:
    parts = (f"{name} {list(shape)} of {dtype}" for name, (shape, dtype) in arrays.items())
    return ", ".join(parts) or "no arrays"


def nearest(points: torch.Tensor, centres: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """For each point [n, r] the number of its nearest centre, of its own [n, cells, r] or of those
    all have [cells, r], and the way from there."""
    apart = points[:, None] - centres
    cell = apart.square().sum(-1).argmin(1)
    return cell, apart[torch.arange(len(points)), cell]
