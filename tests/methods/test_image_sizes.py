"""Plans refuse image sizes that a method's networks cannot handle, before anything is charged."""

from __future__ import annotations

import pytest

from fedsynth.core.errors import UserError
from fedsynth.core.types import Budget, DatasetInfo, PartyInfo, Stage
from fedsynth.methods.registry import method

BUDGET = Budget(10.0, 1e-3)


def stage(height: int, width: int) -> Stage:
    info = PartyInfo(0, 400, {0: 200, 1: 200})
    data = DatasetInfo("odd", (1, height, width), 2, (0.5,), (0.25,))
    return Stage(data, 0, 1, (info,), (0, 1), (0, 1))


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("dp_merf", (30, 30)),
        ("dp_ntk", (28, 30)),
        ("dp_hp", (30, 30)),
        ("psg_prior", (64, 64)),
        ("ndpdc", (28, 32)),
        ("dm", (6, 6)),
    ],
)
def test_an_impossible_size_is_refused_by_the_plan(name, size):
    method_impl = method(name)
    with pytest.raises(UserError, match=f"{size[0]}x{size[1]}"):
        method_impl.plan(method_impl.Config(), stage(*size), BUDGET)


@pytest.mark.parametrize(
    ("name", "settings"),
    [("dp_merf", {}), ("ndpdc", {"iterations": 2}), ("psg_prior", {"runs": 1, "batches": 1})],
)
def test_other_sizes_are_planned(name, settings):
    method_impl = method(name)
    assert (
        method_impl.plan(method_impl.Config(**settings), stage(32, 32), BUDGET).parties[0].bytes_up
        > 0
    )
