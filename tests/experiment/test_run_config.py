"""The keys of a run: what a resumed run may change, and that every key has a sentence."""

from __future__ import annotations

import dataclasses

import pytest

from fedsynth.api.launch import RESUMABLE
from fedsynth.core.settings import build
from fedsynth.experiment.run_config import RunConfig, continued


def test_a_resumed_run_changes_keys_of_the_run_alone() -> None:
    keys = {each.name for each in dataclasses.fields(RunConfig)}
    assert set(RESUMABLE) - {"data_dir"} <= keys
    assert not set(RESUMABLE) & {"epsilon", "delta", "unit", "relation", "seed", "accounting"}


def test_the_defaults_are_private_ones() -> None:
    run = build(RunConfig, {})
    assert (run.unit, run.relation, run.accounting) == ("record", "add_remove", "pld")
    assert run.noise_seed is None
    assert run.ray_tools == ()


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ({}, {"seed": [0], "address": "auto"}),
        ({"engine": "ray"}, {"seed": [0], "address": "auto"}),
        ({"engine": "inprocess"}, {"seed": [0]}),
    ],
)
def test_a_run_goes_on_without_the_tools_and_the_cluster_of_its_former_ray(words, left):
    """It could be neither resumed nor evaluated in one process otherwise."""
    assert continued({"seed": [0], "address": "auto", "ray_tools": ["timeline"]}, words) == left
