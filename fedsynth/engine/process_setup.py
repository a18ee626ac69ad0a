"""Settings of a worker process: freed memory is kept, and one thread per worker.

The thread count changes the bits of results; every engine pins it to the same value.
"""

from __future__ import annotations

import ctypes
import os
import platform

import torch

_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_MAX = -4
_TOP_PAD_BYTES = 64 << 20
_NEVER_TRIM = 2**31 - 1


def tune_malloc() -> bool:
    """Let glibc keep freed memory instead of handing it back after every large tensor.

    By default glibc maps every block above a threshold anew, and the kernel zeroes each page of it
    at first touch; for activations of a few megabytes that costs as much as the arithmetic.
    Call it before the first large tensor. Safe to repeat. Returns whether it was applied: False
    where the C library is not glibc, where nothing is changed.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    settings = (
        (_M_MMAP_MAX, 0),
        (_M_TRIM_THRESHOLD, _NEVER_TRIM),
        (_M_TOP_PAD, _TOP_PAD_BYTES),
    )
    accepted = [mallopt(option, value) == 1 for option, value in settings]
    return all(accepted)


def pin_threads(n: int = 1) -> None:
    """Use `n` threads for one operation, here and in processes started from here.

    Thread counts change the order of float sums and so the bits of a result.
    """
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(n)
    torch.set_num_threads(n)


def prepare_worker() -> bool:
    """Set up a process before its first computation; returns whether malloc could be tuned."""
    pin_threads(1)
    return tune_malloc()
