import itertools
import secrets

import pytest

from fedsynth.privacy.secagg import sharing
from fedsynth.privacy.secagg.sharing import PRIME, SECRET_BYTES, combine_shares, create_shares

LEAST, MOST = bytes(SECRET_BYTES), b"\xff" * SECRET_BYTES


@pytest.mark.parametrize("secret", [LEAST, MOST, bytes(range(SECRET_BYTES))])
def test_any_threshold_of_shares_gives_the_secret(secret):
    shares = create_shares(secret, 3, 5)
    for chosen in itertools.permutations(shares, 3):
        assert combine_shares(chosen) == secret


@pytest.mark.parametrize(("threshold", "count"), [(1, 1), (2, 2), (14, 21), (60, 100)])
def test_sizes_of_real_sums(threshold, count):
    secret = secrets.token_bytes(SECRET_BYTES)
    assert combine_shares(create_shares(secret, threshold, count)[-threshold:]) == secret


def test_fewer_shares_fit_every_secret(monkeypatch):
    """For any two shares of three and any other secret there is one polynomial: the shares say
    nothing about the secret. Found by solving for its coefficients."""
    draws = iter([7, 11])
    monkeypatch.setattr(sharing.secrets, "randbelow", lambda most: next(draws) % most)
    shares = create_shares(MOST, 3, 3)
    (a, one), (b, two) = map(sharing._point, shares[:2])
    for other in (LEAST, b"\x05" * SECRET_BYTES):
        constant = int.from_bytes(other, "big")
        first = (one - constant) * pow(a, -1, PRIME) - (two - constant) * pow(b, -1, PRIME)
        square = first * pow(a - b, -1, PRIME) % PRIME
        linear = ((one - constant) * pow(a, -1, PRIME) - square * a) % PRIME
        for place, value in ((a, one), (b, two)):
            assert (square * place**2 + linear * place + constant - value) % PRIME == 0


def test_the_coefficients_are_drawn_anew_each_time():
    assert create_shares(MOST, 2, 2) != create_shares(MOST, 2, 2)


def test_shares_that_do_not_fit_are_refused():
    shares, others = create_shares(MOST, 3, 4), create_shares(LEAST, 3, 4)
    with pytest.raises(ValueError, match="do not fit"):
        combine_shares([*shares[:2], others[2]])
    with pytest.raises(ValueError, match="do not fit"):
        combine_shares(shares[:2])
    with pytest.raises(ValueError, match="twice"):
        combine_shares([shares[0], shares[0], shares[1]])
    for damaged in (b"", shares[0][:-1], bytes(4) + shares[0][4:], shares[0][:4] + b"\xff" * 66):
        with pytest.raises(ValueError, match="no share"):
            combine_shares([damaged, *shares[1:3]])


@pytest.mark.parametrize(("secret", "threshold"), [(b"short", 2), (MOST, 0), (MOST, 3)])
def test_impossible_requests_are_refused(secret, threshold):
    with pytest.raises(ValueError, match="32 bytes"):
        create_shares(secret, threshold, 2)
