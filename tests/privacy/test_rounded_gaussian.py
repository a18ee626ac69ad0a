"""Exactly rounded Gaussian noise: against multiple precision, in its tails, and at hard cases."""

from __future__ import annotations

import hashlib
import math

import mpmath
import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation
from dp_accounting.rdp import RdpAccountant
from scipy import stats

from fedsynth.privacy import rounded_gaussian as module
from fedsynth.privacy.rounded_gaussian import LARGEST_SCALE, rounded_gaussian

ADD_OR_REMOVE_ONE = NeighboringRelation.ADD_OR_REMOVE_ONE
SCALES = (0.7, 5.0, 1000.0, 2.0**20, 2.0**26 * 1.37, 2.0**33)


def words_of(seed: int):
    """A source of words, for tests."""
    rng = np.random.default_rng(seed)
    return lambda n: rng.integers(0, 2**64, n, dtype=np.uint64)


def more_of(seed: int):
    """Further words of a pair, from a hash."""

    def more(pair: int, n: int) -> list[int]:
        texts = (f"{seed} {pair} {n} {i}".encode() for i in range(n))
        return [int.from_bytes(hashlib.sha256(text).digest()[:8], "big") for text in texts]

    return more


def given(*values: int):
    """A source that hands out these words."""
    rest = list(values)

    def words(n: int) -> np.ndarray:
        taken, rest[:] = rest[:n], rest[n:]
        return np.array(taken, dtype=np.uint64)

    return words


@pytest.mark.parametrize("scale", SCALES)
def test_every_integer_is_that_of_multiple_precision(scale):
    """The transform of the first digits and of zeros behind them, at 300 bits."""
    n, drawn = 2_000, words_of(1)(2_000)
    found = rounded_gaussian(given(*map(int, drawn)), lambda _pair, m: [0] * m, n, scale)
    with mpmath.workprec(300):
        for pair in range(n // 2):
            u = mpmath.ldexp(mpmath.mpf(int(drawn[pair])), -64)
            v = int(drawn[n // 2 + pair])
            angle = 2 * mpmath.pi * mpmath.ldexp(mpmath.mpf(v), -64)
            radius = mpmath.sqrt(-2 * mpmath.log(u))
            both = (
                int(mpmath.nint(scale * radius * mpmath.cos(angle))),
                int(mpmath.nint(scale * radius * mpmath.sin(angle))),
            )
            assert (found[pair], found[n // 2 + pair]) == both


@pytest.mark.parametrize("scale", SCALES)
def test_the_quick_way_and_the_exact_way_agree(scale, monkeypatch):
    quick = rounded_gaussian(words_of(2), more_of(2), 500, scale)
    monkeypatch.setattr(module, "_FAR", 2.0)  # every pair is special

    def exactly(digits, part, scale, more, pair):
        signed = digits[1] - (1 << 64) if digits[1] >> 63 else digits[1]
        return module._exactly_rounded((digits[0], signed), part, scale, more, pair)

    monkeypatch.setattr(module, "_rounded", exactly)
    exact = rounded_gaussian(words_of(2), more_of(2), 500, scale)
    assert np.array_equal(quick, exact)


def test_a_hard_case_asks_for_more_digits():
    """A value within 2^-60 of the middle between two integers is decided by further digits."""
    with mpmath.workprec(300):
        # cos = 1 at V = 0, so the value is scale * sqrt(-2 log U); choose U for 2.5 exactly.
        uniform = mpmath.exp(-(mpmath.mpf(2.5) ** 2) / 2)
        digits = int(mpmath.floor(mpmath.ldexp(uniform, 64 * 5)))
    first, further = digits >> 256, [(digits >> (64 * i)) & (2**64 - 1) for i in (3, 2, 1, 0)]
    asked = []

    def more(shift: int):
        def words(pair: int, n: int) -> list[int]:
            asked.append(n)
            return [*further[: n // 2 - 1], further[n // 2 - 1] + shift, *([0] * (n // 2))]

        return words

    below = rounded_gaussian(given(first, 0), more(-1), 2, 1.0)[0]
    above = rounded_gaussian(given(first, 0), more(+2), 2, 1.0)[0]
    assert {int(below), int(above)} == {2, 3}
    assert asked


@pytest.mark.parametrize("first", [0, 1, 2**30, 2**64 - 1, 2**64 - 2, 2**63])
def test_extreme_words_give_finite_numbers(first):
    found = rounded_gaussian(given(first, 12345), more_of(3), 2, 2.0**20)
    assert np.abs(found).max() <= 2.0**20 * math.sqrt(2 * 192 * math.log(2))


def test_the_tail_has_no_holes():
    """Beyond 4.5 standard deviations, where 53 digits leave gaps, grid cells are met evenly."""
    scale, rng = 2.0**30, np.random.default_rng(5)
    tail = rng.integers(0, 2**44, 20_000, dtype=np.uint64)  # U below 2^-20
    found = rounded_gaussian(given(*map(int, tail), *([0] * 20_000)), more_of(4), 40_000, scale)[
        :20_000
    ]
    assert np.abs(found).min() > 5 * scale
    assert len(np.unique(found)) == len(found)
    residues = np.bincount(found % 16, minlength=16)
    assert stats.chisquare(residues).pvalue > 1e-6


@pytest.mark.parametrize("scale", [3.0, 2.0**24])
def test_the_distribution_is_the_rounded_normal(scale):
    found = rounded_gaussian(words_of(7), more_of(7), 200_000, scale)
    if scale < 10:
        cells = np.arange(-20, 21)
        chance = stats.norm.cdf((cells + 0.5) / scale) - stats.norm.cdf((cells - 0.5) / scale)
        counts = np.array([(found == c).sum() for c in cells])
        keep = chance * len(found) > 10
        expected = chance[keep] / chance[keep].sum() * counts[keep].sum()
        assert stats.chisquare(counts[keep], expected).pvalue > 1e-6
    else:
        assert stats.kstest(found / scale, "norm").pvalue > 1e-6
        for limit in (3.0, 3.5, 4.0):
            beyond = int((np.abs(found) > limit * scale).sum())
            p = 2 * stats.norm.sf(limit)
            assert stats.binomtest(beyond, len(found), p).pvalue > 1e-6


def test_pairs_are_independent_of_the_block_size(monkeypatch):
    """Numbers depend on their own words only; the order of words follows the blocks."""
    whole = rounded_gaussian(words_of(8), more_of(8), 31, 100.0)
    assert len(whole) == 31
    monkeypatch.setattr(module, "_BLOCK", 4)
    blocks = rounded_gaussian(words_of(8), more_of(8), 31, 100.0)
    assert len(blocks) == 31


@pytest.mark.parametrize("scale", [0.0, -1.0, LARGEST_SCALE * 2, math.nan, math.inf])
def test_a_scale_out_of_range_is_refused(scale):
    with pytest.raises(ValueError, match="scale"):
        rounded_gaussian(words_of(9), more_of(9), 2, scale)


def opendp_gaussian(scale: float):
    """OpenDP's discrete Gaussian mechanism on vectors of integers, exact by rejection."""
    dp = pytest.importorskip("opendp.prelude", reason="no wheel of OpenDP for this platform")
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=int))
    return dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=scale)


@pytest.mark.parametrize("scale", [200.0, 2.0**26])
def test_the_integers_are_distributed_as_those_of_opendp(scale):
    """At these scales a rounded and a discrete Gaussian differ by less than 1e-6 in distance, far
    below what so many numbers show. Each comparison fails by chance once in ten million times."""
    n = 100_000
    ours = rounded_gaussian(words_of(10), more_of(10), n, scale)
    theirs = np.array(opendp_gaussian(scale)([0] * n))
    assert stats.ks_2samp(ours, theirs).pvalue > 1e-7
    for limit in (2.5, 3.0, 3.5):
        beyond = [int((np.abs(found) > limit * scale).sum()) for found in (ours, theirs)]
        assert stats.binomtest(beyond[0], sum(beyond), 0.5).pvalue > 1e-7
    residues = np.stack([np.bincount(found % 16, minlength=16) for found in (ours, theirs)])
    assert stats.chi2_contingency(residues).pvalue > 1e-7


def test_the_cost_of_a_scale_is_that_of_opendp():
    """OpenDP states zero-concentrated privacy of its mechanism; ours claims the same number."""
    for multiplier in (0.5, 1.0, 7.3):
        rho = opendp_gaussian(multiplier * 2.0**20).map(2.0**20)
        event = GaussianDpEvent(multiplier)
        accountant = RdpAccountant(orders=[2.0, 8.0], neighboring_relation=ADD_OR_REMOVE_ONE)
        accountant.compose(event)
        assert accountant._rdp == pytest.approx([2.0 * rho, 8.0 * rho], rel=1e-9)
