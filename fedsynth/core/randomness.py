"""Public randomness, keyed by its purpose and never by the process that computes it.

Every stream is a function of (seed, party, stage, round, purpose), so a result does not depend on
the engine, on the number of workers or on where a run was resumed. DP noise and the choice of
records are *not* public randomness: they come from `privacy.noise`, and nothing here touches them.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # imported where it is used, so that listing data sets is quick
    import torch

_global_generator = threading.RLock()


def key(*parts: object) -> int:
    """A 63-bit seed for this tuple of parts, the same on every machine."""
    text = "\x1f".join(str(p) for p in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def torch_generator(*parts: object) -> torch.Generator:
    """A CPU generator for this key; draw on the CPU and move, so that devices agree."""
    import torch

    return torch.Generator().manual_seed(key(*parts))


def numpy_generator(*parts: object) -> np.random.Generator:
    """A numpy generator for this key."""
    return np.random.default_rng(key(*parts))


@contextlib.contextmanager
def default_seed(*parts: object) -> Iterator[None]:
    """Run a block that draws from torch's global generator (module initialisation) under this key.

    The global state is put back afterwards, so the block neither sees nor leaves a trace;
    a lock keeps threads that do the same apart.
    """
    import torch

    with _global_generator, torch.random.fork_rng(devices=[]):
        torch.manual_seed(key(*parts))
        yield
