"""Audits of parties: an honest guard stays below its claim, a broken one does not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fedsynth.core.messages import Request
from fedsynth.core.settings import build
from fedsynth.core.types import Budget, PartyInfo, Stage
from fedsynth.data import registry as datasets
from fedsynth.data.records import Records
from fedsynth.methods.method import PartyContext
from fedsynth.methods.registry import method
from fedsynth.privacy import guard as guard_module
from fedsynth.privacy.accounting.gdp import gdp_mu
from fedsynth.privacy.auditing.parties import audit_attack, fresh_party
from fedsynth.privacy.auditing.two_worlds import audit
from fedsynth.privacy.guard import Guard
from fedsynth.privacy.mechanisms import outer_products, sums
from fedsynth.privacy.mechanisms.outer_products import OuterProductSum
from fedsynth.privacy.mechanisms.sums import ClassSums
from fedsynth.privacy.party_data import PartyData

Attack = Callable[[Guard, PartyData], float]

# Mechanisms of the guard

SIGMA = 0.5  # mu = 2


def some_records(n: int = 6) -> Records:
    images = torch.randint(0, 256, (n, 1, 28, 28), generator=torch.Generator().manual_seed(1))
    return Records(images.to(torch.uint8), torch.arange(n) % 2)


CANARY = Records(torch.full((1, 1, 28, 28), 255, dtype=torch.uint8), torch.tensor([1]))


def class_sum_attack(guard: Guard, private: PartyData) -> float:
    """White canaries whose row wants to be twenty times the bound."""
    mechanism = ClassSums(
        contribution=lambda pixels, _: 20 * pixels.mean(dim=(2, 3)),
        width=1,
        clip=1.0,
        noise_multiplier=SIGMA,
        sampling_rates={0: 1.0, 1: 1.0},
    )
    (total,) = guard.apply(mechanism, private)
    return float(total[1])


def outer_sum_attack(guard: Guard, private: PartyData) -> float:
    """The same for a matrix of one row and three columns."""

    def factors(records: Records) -> tuple[torch.Tensor, torch.Tensor]:
        bright = records.pixels().mean(dim=(1, 2, 3))[:, None]
        return bright, 20 * bright.expand(-1, 3)

    mechanism = OuterProductSum(
        factors=private.records.map(factors), shape=(1, 3), clip=1.0, noise_multiplier=SIGMA
    )
    (total,) = guard.apply(mechanism, private)
    return float(total.sum()) / math.sqrt(3)


def too_little_noise(patch: pytest.MonkeyPatch, share: float = 0.5) -> None:
    """Make the guard draw less noise than it charges for."""
    honest = guard_module.noised

    def weak(values: list[torch.Tensor], *, noise_multiplier: float, **named: Any) -> Any:
        return honest(values, noise_multiplier=share * noise_multiplier, **named)

    patch.setattr(guard_module, "noised", weak)


def drop_the_clipping(patch: pytest.MonkeyPatch) -> None:
    """Make the mechanisms trust the lengths that methods claim."""
    patch.setattr(sums, "clip_rows", lambda rows, _: rows)
    patch.setattr(outer_products, "clipped_outer_sum", lambda left, right, _: left.T @ right)


@pytest.mark.parametrize("attack", [class_sum_attack, outer_sum_attack])
def test_honest_mechanisms_stay_below_their_claim_and_broken_ones_do_not(
    attack: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed = 1 / SIGMA

    def found() -> float:
        records = some_records()
        return audit_attack(attack, records, CANARY, delta=1e-5, trials=100, noise_seed=1).mu

    assert 0.4 * claimed < found() <= claimed
    for breaking in (too_little_noise, drop_the_clipping):
        with monkeypatch.context() as patch:
            breaking(patch)
            assert found() > claimed


def test_every_run_of_an_audit_has_noise_of_its_own() -> None:
    seen = []
    for _ in range(5):
        with fresh_party(some_records(), 6) as (guard, private):
            seen.append(class_sum_attack(guard, private))
    assert len(set(seen)) == 5


# A whole release: sketch_teach, by an attacker who sees all its noised sums

EPSILON, DELTA = 1.0, 1e-5


class Tap:
    """Looks at what noise is added to and at what comes out; can give earlier outputs again."""

    def __init__(self, replayed: list[torch.Tensor] | None = None) -> None:
        self.before: list[torch.Tensor] = []
        self.stds: list[float] = []
        self.after = list(replayed or [])
        self._replaying = replayed is not None
        self._honest = guard_module.noised

    def __call__(
        self,
        values: list[torch.Tensor],
        *,
        sensitivity: float,
        noise_multiplier: float,
        stream: Any,
    ) -> list[torch.Tensor]:
        (value,) = values
        std = sensitivity * noise_multiplier
        self.before.append(value.clone())
        self.stds.append(std)
        if not self._replaying:
            self.after += self._honest(
                values,
                sensitivity=sensitivity,
                noise_multiplier=noise_multiplier,
                stream=stream,
            )
        return [self.after[len(self.before) - 1].clone()]

    def distance(self, other: Tap) -> float:
        """How much less likely the outputs are by this tap's sums than by the other's: a logarithm
        of the likelihood ratio, if the noise is what was claimed."""
        rows = zip(self.after, self.before, other.before, self.stds, strict=True)
        return sum(
            float(((out - mine) ** 2).sum() - ((out - theirs) ** 2).sum()) / (2 * std**2)
            for out, mine, theirs, std in rows
        )

    def apart(self, other: Tap) -> float:
        """The mu of these outputs: how far the two taps' sums lie apart, in deviations of the noise
        that was claimed."""
        rows = zip(self.before, other.before, self.stds, strict=True)
        return math.hypot(*(float((mine - theirs).norm()) / std for mine, theirs, std in rows))


def release_attack(
    known: Records, canary: Records, patch: pytest.MonkeyPatch, apart: list[float]
) -> Attack:
    """Runs sketch_teach, then asks what its sums would have been in each of the two worlds. How far
    these lie apart is noted in `apart`."""
    some = method("sketch_teach")
    changes = {"pool": 10, "pool_steps": 1, "width": 4, "spc": 2, "steps": 3, "frequencies": 3}
    cfg: object = build(some.Config, {**changes, "scattering": False, "prior": "none"})
    info = PartyInfo(0, len(known.labels), {0: 3, 1: 3})
    stage = Stage(datasets.find("shapes").info, 0, 1, (info,), (0, 1), (0, 1))
    plan = some.plan(cfg, stage, Budget(EPSILON, DELTA))
    worlds = (
        known,
        Records(torch.cat([known.images, canary.images]), torch.cat([known.labels, canary.labels])),
    )

    def tapped(guard: Guard, private: PartyData, replayed: list[torch.Tensor] | None) -> Tap:
        tap = Tap(replayed)
        with patch.context() as inner:
            inner.setattr(guard_module, "noised", tap)
            some.party(PartyContext(cfg, plan, private, guard), Request(scalars={"seed": 0}))
        return tap

    def attack(guard: Guard, private: PartyData) -> float:
        real = tapped(guard, private, None)
        replays = []
        for world in worlds:
            with fresh_party(world, len(known.labels)) as (other_guard, other):
                replays.append(tapped(other_guard, other, real.after))
        apart.append(replays[0].apart(replays[1]))
        return replays[0].distance(replays[1])

    return attack


def test_all_of_sketch_teach_stays_below_its_budget_and_is_found_when_noise_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundredth of the noise is a mu of a hundred times the canary's, which is at least half of
    the claim: the worlds then overlap in less than one run of 10^6, and few runs prove more than
    was claimed, even if one goes astray."""
    claimed, known, trials = gdp_mu(EPSILON, DELTA), some_records(), 20
    astray = [0.0] * (trials - 1), [1.0] * (trials - 1)
    assert audit([*astray[0], 0.0], [*astray[1], 0.0], DELTA).mu > claimed
    apart: list[float] = []
    attack = release_attack(known, CANARY, monkeypatch, apart)

    def found() -> float:
        return audit_attack(attack, known, CANARY, delta=DELTA, trials=trials, noise_seed=1).mu

    assert found() <= claimed
    assert 0.5 * claimed < min(apart)
    assert max(apart) <= claimed * (1 + 1e-5)
    with monkeypatch.context() as patch:
        too_little_noise(patch, 0.01)
        assert found() > claimed
