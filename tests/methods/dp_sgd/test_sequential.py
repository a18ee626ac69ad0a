"""Tests of DP-SGD fine-tuning against plain loops, and of its published noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny_runs as tiny
import torch
from torch.nn import functional as F

from fedsynth.core.outcomes import ReleasedModel
from fedsynth.core.randomness import default_seed
from fedsynth.core.types import Budget
from fedsynth.data.normalization import Normalizer
from fedsynth.experiment.evaluate import evaluate_classifier
from fedsynth.experiment.scenario import ScenarioConfig, party_records, scenario_stages
from fedsynth.experiment.scenario import test_records as records_of_test
from fedsynth.methods.dp_sgd.common import PrivateSGDConfig
from fedsynth.methods.registry import method
from fedsynth.nn.classifiers.registry import classifier
from fedsynth.privacy.mechanisms import gradients
from fedsynth.storage.run_directory import RunDirectory


def models(folder: Path, engine: Any, changes: dict[str, Any], scenario: str = "in_turn"):
    """The models after each stage of a tiny job."""
    job = tiny.tiny_job("dp_sgd", folder / "run", scenario, changes)
    tiny.release(job, engine)
    run = RunDirectory(Path(job.out))
    released = [
        run.releases.load(job.name, stage + 1)
        for stage in range(len(scenario_stages(job.scenario)))
    ]
    assert all(isinstance(model, ReleasedModel) for model in released)
    return job, released


@pytest.mark.usefixtures("no_noise")
def test_without_clipping_and_noise_it_is_plain_gradient_descent(here, tmp_path):
    """Party after party, full batches, one step per epoch; on a table of a linear layer."""
    changes = {"batch": 1000, "epochs": 3, "clip": 1e6, "learning_rate": 0.5}
    networks = {"in_turn": "convnet", "together": "convnet", "table": "linear"}
    for scenario, network in networks.items():
        job, released = models(tmp_path / scenario, here, changes, scenario)
        this_stage = scenario_stages(job.scenario)[0]
        assert {model.network for model in released} == {network}
        with default_seed(job.seed, "dp_sgd", "model"):
            net = classifier(network, this_stage.data.shape, this_stage.data.classes, 4)
        scale = Normalizer.standard(this_stage.data)
        sgd = torch.optim.SGD(net.parameters(), lr=0.5)
        for stage, model in enumerate(released):
            for info in scenario_stages(job.scenario)[stage].parties:
                records = party_records(job.scenario, info.party)
                for _ in range(3):
                    sgd.zero_grad()
                    logits = net(scale.to_network(records.pixels()))
                    F.cross_entropy(logits, records.labels).backward()
                    sgd.step()
            for name, value in net.state_dict().items():
                torch.testing.assert_close(model.state[name], value, rtol=1e-3, atol=1e-4)


def test_a_step_of_noise_alone_has_the_stated_size(here, tmp_path, monkeypatch):
    """The standard deviation is learning_rate sigma C / b, with b the expected batch."""

    def zeros(model: torch.nn.Module, *_: Any, **__: Any) -> list[torch.Tensor]:
        return [torch.zeros_like(p) for p in model.parameters()]

    monkeypatch.setattr(gradients, "clipped_gradient_sum", zeros)
    changes = {"width": 16, "batch": 64, "epochs": 2, "clip": 0.3, "learning_rate": 0.7}
    job, (first, second) = models(tmp_path, here, changes)
    (party_plan,) = job.plan(1).parties
    assert party_plan.steps == 2 * (party_plan.records // 64)
    change = torch.cat([(second.state[n] - v).flatten() for n, v in first.state.items()])
    expected = 0.7 * party_plan.noise_multiplier * 0.3 / 64 * party_plan.steps**0.5
    assert change.std().item() == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(
    ("data", "epochs", "epsilon", "published"),
    [
        ("mnist", 10, 1.0, (2.1286, 2.0202, 2.0807, 2.0720, 2.0682)),
        ("mnist", 10, 10.0, (0.6485, 0.6359, 0.6431, 0.6419, 0.6415)),
        ("mnist", 5, 1.0, (1.6487, 1.5732, 1.6160, 1.6089, 1.6063)),
        ("mnist", 5, 10.0, (0.5928, 0.5829, 0.5886, 0.5876, 0.5873)),
        ("fashion_mnist", 10, 1.0, (2.0658,) * 5),
        ("fashion_mnist", 5, 10.0, (0.5872,) * 5),
    ],
)
def test_the_noise_is_the_published_one(data, epochs, epsilon, published):
    steps_per_epoch = {"mnist": (44, 49, 45, 47, 47), "fashion_mnist": (46,) * 5}[data]
    for stage, sigma, steps in zip(
        scenario_stages(ScenarioConfig(data=data, parties=5)),
        published,
        steps_per_epoch,
        strict=True,
    ):
        budget = Budget(epsilon, 1e-5, accounting="rdp_improved")
        (party_plan,) = (
            method("dp_sgd").plan(PrivateSGDConfig(epochs=epochs), stage, budget).parties
        )
        assert party_plan.steps == epochs * steps
        assert party_plan.noise_multiplier == pytest.approx(sigma, abs=1.1e-4)


def test_another_network_is_trained_released_and_read_again(here, tmp_path):
    job, (first, second) = models(tmp_path, here, {"network": "opacus_cnn", "epochs": 2})
    assert (first.network, second.network) == ("opacus_cnn", "opacus_cnn")
    result = evaluate_classifier(job.text(), 1, 0)
    assert (result.classifier, result.protocol) == ("opacus_cnn", "none")
    this_stage = scenario_stages(job.scenario)[1]
    net = classifier("opacus_cnn", this_stage.data.shape, this_stage.data.classes)
    net.load_state_dict(dict(second.state))
    test = records_of_test(job.scenario)
    outputs = net(Normalizer.standard(this_stage.data).to_network(test.pixels()))
    assert result.accuracy == (outputs.argmax(1) == test.labels).double().mean()


def test_the_defaults_are_the_published_ones():
    cfg = PrivateSGDConfig()
    assert (cfg.epochs, cfg.batch, cfg.clip, cfg.learning_rate, cfg.width) == (
        10,
        256,
        0.1,
        0.01,
        128,
    )
