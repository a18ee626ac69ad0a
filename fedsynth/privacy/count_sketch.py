"""Count sketches: a vector as a few short tables of signed bucket sums, linear in the vector.

Row r of the table adds coordinate j, times a public random sign, to a public random bucket. The
median over rows of a coordinate's signed buckets estimates it. Buckets and signs are public
randomness, so that the L2 bound of a sparse vector's table follows exactly from the fullest
buckets, collisions included.
"""

from __future__ import annotations

import math

import torch

from fedsynth.core.randomness import torch_generator


class CountSketch:
    """The sketch of vectors of `width` numbers in `rows` tables of `columns` buckets."""

    def __init__(self, width: int, rows: int, columns: int, *key: object) -> None:
        generator = torch_generator(*key, "count sketch")
        self.width, self.rows, self.columns = width, rows, columns
        self.buckets = torch.randint(columns, (rows, width), generator=generator)
        self.signs = torch.randint(2, (rows, width), generator=generator) * 2.0 - 1.0

    def table(self, vectors: torch.Tensor) -> torch.Tensor:
        """The tables [n, rows, columns] of float vectors [n, width]; adds up as the vectors do."""
        spread = vectors[:, None] * self.signs.to(vectors)
        tables = spread.new_zeros(len(vectors), self.rows, self.columns)
        return tables.scatter_add_(2, self.buckets.to(vectors.device).expand_as(spread), spread)

    def estimate(self, tables: torch.Tensor) -> torch.Tensor:
        """The estimated vectors [n, width] of these tables."""
        buckets = self.buckets.to(tables.device).expand(len(tables), -1, -1)
        return (tables.gather(2, buckets) * self.signs.to(tables)).median(1).values

    def reach(self, entries: int) -> float:
        """The largest L2 norm of the table of a vector with that many entries of -1 or 1 and zeros
        elsewhere: in the worst case each row fills its fullest buckets with equal signs."""
        total = 0.0
        for row in self.buckets:
            loads = row.unique(return_counts=True)[1].sort(descending=True).values
            before = loads.cumsum(0) - loads
            hit = torch.minimum(loads, (entries - before).clamp(min=0))
            total += float((hit.double() ** 2).sum())
        return math.sqrt(total)
