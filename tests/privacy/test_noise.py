"""The secret streams: when they are equal, when they differ, how they are spread."""

from __future__ import annotations

import ast
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedsynth.core.errors import UserError
from fedsynth.privacy.noise import FROM_SYSTEM, NoiseKey

KEY = NoiseKey.from_seed(7, "party 0")
SOURCE = Path(__file__).parents[2] / "fedsynth"


def test_equal_purposes_repeat_and_different_purposes_do_not():
    again = NoiseKey.from_seed(7, "party 0")
    first = KEY.stream("a", 1).rounded_gaussian(50, 1e6)
    assert np.array_equal(first, again.stream("a", 1).rounded_gaussian(50, 1e6))
    for other in (
        KEY.stream("a", 2),
        KEY.stream("a1"),
        NoiseKey.from_seed(8, "party 0").stream("a", 1),
    ):
        assert not np.array_equal(first, other.rounded_gaussian(50, 1e6))


@given(
    st.lists(st.text(max_size=4), min_size=1, max_size=4),
    st.lists(st.text(max_size=4), min_size=1, max_size=4),
)
@settings(max_examples=100, deadline=None)
def test_the_encoding_of_purposes_is_injective(left, right):
    same = KEY.stream(*left).words(4).tolist() == KEY.stream(*right).words(4).tolist()
    assert same == (left == right)


def test_noise_is_normal_and_independent():
    values = KEY.stream("shape").rounded_gaussian(200_000, 2.0**30) / 2.0**30
    assert stats.kstest(values, "norm").pvalue > 1e-4
    halves = values.reshape(2, -1)
    assert abs(np.corrcoef(halves)[0, 1]) < 0.01
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.01
    assert 4 < np.abs(values).max() < 7


def test_an_odd_number_of_values():
    assert KEY.stream("odd").rounded_gaussian(7, 5.0).shape == (7,)
    assert KEY.stream("none").rounded_gaussian(0, 5.0).shape == (0,)


def test_two_draws_of_one_stream_ask_for_different_further_digits(monkeypatch):
    """Numbers that need more than 64 binary digits have them from streams of their own."""
    asked = []

    def all_exact(words, more_words, n, scale):
        asked.append(more_words(0, 4))
        return np.zeros(n, dtype=np.int64)

    monkeypatch.setattr("fedsynth.privacy.noise.rounded_gaussian", all_exact)
    stream = KEY.stream("further")
    stream.rounded_gaussian(2, 1.0)
    stream.rounded_gaussian(2, 1.0)
    again = KEY.stream("further")
    again.rounded_gaussian(2, 1.0)
    assert asked[0] == asked[2] != asked[1]
    assert len(set(asked[0])) == 4


def test_a_system_key_is_kept_for_its_owner_alone(tmp_path):
    first = NoiseKey.of_owner(tmp_path / "home", "party 0", None)
    again = NoiseKey.of_owner(tmp_path / "home", "party 0", None)
    other = NoiseKey.of_owner(tmp_path / "else", "party 0", None)
    assert first.origin == FROM_SYSTEM
    assert first.secret == again.secret != other.secret
    mode = stat.S_IMODE(os.stat(tmp_path / "home" / "noise.key").st_mode)
    assert mode == 0o600
    assert first.secret.hex() not in repr(first)


def test_a_damaged_key_is_refused_not_replaced(tmp_path):
    NoiseKey.of_owner(tmp_path, "party 0", None)
    (tmp_path / "noise.key").write_bytes(b"short")
    with pytest.raises(UserError, match="damaged"):
        NoiseKey.of_owner(tmp_path, "party 0", None)


def test_owners_that_race_for_a_key_get_the_same(tmp_path):
    """The file system decides the race, so that threads race as processes do."""
    folders = [tmp_path / f"race {number}" for number in range(8)]
    start = threading.Barrier(8)

    def secrets() -> list[bytes]:
        start.wait()
        return [_secret(folder) for folder in folders]

    with ThreadPoolExecutor(8) as pool:
        racers = [pool.submit(secrets) for _ in range(8)]
    assert len({tuple(racer.result()) for racer in racers}) == 1


def _secret(folder: Path) -> bytes:
    return NoiseKey.of_owner(folder, "party 0", None).secret


def test_only_the_guard_opens_sealed_values_and_only_the_privacy_package_draws_noise():
    """The boundary is a convention of imports; this is what holds people to it."""
    for path in SOURCE.rglob("*.py"):
        names = {
            alias.name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        place = path.relative_to(SOURCE)
        if "open_for_guard" in names:
            assert place == Path("privacy/guard.py")
        if "NoiseStream" in names:
            assert place.is_relative_to("privacy")
