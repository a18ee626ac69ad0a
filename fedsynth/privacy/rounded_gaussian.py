"""Exactly rounded Gaussian noise: integers round(s * Z) for standard normal Z.

Claim. For a scale s of at most 2^44 the integers are distributed as round(s * Z), up to a
statistical distance of 2^-100 per number, and they are the same on every machine. Adding them to
integers is the Gaussian mechanism followed by rounding, so its privacy is that of the Gaussian.

Construction. Box and Muller's transform of two uniform numbers U and V whose binary digits are
drawn as needed. The first 64 digits of each give Z in float64 with an error that is bounded below.
Where the rounding of s * Z is certain in spite of that error, it is done; elsewhere (some numbers
in a million) further digits of U and V are drawn and the transform is computed again in multiple
precision, until the rounding is certain. There are no holes in the tails: a small U has as many
digits as its rounding needs.

Assumption. The processor's float64 log, sqrt, sin and cos are within 8 units in the last place;
NumPy's are within 4. A test compares with multiple precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import numpy as np

Words = Callable[[int], np.ndarray]  # n independent words, uniform on 64 bits
MoreWords = Callable[[int, int], list[int]]  # more words of one pair: (pair, number of words)

LARGEST_SCALE = 2.0**44
_BLOCK = 1 << 14  # pairs at a time, so that the arrays stay in the cache
_UNIT = 2.0**-64
_FAR, _NEAR = 2.0**-12, 2.0**-5  # below: U in the tail, radius at the centre


def rounded_gaussian(words: Words, more_words: MoreWords, n: int, scale: float) -> np.ndarray:
    """`n` independent integers round(scale * Z), int64.

    Args:
        words: The source of the first 64 binary digits of each uniform number.
        more_words: Further words of a pair, the same whenever they are asked for.
        n: The number of integers.
        scale: The standard deviation in units of the integers.

    Raises:
        ValueError: The scale is not in (0, LARGEST_SCALE].
    """
    if not 0 < scale <= LARGEST_SCALE:
        raise ValueError(f"the scale {scale!r} must be above 0 and at most 2^44")
    pairs = (n + 1) // 2
    result = np.empty((2, pairs), dtype=np.int64)
    for start in range(0, pairs, _BLOCK):
        count = min(_BLOCK, pairs - start)
        drawn = words(2 * count)
        first, second = drawn[:count], drawn[count:]
        uniform = first.astype(np.float64) * _UNIT
        angle = second.view(np.int64).astype(np.float64) * (math.pi * 2.0**-63)
        with np.errstate(divide="ignore", invalid="ignore"):
            radius = np.sqrt(-2.0 * np.log(uniform))
        special = (uniform < _FAR) | (radius < _NEAR)
        certain = 0.5 - scale * 2.0**-43.5
        for part, function in enumerate((np.cos, np.sin)):
            with np.errstate(invalid="ignore"):
                value = radius * function(angle)
            value *= scale
            value[special] = 0.5  # any number whose rounding is not certain
            integer = np.rint(value)
            result[part, start : start + count] = integer
            value -= integer
            np.abs(value, out=value)
            for index in np.flatnonzero(value > certain):
                digits = int(first[index]), int(second[index])
                result[part, start + index] = _rounded(
                    digits, part, scale, more_words, start + int(index)
                )
    return result.reshape(-1)[:n]


def _rounded(
    digits: tuple[int, int], part: int, scale: float, more_words: MoreWords, pair: int
) -> int:
    """One integer whose rounding needs care: first by a bound for just this pair, then exactly."""
    uniform = float(digits[0]) * _UNIT
    signed = digits[1] - (1 << 64) if digits[1] >> 63 else digits[1]
    if 0 < uniform < 1:
        radius = math.sqrt(-2.0 * math.log(uniform))
        turn = (math.cos, math.sin)[part](float(signed) * math.pi * 2.0**-63)
        value = scale * radius * turn
        if math.isfinite(value) and radius > 0:
            # Truncated digits and float64 errors of U, V, log, sqrt, cos and the products, times 4.
            error = radius * 2.0**-47 + (2.0**-51 + 4 * _UNIT / uniform) / radius
            integer = round(value)
            if abs(value - integer) < 0.5 - scale * error:
                return integer
    return _exactly_rounded((digits[0], signed), part, scale, more_words, pair)


def _exactly_rounded(
    digits: tuple[int, int], part: int, scale: float, more_words: MoreWords, pair: int
) -> int:
    """The integer from as many further digits of U and V as its rounding needs."""
    first, signed = digits
    extra = 2
    while True:
        further = more_words(pair, 2 * extra)
        for word in further[:extra]:
            first = (first << 64) | word
        for word in further[extra:]:
            signed = (signed << 64) | word
        bits = 64 * (extra + 1)
        with mpmath.workprec(bits + 128):
            # U and V lie between these digits and the next; both ends must round alike.
            ends = {
                _round_end(first + u, signed + v, bits, part, scale) for u in (0, 1) for v in (0, 1)
            }
        # The value is monotone in U, and in V over so short an interval except at an extremum of
        # the cosine, where it moves by less than the square of the interval.
        if len(ends) == 1 and first:
            return ends.pop()
        first, signed, extra = first >> (64 * extra), signed >> (64 * extra), 2 * extra


def _round_end(first: int, signed: int, bits: int, part: int, scale: float) -> int:
    uniform = mpmath.ldexp(mpmath.mpf(max(first, 1)), -bits)
    angle = mpmath.pi * mpmath.ldexp(mpmath.mpf(signed), 1 - bits)
    turn = mpmath.cos(angle) if part == 0 else mpmath.sin(angle)
    radius = mpmath.sqrt(-2 * mpmath.log(uniform)) if uniform < 1 else mpmath.mpf(0)
    return int(mpmath.nint(mpmath.mpf(scale) * radius * turn))
