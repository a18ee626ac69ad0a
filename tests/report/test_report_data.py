"""Report data holds the planned privacy of one seed and describes the evaluation."""

from __future__ import annotations

from fedsynth.experiment.config import resolve
from fedsynth.experiment.experiment import Experiment
from fedsynth.report.report_data import build_report_data, evaluation_text

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


def test_the_evaluation_text_names_protocol_classifiers_and_caps() -> None:
    keys = {"protocol": "P", "classifier": ["mlp", "lenet"], "nets": 2, "max_images": 5000}
    text = evaluation_text(resolve({**KEYS, "evaluation": keys}))
    assert text.startswith("evaluated with 2 fresh mlp, lenet nets under protocol P")
    assert "at most 5,000 image passes" in text
