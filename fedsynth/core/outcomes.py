"""The outcome of a stage: a synthetic data set, or a released model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

EARLIER = "earlier"  # first part of the names of arrays of intermediate sets


def unit_interval(images: torch.Tensor) -> torch.Tensor:
    """Images as float32 with 0 black and 1 white, from bytes or from floats on that scale."""
    return images.float() / 255 if images.dtype == torch.uint8 else images.float()


@dataclass(frozen=True)
class SyntheticSet:
    """Released images or table rows with labels.

    In the pixel scale 0 is black and 1 is white; noise may put values outside. Real images, which
    only a non-private reference releases, stay bytes (0 to 255)."""

    images: torch.Tensor  # float32 or uint8 [n, c, h, w]
    labels: torch.Tensor  # int64 [n]
    soft: torch.Tensor | None = None  # float32 [n, classes of the data set]: label probabilities
    raw: bool = False  # unchanged records, which only a non-private reference may release
    earlier: Mapping[int, SyntheticSet] = field(default_factory=dict)  # after so many private steps

    def pixels(self) -> torch.Tensor:
        """The images in the pixel scale, float32."""
        return unit_interval(self.images)

    def to_arrays(self) -> dict[str, torch.Tensor]:
        """The content as named arrays: images, labels and, where there are any, soft labels and
        intermediate sets."""
        arrays = {"images": self.images, "labels": self.labels}
        if self.soft is not None:
            arrays["soft"] = self.soft
        for steps, among in sorted(self.earlier.items()):
            for name, array in among.to_arrays().items():
                arrays[f"{EARLIER}-{steps}-{name}"] = array
        return arrays

    @staticmethod
    def from_arrays(arrays: Mapping[str, torch.Tensor]) -> SyntheticSet:
        """The set of `to_arrays`.

        Raises:
            ValueError: The arrays are not those of a synthetic set.
        """
        final: dict[str, torch.Tensor] = {}
        earlier: dict[int, dict[str, torch.Tensor]] = {}
        for name, array in arrays.items():
            kind, _, rest = name.partition("-")
            steps, _, part = rest.partition("-")
            if kind == EARLIER and steps.isdecimal() and not part.startswith(EARLIER):
                earlier.setdefault(int(steps), {})[part] = array
            else:
                final[name] = array
        if not {"images", "labels"} <= set(final) <= {"images", "labels", "soft"}:
            raise ValueError(f"the arrays {', '.join(sorted(arrays))} are not a synthetic set")
        return SyntheticSet(
            final["images"],
            final["labels"],
            final.get("soft"),
            earlier={steps: SyntheticSet.from_arrays(own) for steps, own in earlier.items()},
        )

    @staticmethod
    def join(sets: Sequence[SyntheticSet]) -> SyntheticSet:
        """Concatenate sets in order; soft labels and intermediate sets remain where every set has
        them."""
        if len(sets) == 1:
            return sets[0]
        soft = [s.soft for s in sets if s.soft is not None]
        common = set.intersection(*(set(s.earlier) for s in sets)) if sets else set()
        return SyntheticSet(
            torch.cat([s.images for s in sets]),
            torch.cat([s.labels for s in sets]),
            torch.cat(soft) if len(soft) == len(sets) else None,
            any(s.raw for s in sets),
            {n: SyntheticSet.join([s.earlier[n] for s in sets]) for n in sorted(common)},
        )


@dataclass(frozen=True)
class ReleasedModel:
    """A private classifier over all classes of the data set."""

    state: Mapping[str, torch.Tensor]
    width: int  # of the ConvNet
    network: str = "convnet"  # one of nn.classifiers


Outcome = SyntheticSet | ReleasedModel
