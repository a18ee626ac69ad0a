"""Requests and releases: digests and typed payloads."""

from __future__ import annotations

import pytest
import torch

from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import SyntheticSet


def test_digests_are_equal_for_equal_content_only():
    base = Request("teach", 1, {"w": torch.zeros(2)}, {"seed": 3})
    same = Request("teach", 1, {"w": torch.zeros(4)[:2]}, {"seed": 3})
    assert base.digest() == same.digest()
    changes = [
        Request("ask", 1, {"w": torch.zeros(2)}, {"seed": 3}),
        Request("teach", 2, {"w": torch.zeros(2)}, {"seed": 3}),
        Request("teach", 1, {"w": torch.zeros(2, 1)}, {"seed": 3}),
        Request("teach", 1, {"w": torch.zeros(2, dtype=torch.float64)}, {"seed": 3}),
        Request("teach", 1, {"v": torch.zeros(2)}, {"seed": 3}),
        Request("teach", 1, {"w": torch.zeros(2)}, {"seed": 4}),
    ]
    assert len({r.digest() for r in (base, *changes)}) == 1 + len(changes)


def test_a_digest_does_not_depend_on_the_order_of_names():
    first = {"a": torch.ones(1), "b": torch.zeros(1)}
    assert Request(arrays=first).digest() == Request(arrays=dict(reversed(first.items()))).digest()


def test_a_release_of_a_set_gives_the_set_back():
    made = SyntheticSet(torch.rand(2, 1, 3, 3), torch.tensor([0, 1]), torch.rand(2, 2))
    returned = Release(0, made.to_arrays(), ("entry",)).synthetic_set()
    assert returned == made


def test_a_release_of_something_else_is_no_set():
    release = Release(0, {"sum": torch.zeros(1)}, ("entry",))
    with pytest.raises(ValueError, match="the arrays sum are not a synthetic set"):
        release.synthetic_set()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.bool, torch.int64])
def test_every_type_that_a_message_carries_has_a_digest(dtype):
    for value in (torch.ones(2, 3), torch.ones(()), torch.zeros(0, 2)):
        one, other = (Request(arrays={"a": v.to(dtype)}) for v in (value, 1 - value))
        assert (one.digest() == other.digest()) == (value.numel() == 0)
