"""Masks of secure aggregation: from the whole key, and the arrays they are added to."""

from __future__ import annotations

import base64

import numpy as np
import torch
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

from fedsynth.privacy.secagg.masking import agreed_mask, flat, mask_of, unflat


def test_masks_come_from_the_whole_key():
    """Flower's own generator folds a key into 32 bits, so that 2^32 keys give one mask."""
    one, other = bytes(32), b"\1\0\0\0" * 2 + bytes(24)
    assert np.array_equal(*(pseudo_rand_gen(key, 2**32, [(50,)])[0] for key in (one, other)))
    assert not np.intersect1d(mask_of(one, 50), mask_of(other, 50)).size


def test_a_longer_mask_begins_with_the_shorter_one():
    """Server and party agree whatever block size they draw in."""
    key = bytes(range(32))
    assert np.array_equal(mask_of(key, 100)[:7], mask_of(key, 7))
    assert np.array_equal(agreed_mask(base64.urlsafe_b64encode(key), 7), mask_of(key, 7))


def test_a_mask_added_and_subtracted_leaves_the_numbers():
    """Also where the sum runs over 64 bits, and whatever the order of the names."""
    arrays = {
        "b": torch.tensor([[2**62, -(2**62)], [-1, 0]]),
        "a": torch.tensor([-(2**63), 2**63 - 1]),
    }
    mask = mask_of(bytes(32), 6)
    row = flat(arrays)
    assert np.array_equal(row, flat(dict(reversed(arrays.items()))))
    back = unflat(row + mask - mask, arrays)
    assert list(back) == ["b", "a"]
    assert all(torch.equal(back[name], arrays[name]) for name in arrays)
