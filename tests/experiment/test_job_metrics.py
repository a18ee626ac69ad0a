"""Rows of metrics state what their epsilon means: unit, relation, delta, and for whom it holds."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
import tiny_runs as tiny

from fedsynth.core.enums import Relation
from fedsynth.core.types import Budget
from fedsynth.engine.base import Engine
from fedsynth.experiment.job import Job
from fedsynth.experiment.job_metrics import keyed, privacy_metrics
from fedsynth.privacy.accounting.accountant import epsilon


def job(path: Path, name: str, **changes: object) -> Job:
    """A tiny job of three parties together, under replace-one."""
    found = tiny.tiny_job(name, path, "together", changes)
    budget = Budget(4.0, 1e-4, relation=Relation.REPLACE_ONE)
    return dataclasses.replace(found, budget=budget)


@pytest.mark.parametrize(
    ("placement", "view", "spent_view"),
    [
        ("party", "server", "server"),
        ("aggregate", "public", "server"),
        ("distributed",) + ("server that sees sums of 3 or more shares",) * 2,
    ],
)
def test_a_row_names_the_observer(placement, view, spent_view, tmp_path):
    some = job(tmp_path, "dp_merf_joint", noise_at=placement)
    rows = {row.metric: row for row in keyed(some, 0, {"accuracy": 0.5, "epsilon_pld": 4.0})}
    assert rows["accuracy"][:6] == ("dp_merf_joint", 4.0, 0, 1, "accuracy", 0.5)
    assert rows["accuracy"][6:] == ("record", "replace_one", 1e-4, view)
    assert rows["epsilon_pld"].view == spent_view


def test_the_published_count_keeps_the_neighbours_of_its_paper(tmp_path):
    for name, relation in (("psg", "add_remove"), ("dp_merf", "replace_one")):
        (row,) = keyed(job(tmp_path, name), 0, {"epsilon_paper": 1.0})
        assert row.relation == relation


def test_spending_is_counted_for_the_relation_of_the_budget(tmp_path: Path, here: Engine) -> None:
    some = job(tmp_path / "run", "dp_merf")
    tiny.release(some, here)
    found = privacy_metrics(some, 0)
    event = some.plan(0).parties[0].event
    assert found["epsilon_pld"] == epsilon(event, 1e-4, relation="replace_one")
    assert found["epsilon_rdp"] == epsilon(event, 1e-4, "rdp", "replace_one")
    assert found["epsilon_pld"] == pytest.approx(4.0, rel=1e-3)
    disclosing = job(tmp_path / "other", "dp_merf_joint", noise_at="aggregate")
    tiny.release(disclosing, here)
    assert math.isinf(privacy_metrics(disclosing, 0)["epsilon_pld"])
