"""The moments at which intermediate sets are kept, and their values over a crash."""

from __future__ import annotations

import itertools

import pytest
import torch

from fedsynth.methods.common.intermediate import KeptValues, kept_after
from fedsynth.storage.checkpoint import rounds


@pytest.mark.parametrize(("total", "sets"), itertools.product((1, 2, 7, 100), (0, 1, 3, 20)))
def test_moments_are_equal_shares_and_never_the_start_or_the_end(total, sets):
    moments = kept_after(total, sets)
    assert len(moments) == min(sets, total - 1)
    assert set(moments) <= set(range(1, total))
    ends = [0, *moments, total]
    gaps = [b - a for a, b in itertools.pairwise(ends)]
    assert ends == sorted(set(ends))
    assert max(gaps) - min(gaps) <= 1


def test_values_of_a_loop_that_broke_off_are_those_of_a_whole_one(tmp_path):
    def loop(name: str, until: int) -> KeptValues:
        value, kept = torch.zeros(2), KeptValues((2, 3), torch.zeros(2))
        state = {"value": value, **kept.state}
        for number in rounds(5, state, tmp_path / name, fingerprint="one", every_seconds=0):
            if number == until:
                break
            value += 10 ** (number + 1)
            if kept.due(number + 1):
                kept.keep(number + 1, value)
        return kept

    loop("broken", until=4)
    for name in ("broken", "whole"):
        kept = {moment: value.tolist() for moment, value in loop(name, until=9)}
        assert kept == {2: [110, 110], 3: [1110, 1110]}


def test_without_moments_a_checkpoint_is_as_before():
    assert KeptValues((), torch.zeros(3)).state == {}
