"""The two worlds of an audit of a method: neighbouring records of one party, the furthest apart.

Candidates are records that the method's inputs admit: bright, grey and dark ones, patterns strong
and faint. Beside them the party has records of another class, or one of the same class, or none: a
canary that is alone is a party that takes part against one that answers with noise
(`joins=hidden`). With the relation replace_one the worlds differ by one candidate in place of
another one (of its class, where the plan says that classes are public), with unit user by all
records of the party. The pair that moves the values of a first run the furthest is taken.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedsynth.core.enums import Relation, Unit
from fedsynth.core.plan import RECORD_CLASSES
from fedsynth.data.records import Records
from fedsynth.experiment.audited_method import CLASSES, RECORDS, AuditedMethod
from fedsynth.privacy.auditing.parties import with_record
from fedsynth.privacy.auditing.recording import Recording, distance

LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of records without a pattern
FAINT = (0.03, 0.1, 0.25)  # deviations of patterns around one half
BETTER = 1.01  # by which a pair must move the values further than one that was found before
NEAR = 0.55  # level of a record that a canary turns round: close to what generators draw at first
OTHERS, ONE, SILENT = "other classes", "one record of its class", "no records"


@dataclass(frozen=True)
class Worlds:
    """Neighbouring records of the audited party: known ones, and what each world has besides."""

    known: Records
    added: tuple[Records | None, Records]
    name: str

    @functools.cached_property
    def both(self) -> tuple[Records, Records]:
        """The records of the party in either world."""
        first, second = (with_record(self.known, a) if a else self.known for a in self.added)
        return first, second


def candidates(audited: AuditedMethod) -> dict[str, Records]:
    """Records by which two worlds may differ: one, or with unit user all of a party."""
    example, unit = audited.natural.images[:1], audited.plan.budget.unit
    board = torch.arange(example.numel()).view(example.shape) % 2
    noise = torch.from_numpy(np.random.default_rng(0).random(example.shape))
    shares = {f"level {level:g}": torch.full(example.shape, level) for level in LEVELS}
    shares |= {"stripes": board, "random": noise}
    shares |= {f"faint {much:g}": 0.5 + (noise - 0.5) * much * 12**0.5 for much in FAINT}
    copies = RECORDS if unit == Unit.USER else 1
    found = {}
    plan = audited.plan
    exchanged = plan.budget.relation == Relation.REPLACE_ONE and RECORD_CLASSES not in plan.assumes
    for label in CLASSES[::-1] if exchanged else (1,):
        for name, share in shares.items():
            found[f"{name} of class {label}"] = _copies_of(example, share, label, copies)
    if unit == Unit.USER:
        found["natural"] = audited.natural
    return found


def _copies_of(example: Tensor, share: Tensor, label: int, copies: int = 1) -> Records:
    """Equal records with these values between 0 and 1, in the form of the example."""
    value = share.clamp(0, 1)
    image = (value * 255).round() if example.dtype == torch.uint8 else value
    images = image.to(example.dtype).repeat(copies, *[1] * (example.dim() - 1))
    return Records(images, torch.full((copies,), label))


def strongest(
    audited: AuditedMethod, seed: int, *, hidden: bool = False, most: int | None = None
) -> tuple[Worlds, int]:
    """The pair of worlds that lie the furthest apart in one run, and its number of uses.

    Args:
        audited: The method.
        seed: The seed of the noise.
        hidden: The party has the canary, or no records.
        most: The number of candidates that are tried; none: all.
    """
    tried = dict(itertools.islice(candidates(audited).items(), most))
    best, uses, reached = None, 0, -1.0
    for background, known in _backgrounds(audited, hidden).items():
        base = audited.run(known, seed, Recording())
        moved: dict[str, Recording] = {
            name: audited.run(with_record(known, added), seed, base.replay(base))
            for name, added in tried.items()
        }
        for first, second in _pairs(audited, moved):
            found = distance(moved[first] if first else base, moved[second])
            if found > BETTER * max(reached, 0) or best is None:
                name = f"{second} in place of {first}" if first else f"{second}"
                added = (tried[first] if first else None, tried[second])
                best = Worlds(known, added, f"{name}, beside {background}")
                uses, reached = len(base.uses), found
    assert best is not None
    return best, uses


def _backgrounds(audited: AuditedMethod, hidden: bool) -> dict[str, Records]:
    """The records that both worlds have, by their names."""
    images, labels = audited.natural.images, audited.natural.labels
    none = {SILENT: Records(images[:0], labels[:0])}
    if hidden or audited.plan.budget.unit == Unit.USER:
        return none
    one = _copies_of(images[:1], torch.full(images[:1].shape, NEAR), 1)
    return {OTHERS: audited.natural, **none, ONE: one}


def _pairs(audited: AuditedMethod, moved: Mapping[str, Recording]) -> list[tuple[str | None, str]]:
    """The names of neighbours; None stands for no record."""
    if audited.plan.budget.relation == Relation.REPLACE_ONE:
        return list(itertools.combinations(moved, 2))
    return [(None, name) for name in moved]
