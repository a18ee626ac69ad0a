"""Noise in shares: on a grid, added up exactly, as much as promised, and no less private."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import kstest, norm

from fedsynth.core.enums import NoisePlacement
from fedsynth.core.errors import UserError
from fedsynth.core.plan import PartyPlan, View
from fedsynth.core.types import Budget, PartyInfo
from fedsynth.data.records import Records
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import composed, disclosed, gaussian, poisson, repeated
from fedsynth.privacy.grid import FixedPointGrid
from fedsynth.privacy.guard import Guard
from fedsynth.privacy.ledger import Ledger, read_charges
from fedsynth.privacy.mechanisms.sums import ClassSums
from fedsynth.privacy.noise import NoiseKey
from fedsynth.privacy.party_data import PartyData
from fedsynth.privacy.party_key import PartyKey
from fedsynth.privacy.secagg.distributed_noise import add_share, weakened


def stream(party: int):
    return NoiseKey.from_seed(5, f"party {party}").stream("noise")


@pytest.mark.parametrize("shares", [1, 3, 20])
def test_the_shares_add_up_to_the_whole_noise(shares):
    """Normal, with the deviation promised, and independent from coordinate to coordinate."""
    numbers, bound, sigma = 4000, 0.1, 1.7
    values = [torch.full((40, 50), 0.25), torch.zeros(2000)]
    parts = [
        add_share(
            values, sensitivity=bound, noise_multiplier=sigma, shares=shares, stream=stream(party)
        )
        for party in range(shares)
    ]
    grid = FixedPointGrid.of(bound, numbers)
    total = torch.cat([grid.read(sum(p[i] for p in parts)).reshape(-1) for i in (0, 1)])
    noise = total - torch.cat([torch.full((2000,), 0.25 * shares), torch.zeros(2000)])
    assert kstest(noise.numpy() / (sigma * bound), norm.cdf).pvalue > 1e-3
    assert abs(float((noise[:2000] * noise[2000:]).mean()) / (sigma * bound) ** 2) < 0.1


@pytest.mark.parametrize("deviation", [0.45, 0.6, 0.8])
def test_rounding_errors_say_nothing_beyond_the_sum_modulo_one_step(deviation):
    """A step of the argument in `secagg.distributed_noise`, at noise so small that its error shows:
    of two parties, the density of the first rounding error given the sum, against a uniform one."""
    errors, whole = np.linspace(-0.5, 0.5, 21), np.arange(-40, 41)
    for total in (0.0, 0.3, 1.5, 2.9):
        first = whole[:, None] + errors
        density = norm.pdf(first, scale=deviation) * norm.pdf(total - first, scale=deviation)
        density = density.sum(0) / norm.pdf(total, scale=deviation * 2**0.5)
        bound = 4 * 2 * math.exp(-2 * math.pi**2 * deviation**2 / 2)
        assert np.abs(density - 1).max() <= bound
    assert np.abs(density - 1).max() > 1e-9, "the error could not be seen at all"


def test_what_cannot_be_added_up_is_not_sent():
    def share(values: list[torch.Tensor], sigma: float = 1.0, shares: int = 2) -> None:
        add_share(values, sensitivity=1.0, noise_multiplier=sigma, shares=shares, stream=stream(0))

    with pytest.raises(ValueError, match="not finite"):
        share([torch.tensor([1.0, float("nan")])])
    share([torch.tensor([1e12])])  # placed at the end of the range
    with pytest.raises(UserError, match="too little"):
        share([torch.zeros(3)], sigma=1e-6)


def test_collusion_takes_shares_of_the_noise_off():
    event = composed([repeated(poisson(0.01, gaussian(2.0)), 30), gaussian(4.0)])
    expected = composed([repeated(poisson(0.01, gaussian(1.0)), 30), gaussian(2.0)])
    assert weakened(event, 4, 3) == expected
    assert weakened(event, 4, 9) == expected, "the party's own share is always left"
    assert weakened(event, 4, 0) == event
    with pytest.raises(ValueError, match="no shares"):
        weakened(disclosed(), 4, 1)


def test_epsilon_of_the_views():
    """Exact Gaussian at delta 1e-5: 5 has epsilon .7255, .5 has 9.997 (published); a fifth of the
    noise away is a multiplier of sqrt(4/5)."""
    assert epsilon(gaussian(5.0), 1e-5) == pytest.approx(0.7255, abs=1e-4)
    colluding = weakened(gaussian(0.5 * (5 / 4) ** 0.5), 5, 1)
    assert epsilon(colluding, 1e-5) == pytest.approx(9.997, abs=1e-3)


def test_a_guard_adds_its_share_and_writes_down_who_may_look(tmp_path):
    """The shares of four parties without records add up to the noise; none is sent by itself."""
    records = Records(torch.zeros(0, 1, 8, 8, dtype=torch.uint8), torch.zeros(0, dtype=torch.int64))
    info = PartyInfo(0, 0, {0: 0})
    total = torch.zeros(1, 3000, dtype=torch.int64)
    for party in range(4):
        key = NoiseKey.from_seed(1, f"party {party}")
        path = tmp_path / f"{party}.jsonl"
        ledger = Ledger(
            path,
            job="j",
            party=party,
            budget=Budget(100.0, 1e-5),
            noise_key=key,
            party_key=PartyKey.of_owner(tmp_path, str(party), 0),
        )
        guard = Guard(
            plan=PartyPlan(party, 0, gaussian(2.0), shares=4),
            stage=0,
            ledger=ledger,
            key=key,
            request_digest="d",
            data_fingerprint="f",
        )
        mechanism = ClassSums(
            contribution=lambda pixels, _: pixels.new_zeros(len(pixels), 3000),
            width=3000,
            clip=3.0,
            noise_multiplier=2.0,
            sampling_rates={0: 1.0},
        )
        data = PartyData(records, info, work_dir=tmp_path, fingerprint="x")
        (sums,) = guard.apply(mechanism, data, noise_at=NoisePlacement.DISTRIBUTED)
        release = guard.release({"sums": sums})
        assert release.only_in_sum
        total += release.arrays["sums"]
        (entry,) = read_charges(path)
        assert entry.view == View.of_sum(4).text == "server that sees sums of 4 or more shares"
        alone = FixedPointGrid.of(3.0, 3000).read(sums)
        assert float(alone.std()) == pytest.approx(3.0, rel=0.1)  # half of the noise: 2 * 3 / 2
    noise = FixedPointGrid.of(3.0, 3000).read(total)
    assert kstest(noise.flatten().numpy() / 6.0, norm.cdf).pvalue > 1e-3
