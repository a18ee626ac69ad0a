"""Tests of joint DP-SGD against a plain loop over pooled records, and of the size of its noise."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import tiny_runs as tiny
import torch
from torch.nn import functional as F

from fedsynth.core.outcomes import ReleasedModel
from fedsynth.data.normalization import Normalizer
from fedsynth.experiment.scenario import party_records, scenario_stages
from fedsynth.nn.classifiers.convnet import make_convnet
from fedsynth.privacy.mechanisms import gradients
from fedsynth.storage.run_directory import RunDirectory


def outcome(folder: Path, engine, scenario: str = "together", **changes):
    """The job and its last model."""
    job = tiny.tiny_job("dp_sgd_joint", folder / "run", scenario, changes)
    tiny.release(job, engine)
    last = RunDirectory(Path(job.out)).releases.load(job.name, len(scenario_stages(job.scenario)))
    assert isinstance(last, ReleasedModel)
    return job, last


@pytest.mark.usefixtures("no_noise")
def test_without_clipping_and_noise_it_equals_gradient_descent_on_all_records(here, tmp_path):
    """Full batches over three parties, three steps."""
    job, model = outcome(tmp_path, here, batch=1000, epochs=3, clip=1e6, learning_rate=0.5)
    (stage,) = scenario_stages(job.scenario)
    pooled = [party_records(job.scenario, info.party) for info in stage.parties]
    images = Normalizer.standard(stage.data).to_network(torch.cat([r.pixels() for r in pooled]))
    labels = torch.cat([r.labels for r in pooled])
    net = make_convnet(4, stage.data, 10, job.seed, "dp_sgd_joint", "model")
    sgd = torch.optim.SGD(net.parameters(), lr=0.5)
    for _ in range(3):
        sgd.zero_grad()
        F.cross_entropy(net(images), labels).backward()
        sgd.step()
    for name, value in net.state_dict().items():
        torch.testing.assert_close(model.state[name], value, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("settings", "relative_size"),
    [
        ({"noise_at": "party"}, math.sqrt(3)),
        ({"noise_at": "aggregate"}, 1.0),
        ({"noise_at": "distributed"}, 1.0),
        ({"noise_at": "party", "topk": "norm", "keep": 0.64}, 0.8 * math.sqrt(3)),
        ({"noise_at": "aggregate", "topk": "norm", "keep": 0.64}, 0.8),
        ({"noise_at": "distributed", "topk": "dimension", "keep": 0.64}, 1.0),
    ],
    ids=str,
)
def test_a_step_of_noise_alone_has_the_stated_size(
    here, tmp_path, monkeypatch, settings, relative_size
):
    """The standard deviation is learning_rate sigma bound / b, times sqrt(K) where each party adds
    all noise; `topk=norm` has a smaller bound and the same multiplier."""

    def zeros(model: torch.nn.Module, *_, **__) -> list[torch.Tensor]:
        return [torch.zeros_like(p) for p in model.parameters()]

    monkeypatch.setattr(gradients, "clipped_gradient_sum", zeros)
    monkeypatch.setattr(gradients, "sparse_gradient_sum", zeros)
    changes = {"width": 16, "batch": 1000, "epochs": 1, "clip": 0.3, "learning_rate": 0.7}
    job, model = outcome(tmp_path, here, **settings, **changes)
    party_plan = job.plan(0).parties[0]
    net = make_convnet(
        16, scenario_stages(job.scenario)[0].data, 10, job.seed, "dp_sgd_joint", "model"
    )
    change = torch.cat([(model.state[n] - v).flatten() for n, v in net.state_dict().items()])
    size = 0.7 * party_plan.noise_multiplier * 0.3 / 400
    assert change.std().item() == pytest.approx(size * relative_size, rel=0.05)


def test_sampling_rate_and_steps_are_those_of_the_pooled_records(tmp_path):
    job = tiny.tiny_job("dp_sgd_joint", tmp_path, "together", {"batch": 40, "epochs": 2})
    shares = job.plan(0).parties
    assert {party_plan.sampling_rate for party_plan in shares} == {
        40 / sum(s.records for s in shares)
    }
    assert {party_plan.steps for party_plan in shares} == {2 * 10}


def test_a_stage_starts_from_the_model_of_the_stage_before(here, tmp_path):
    """With a tiny learning rate the model stays that of the first stage."""
    first = make_convnet(4, (1, 28, 28), 10, 0, "dp_sgd_joint", "model")
    _, model = outcome(tmp_path, here, scenario="in_turn", learning_rate=1e-12)
    for name, value in first.state_dict().items():
        torch.testing.assert_close(model.state[name], value)
