"""Masks of secure aggregation, computed by parties and server alike."""

from __future__ import annotations

import base64

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric import ec

from fedsynth.core.errors import UserError
from fedsynth.core.messages import Arrays
from fedsynth.privacy.noise import NoiseStream

Keys = tuple[bytes, bytes]  # the two public keys of a party
CURVE = ec.SECP256R1()  # 128 bits, as the ciphers behind it; 16 times as fast as Flower's P-384
KEY_BYTES = 32  # of a private key of the curve


class OutOfTurn(UserError):
    """A request that does not follow from what this party has done so far in the protocol."""


def mask_of(key: bytes, count: int) -> np.ndarray:
    """A mask: uniform on 64 bits, from 32 secret bytes that are used for nothing else."""
    return NoiseStream(key).words(count)


def agreed_mask(agreed: bytes, count: int) -> np.ndarray:
    """The mask of a key that two parties agreed on, as Flower hands it over."""
    return mask_of(base64.urlsafe_b64decode(agreed), count)


def flat(arrays: Arrays) -> np.ndarray:
    """All numbers (int64) in the order of their names, modulo 2^64."""
    rows = [arrays[name].reshape(-1).numpy().view(np.uint64) for name in sorted(arrays)]
    return np.concatenate(rows)


def unflat(total: np.ndarray, like: Arrays) -> dict[str, torch.Tensor]:
    """The arrays again, in the form of `like`."""
    arrays, start = {}, 0
    for name in sorted(like):
        end = start + like[name].numel()
        values = torch.from_numpy(total[start:end].view(np.int64).copy())
        arrays[name] = values.reshape(like[name].shape)
        start = end
    return {name: arrays[name] for name in like}
