"""Report data holds the planned privacy of one seed and describes the evaluation."""

from __future__ import annotations

from dataclasses import replace

from fedsynth.core.enums import ViewKind
from fedsynth.core.plan import SERVER_VIEW, PartyPlan, View
from fedsynth.experiment.config import resolve
from fedsynth.experiment.evaluation_data import HOLD_OUT, TEST_DATA
from fedsynth.experiment.experiment import Experiment
from fedsynth.privacy.accounting.events import gaussian
from fedsynth.privacy.secagg.distributed_noise import weakened
from fedsynth.report.report_data import (
    build_report_data,
    evaluation_text,
    exchange_note,
    privacy_rows,
    published_event,
)

KEYS = {
    "scenario": "split_mnist",
    "data": "shapes",
    "preset": "smoke",
    "method": ["ldpdc", "upper_bound"],
    "epsilon": [1, 10],
    "accounting": "rdp",
}


def test_privacy_is_that_of_the_first_seed() -> None:
    config = resolve({**KEYS, "seed": [3, 4]})
    data = build_report_data(Experiment.of(config, "nowhere"), "a command", ["a note"])
    private = [row for row in data.privacy if row.method == "ldpdc"]
    assert len(private) == 2 * 5  # two budgets, five stages with one party each
    for row in private:
        assert row.view == "server"
        assert row.epsilon_pld is not None
        assert row.epsilon_pld <= row.epsilon * (1 + 1e-6)
    assert [(method.name, method.private) for method in data.methods] == [
        ("ldpdc", True),
        ("upper_bound", False),
    ]
    assert (data.command, data.notes, data.accounting) == ("a command", ("a note",), "rdp")


def test_what_is_tested_on_is_that_of_the_scenario() -> None:
    for holdout, tested in ((0, TEST_DATA), (100, HOLD_OUT)):
        config = resolve({**KEYS, "holdout": holdout})
        data = build_report_data(Experiment.of(config, "nowhere"), "a command", [])
        assert data.tested == tested
        assert tested.name in data.setting


def test_the_evaluation_text_names_protocol_classifiers_and_caps() -> None:
    keys = {"protocol": "P", "classifier": ["mlp", "lenet"], "nets": 2, "max_images": 5000}
    text = evaluation_text(resolve({**KEYS, "evaluation": keys}))
    assert text.startswith("evaluated with 2 fresh mlp, lenet nets under protocol P")
    assert "at most 5,000 image passes" in text


def test_public_counts_are_said_to_make_an_exchange_of_a_removal() -> None:
    keys = {**KEYS, "method": ["dp_merf", "upper_bound"], "accounting": "pld"}
    experiment = Experiment.of(resolve(keys), "nowhere")
    note = exchange_note(experiment.first_seed_jobs)
    assert "differ by an exchange of a record" in note
    assert "the epsilon 1 of dp_merf is 2.155, 10 of dp_merf is 24.39;" in note
    rows = [row for row in privacy_rows(experiment.first_seed_jobs) if row.method == "dp_merf"]
    assert all(row.epsilon_exchange > 2 * row.epsilon for row in rows)
    replaced = Experiment.of(resolve({**keys, "relation": "replace_one"}), "nowhere")
    assert exchange_note(replaced.first_seed_jobs) == ""
    for row in privacy_rows(replaced.first_seed_jobs):
        if row.method == "dp_merf":
            assert row.epsilon_exchange == row.epsilon_pld <= row.epsilon


def test_the_published_count_of_colluding_parties_is_that_of_the_view() -> None:
    """Also where the events of several views are equal."""
    event, paper = gaussian(3.0), gaussian(2.0)
    two, three = (View(ViewKind.COLLUDING, colluding=n) for n in (2, 3))
    share = PartyPlan(
        0,
        9,
        event,
        shares=4,
        paper_event=paper,
        views={SERVER_VIEW: event, two: event, three: event},
    )
    assert published_event(share, SERVER_VIEW) == paper
    assert published_event(share, two) == weakened(paper, 4, 2)
    assert published_event(share, three) == weakened(paper, 4, 3)
    assert published_event(replace(share, paper_event=None), two) == event
