"""Epsilons of other units, relations and deltas are named as such and converted from the events."""

from __future__ import annotations

from pathlib import Path

import tiny_runs as tiny
from countings import sgd

from fedsynth.engine.base import Engine
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.calibration import noise_multiplier
from fedsynth.privacy.accounting.events import gaussian
from fedsynth.report.guarantees import Guarantee, Meaning, difference, guarantees, meaning_of
from fedsynth.storage.run_directory import RunDirectory

OURS = Meaning("record", "add_remove", 1e-5)
ONE = Guarantee(OURS, (gaussian(noise_multiplier(gaussian, 1.0, 1e-5)), gaussian(50.0)))


def test_equal_meanings_and_unknown_ones_differ_in_nothing_known() -> None:
    assert difference(ONE, OURS) == ""
    assert difference(ONE, Meaning()) == ""
    assert difference(Guarantee(), OURS) == ""


def test_gaussians_are_converted_by_their_mu() -> None:
    found = difference(ONE, Meaning("record", "replace_one", 1e-5))
    assert found == "relation (add_remove, replace_one): ours is ε = 2.155 there (mu = 0.5361)"
    found = difference(ONE, Meaning("record", "add_remove", 1e-6))
    exact = epsilon(ONE.events[0], 1e-6)
    assert found == f"delta (1e-05, 1e-06): ours is ε = {exact:.4g} there (mu = 0.268)"


def test_samples_are_converted_by_their_profile() -> None:
    event = sgd(0.02, 1.0, 200)
    found = difference(Guarantee(OURS, (event,)), Meaning("record", "replace_one", 1e-6))
    exact = epsilon(event, 1e-6, relation="replace_one")
    assert found == (
        f"relation (add_remove, replace_one), delta (1e-05, 1e-06): ours is ε = {exact:.4g} there"
    )


def test_what_cannot_be_converted_is_said() -> None:
    assert difference(ONE, Meaning("user", "add_remove", 1e-5)) == (
        "unit (record, user): no conversion between units"
    )
    found = difference(Guarantee(OURS), Meaning("record", "replace_one", 1e-5))
    assert found.endswith("not converted, as there is no ledger")
    nothing = Guarantee(Meaning("record", "add_remove", None), ONE.events)
    found = difference(nothing, Meaning("record", "replace_one", None))
    assert found.endswith("not converted, as no delta is known")


def test_meanings_in_words() -> None:
    assert OURS.text == "delta=1e-05, unit record, neighbours: add or remove one"
    assert "not recorded" in Meaning().text
    assert meaning_of({"delta": 1e-3}) == Meaning("record", "add_remove", 1e-3)
    assert meaning_of({"unit": "user", "relation": "replace_one", "delta": 1e-6}) == Meaning(
        "user", "replace_one", 1e-6
    )


def test_a_runs_guarantee_holds_the_events_of_its_ledger(tmp_path: Path, here: Engine) -> None:
    job = tiny.tiny_job("dp_merf", tmp_path / "run")
    run = tiny.release_and_judge([job], here)
    run.write_config({"delta": job.budget.delta})
    found = guarantees(RunDirectory.read(run.path))[job.method, job.budget.epsilon]
    assert found.meaning.delta == job.budget.delta
    assert len(found.events) == 2  # parties
    planned = {epsilon(share.event, 1e-3) for plan in job.plans for share in plan.parties}
    assert {epsilon(event, 1e-3) for event in found.events} == planned
