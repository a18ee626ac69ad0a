"""Whole tiny runs of DataLens: crashes and secure sums."""

from __future__ import annotations

import dataclasses

import pytest
import tiny_runs as tiny
from instruments import Crash, Fuse

from fedsynth.methods.pate.datalens import teacher_store


def test_a_run_that_crashes_at_many_moments_ends_the_same(here, tmp_path, monkeypatch):
    """Teachers saved after every round, the server's state not since the beginning."""
    monkeypatch.setattr(teacher_store, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(teacher_store, "SAVING_INTERVALS", 0)
    whole = tiny.tiny_job("datalens", tmp_path / "whole", "together")
    tiny.release(whole, here)
    job = tiny.tiny_job("datalens", tmp_path / "crashed", "together")
    for moment in (11, 24):
        with pytest.MonkeyPatch.context() as patch:
            Fuse(patch, at=moment)
            with pytest.raises(Crash):
                tiny.release(job, here)
    tiny.release(job, here)
    assert tiny.outputs(job.out) == tiny.outputs(whole.out)


def test_a_secure_sum_of_votes_is_the_ideal_one(here, tmp_path):
    """Through masks that no party's votes can be read from."""
    released = []
    for way in ("ideal", "secagg"):
        job = tiny.tiny_job("datalens", tmp_path / way, "together", {"noise_at": "distributed"})
        job = dataclasses.replace(job, secure_sum=way)
        tiny.release(job, here)
        released.append({k: v for k, v in tiny.outputs(job.out).items() if k.endswith(".npz")})
    assert released[0] == released[1]
