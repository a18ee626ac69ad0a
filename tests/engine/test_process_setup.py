"""Settings of a worker, looked at from inside fresh processes."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def in_fresh_process(code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_one_thread_here_and_in_children() -> None:
    code = (
        "import os, torch; from fedsynth.engine.process_setup import prepare_worker;"
        "prepare_worker();"
        "print(torch.get_num_threads(), os.environ['OMP_NUM_THREADS'])"
    )
    assert in_fresh_process(code) == "1 1"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the setting is glibc's")
def test_freed_memory_is_kept_and_not_mapped_anew() -> None:
    """Page faults of five large tensors, once warm: thousands by default, next to none tuned."""
    code = """
import resource, torch
from fedsynth.engine.process_setup import tune_malloc
{call}
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        torch.ones(12_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
[faults() for _ in range(3)]
print(faults())
"""
    plain = int(in_fresh_process(code.format(call="")))
    tuned = int(in_fresh_process(code.format(call="assert tune_malloc() and tune_malloc()")))
    assert plain > 5 * 1000
    assert tuned < plain / 20


def test_another_c_library_is_left_alone() -> None:
    code = (
        "import platform; platform.libc_ver = lambda: ('musl', '1');"
        "from fedsynth.engine.process_setup import tune_malloc; print(tune_malloc())"
    )
    assert in_fresh_process(code) == "False"
