"""Noised functions of a sample: against a naive one, and never further apart than promised."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from guarded import guard, private
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedsynth.core.types import Budget
from fedsynth.data.records import Records
from fedsynth.privacy.accounting.events import gaussian_in_ball, poisson, to_json
from fedsynth.privacy.guard import Guard
from fedsynth.privacy.ledger import BudgetExceeded, read_entries
from fedsynth.privacy.mechanisms.sample_function import SampleFunction
from fedsynth.privacy.party_data import PartyData

WHOLE = {"shape": (3,), "clip": 0.5, "noise_multiplier": 2.0, "sampling_rate": 1.0}


def party(path: Path, n: int, seed: int = 0, epsilon: float = float("inf")):
    """A guard with a ledger of its own, and n records."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (n, 1, 4, 4), generator=generator, dtype=torch.uint8)
    data = Records(images, torch.arange(n) % 3)
    return guard(path, budget=Budget(epsilon, 1e-5)), private(data, path), data


def applied(some: Guard, data: PartyData, function, call: int = 0, **terms) -> torch.Tensor:
    """The function's noised value."""
    (value,) = some.apply(SampleFunction(function=function, **terms), data, call=call)
    return value


def coupled(pixels: torch.Tensor, names: torch.Tensor) -> torch.Tensor:
    """A function in which records meet."""
    if not len(pixels):
        return torch.zeros(3)
    flat = pixels.flatten(1)
    most = (flat @ flat.T).max()
    return torch.stack([most, flat.std(), names.double().mean().float()])


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("clip", [0.5, 1e6])
def test_without_noise_it_is_the_function_clipped_as_a_whole(tmp_path, clip):
    mine, held, data = party(tmp_path, 7)
    found = applied(mine, held, coupled, **{**WHOLE, "clip": clip})
    expected = coupled(data.images.float() / 255, data.labels)
    expected = expected * min(1.0, clip / float(expected.norm()))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=0)


def test_the_noise_is_made_for_twice_the_clip_in_every_number(tmp_path):
    mine, held, _ = party(tmp_path, 3)
    zeros = lambda *_: torch.zeros(200, 100)  # noqa: E731
    found = applied(mine, held, zeros, **{**WHOLE, "shape": (200, 100)})
    assert found.std().item() == pytest.approx(2 * 0.5 * 2.0, rel=0.03)


@given(st.integers(1, 9), st.integers(0, 100), st.floats(1e-3, 1e3))
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_record_moves_it_further_than_twice_the_clip(no_noise, tmp_path_factory, n, seed, size):
    """The worst function there is: it turns round when one record is missing."""

    def turns(pixels: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        away = torch.tensor([3.0, -4.0, 12.0]) * size
        return away if len(pixels) == n else -away

    found = []
    for count in (n, n - 1):
        mine, held, _ = party(tmp_path_factory.mktemp("p"), count, seed)
        found.append(applied(mine, held, turns, **WHOLE))
    apart = float((found[0] - found[1]).norm())
    assert apart <= 2 * 0.5
    assert apart == pytest.approx(2 * min(0.5, 13 * size), rel=1e-3)


def test_every_record_enters_with_the_stated_probability(tmp_path):
    mine, held, data = party(tmp_path, 400)
    seen = []

    def look(pixels: torch.Tensor, names: torch.Tensor) -> torch.Tensor:
        seen.append(len(pixels))
        positions = [int(torch.nonzero((data.pixels() == p).flatten(1).all(1))[0]) for p in pixels]
        assert torch.equal(data.labels[positions], names)
        return torch.zeros(3)

    for call in range(50):
        applied(mine, held, look, **{**WHOLE, "sampling_rate": 0.1}, call=call)
    assert len(set(seen)) > 1
    assert sum(seen) / 50 == pytest.approx(40, rel=0.15)


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_becomes_nothing(tmp_path, bad):
    mine, held, _ = party(tmp_path, 3)
    found = applied(mine, held, lambda *_: torch.tensor([1.0, bad, 0.0]), **WHOLE)
    assert torch.equal(found, torch.zeros(3))


def test_a_shape_that_depends_on_the_sample_is_refused(tmp_path):
    mine, held, _ = party(tmp_path, 4)
    with pytest.raises(ValueError, match="shape"):
        applied(mine, held, lambda pixels, _: pixels[:, 0, 0, 0], **WHOLE)


def test_it_is_paid_before_it_is_computed(tmp_path):
    mine, held, _ = party(tmp_path, 4)

    def look(*_: torch.Tensor) -> torch.Tensor:
        (entry,) = read_entries(tmp_path / "ledger.jsonl")
        assert entry.event == to_json(poisson(1.0, gaussian_in_ball(2.0)))
        return torch.zeros(3)

    applied(mine, held, look, **WHOLE)
    poor, held, _ = party(tmp_path / "poor", 4, epsilon=0.01)
    with pytest.raises(BudgetExceeded):
        applied(poor, held, lambda *_: pytest.fail("computed unpaid"), **WHOLE)
