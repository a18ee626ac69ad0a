"""Shamir's secret sharing: any `threshold` shares give the secret, fewer give nothing.

A share is a point of a polynomial over the integers modulo 2^521 - 1 whose constant term is the
secret and whose other coefficients are uniform. Flower's building block computes in the field of
2^128 elements, in Python and block by block; with whole numbers of Python it takes a thirtieth of
that time, which was most of the time of a secure sum.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

PRIME = 2**521 - 1
SECRET_BYTES = 32
_INDEX, _VALUE = 4, 66  # bytes of a share: the place of its point, then the point


def create_shares(secret: bytes, threshold: int, count: int) -> list[bytes]:
    """Shares of a secret of `SECRET_BYTES` bytes at the places 1 to `count`.

    Args:
        secret: The secret.
        threshold: The number of shares that give the secret.
        count: The number of shares.
    """
    if len(secret) != SECRET_BYTES or not 1 <= threshold <= count:
        raise ValueError("a secret has 32 bytes, and at least as many shares as its threshold")
    coefficients = [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    shares = []
    for place in range(1, count + 1):
        value = 0
        for coefficient in (*coefficients, int.from_bytes(secret, "big")):
            value = (value * place + coefficient) % PRIME
        shares.append(place.to_bytes(_INDEX, "big") + value.to_bytes(_VALUE, "big"))
    return shares


def combine_shares(shares: Sequence[bytes]) -> bytes:
    """The secret of as many shares as its threshold, by interpolation at 0.

    Raises:
        ValueError: A share has another form or came twice, or the shares do not fit together.
    """
    points = dict(_point(share) for share in shares)
    if len(points) != len(shares):
        raise ValueError("a share came twice")
    total = 0
    for place, value in points.items():
        above, below = 1, 1
        for other in points:
            if other != place:
                above, below = above * other % PRIME, below * (other - place) % PRIME
        total += value * above * pow(below, -1, PRIME)
    secret = total % PRIME
    if secret.bit_length() > 8 * SECRET_BYTES:
        raise ValueError("the shares do not fit together")
    return secret.to_bytes(SECRET_BYTES, "big")


def _point(share: bytes) -> tuple[int, int]:
    place, value = (int.from_bytes(part, "big") for part in (share[:_INDEX], share[_INDEX:]))
    if len(share) != _INDEX + _VALUE or not place or value >= PRIME:
        raise ValueError("this is no share")
    return place, value
