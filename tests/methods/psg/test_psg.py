"""PSG and its relatives against the published algorithm, written plainly, and its printed noise."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tiny_runs as tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import Budget
from fedsynth.data.normalization import Normalizer
from fedsynth.experiment.scenario import ScenarioConfig, party_records, scenario_stages
from fedsynth.methods.psg.gradient_matching import (
    MatchedImages,
    MatchingConfig,
    other_classes,
    row_cosine_distance,
)
from fedsynth.methods.psg.joint import PSGJointConfig
from fedsynth.methods.psg.psg import PSGConfig
from fedsynth.methods.registry import method
from fedsynth.nn.classifiers.convnet import make_convnet
from fedsynth.privacy.accounting.events import flatten, gaussian, poisson, repeated
from fedsynth.privacy.mechanisms import gradients as gradient_mechanisms
from fedsynth.privacy.party_data import Records
from fedsynth.storage.run_directory import RunDirectory

ALL = {"batch": 1000}  # more than a party has: every record is in every batch


def released(name: str, folder: Path, engine: Any, changes: Mapping[str, Any], **world: Any):
    """The outcomes of all stages of a tiny job."""
    job = tiny.tiny_job(name, folder / "run", changes=changes)
    job = dataclasses.replace(job, scenario=dataclasses.replace(job.scenario, **world))
    tiny.release(job, engine)
    run = RunDirectory(Path(job.out))
    return job, [
        run.load_release(job.name, s + 1) for s in range(len(scenario_stages(job.scenario)))
    ]


# The matching loss


def naive_distance(real: list[torch.Tensor], synthetic: list[torch.Tensor]) -> float:
    total = 0.0
    for a, b in zip(real, synthetic, strict=True):
        if a.dim() > 1:
            for row_a, row_b in zip(a, b, strict=True):
                u, v = row_a.flatten().double(), row_b.flatten().double()
                total += float(1 - (u @ v) / (u.norm() * v.norm() + 1e-6))
    return total


def gradients(seed: int) -> list[torch.Tensor]:
    net = make_convnet(128, (1, 28, 28), 10, "shapes only")
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(p.shape, generator=generator) for p in net.parameters()]


@given(st.integers(0, 1000), st.floats(0.01, 100))
@settings(max_examples=5, deadline=None)
def test_the_distance_is_the_sum_over_rows_and_knows_no_scale(seed, factor):
    real, synthetic = gradients(seed), gradients(seed + 1)
    found = float(row_cosine_distance(real, synthetic))
    assert found == pytest.approx(naive_distance(real, synthetic), rel=1e-4)
    scaled = float(row_cosine_distance([factor * g for g in real], synthetic))
    assert scaled == pytest.approx(found, rel=1e-4)


def test_equal_gradients_are_at_no_distance_and_opposite_ones_at_two_a_row():
    real = gradients(0)
    assert float(row_cosine_distance(real, real)) == pytest.approx(0, abs=1e-2)
    rows = 128 * 3 + 10
    assert float(row_cosine_distance(real, [-g for g in real])) == pytest.approx(2 * rows, rel=1e-4)


# The loop


def naive_clipped_mean(net: torch.nn.Module, data: Records, scale: Normalizer, clip: float):
    """One record after another."""
    total = [torch.zeros_like(p) for p in net.parameters()]
    for image, label in zip(data.pixels(), data.labels, strict=True):
        loss = F.cross_entropy(net(scale.to_network(image[None])), label[None])
        gradients_ = torch.autograd.grad(loss, list(net.parameters()))
        norm = torch.cat([s.flatten() for s in gradients_]).norm()
        total = [
            t + s * min(1.0, clip / float(norm)) for t, s in zip(total, gradients_, strict=True)
        ]
    return [t / len(data.labels) for t in total]


def naive_psg(cfg: PSGConfig, data: Records, classes: list[int], info, key: tuple) -> torch.Tensor:
    """Algorithm 1 of the paper, without noise and with all records in every batch."""
    scale = Normalizer.standard(info)
    labels = torch.tensor([c for c in classes for _ in range(cfg.spc)])
    start = torch.randn((len(labels), *info.shape), generator=torch_generator(*key, "images"))
    images = (cfg.image_init * start).requires_grad_()
    optimiser = torch.optim.SGD([images], lr=cfg.image_learning_rate, momentum=cfg.image_momentum)
    outer, inner = cfg.outer_inner
    for run in range(cfg.runs):
        net = make_convnet(cfg.width, info, info.classes, *key, "network", run)
        for t in range(outer):
            for _ in range(cfg.batches):
                real = naive_clipped_mean(net, data, scale, cfg.clip)
                loss = F.cross_entropy(net(images), labels)
                mine = torch.autograd.grad(loss, list(net.parameters()), create_graph=True)
                distance = torch.zeros(())
                for a, b in zip(real, mine, strict=True):
                    if a.dim() > 1:
                        cosines = F.cosine_similarity(a.flatten(1), b.flatten(1), dim=1)
                        distance = distance + (1 - cosines).sum()
                optimiser.zero_grad()
                distance.backward(inputs=[images])
                optimiser.step()
            if t < outer - 1:
                train = torch.optim.SGD(net.parameters(), lr=cfg.net_learning_rate)
                generator = torch_generator(*key, "inner", run, t)
                for _ in range(inner):
                    order = torch.randperm(len(labels), generator=generator)
                    train.zero_grad()
                    F.cross_entropy(net(images.detach()[order]), labels[order]).backward()
                    train.step()
    return scale.to_pixels(images.detach())


@pytest.mark.usefixtures("no_noise")
def test_psg_is_the_published_algorithm(here, tmp_path):
    """Clipped batches, momentum that outlives networks, inner training, R T K real gradients."""
    changes = {**ALL, "runs": 2, "outer": 2, "inner": 2, "batches": 2, "clip": 1.0}
    job, sets = released("psg", tmp_path, here, changes, holdout=1900)
    for stage, outcome in enumerate(sets):
        this_stage = scenario_stages(job.scenario)[stage]
        expected = naive_psg(
            job.config,
            party_records(job.scenario, stage),
            list(this_stage.classes),
            this_stage.data,
            (job.seed, "psg", stage, stage),
        )
        torch.testing.assert_close(outcome.images, expected, rtol=1e-3, atol=1e-3)
        assert outcome.labels.tolist() == [c for c in this_stage.classes for _ in range(2)]
        assert job.plan(stage).parties[0].steps == 2 * 2 * 2


@pytest.mark.usefixtures("no_noise")
def test_gradient_matching_is_psg_without_clipping_and_noise(here, tmp_path):
    """Its mean gradients differ from PSG's sums by a factor, which the distance does not know."""
    _, plain = released("gradient_matching", tmp_path / "plain", here, ALL)
    _, private = released("psg", tmp_path / "private", here, {**ALL, "clip": 1e6})
    for a, b in zip(plain, private, strict=True):
        torch.testing.assert_close(a.images, b.images, rtol=1e-3, atol=1e-3)


@pytest.mark.usefixtures("no_noise")
def test_joint_psg_cannot_tell_how_records_are_spread(here, tmp_path):
    """The sum over three parties is the sum over one that holds everything."""
    one = {"partition": "single", "parties": 1, "stages": "together"}
    three = {"partition": "iid", "parties": 3, "stages": "together"}
    _, (alone,) = released("psg_joint", tmp_path / "one", here, ALL, **one)
    _, (shared,) = released("psg_joint", tmp_path / "three", here, ALL, **three)
    torch.testing.assert_close(alone.images, shared.images, rtol=1e-3, atol=1e-3)
    assert torch.equal(alone.labels, shared.labels)


@pytest.mark.parametrize(("noise_at", "factor"), [("party", 3**0.5), ("aggregate", 1.0)])
def test_the_noise_of_three_parties_adds_up_and_that_of_a_curator_does_not(
    noise_at, factor, here, tmp_path, monkeypatch
):
    """With gradients of zero, what the images are matched to is noise alone."""
    met: list[torch.Tensor] = []

    def zeros(model: torch.nn.Module, *_: Any, **__: Any) -> list[torch.Tensor]:
        return [torch.zeros_like(p) for p in model.parameters()]

    def match(_: MatchedImages, __: torch.nn.Module, real: list[torch.Tensor]) -> None:
        met.append(torch.cat([g.flatten() for g in real]))

    monkeypatch.setattr(gradient_mechanisms, "clipped_gradient_sum", zeros)
    monkeypatch.setattr(MatchedImages, "match", match)
    together = {"partition": "iid", "parties": 3, "stages": "together"}
    job, _ = released("psg_joint", tmp_path, here, {"noise_at": noise_at, "clip": 0.5}, **together)
    plan = job.plan(0)
    expected = plan.parties[0].noise_multiplier * 0.5 * factor
    assert torch.cat(met).std().item() == pytest.approx(expected, rel=0.03)
    assert len(met) == plan.rounds == plan.parties[0].steps


def test_all_classes_in_the_inner_training_are_old_images_and_noise():
    """inner_set=all: what earlier stages released, and noise for the classes still to come."""
    world = tiny.WORLDS["in_turn"]
    cfg = PSGConfig(spc=3, inner_set="all", image_init=0.5)
    stage = scenario_stages(world)[1]
    matched = MatchedImages(cfg, stage.data, stage.classes, ("key",))
    earlier = SyntheticSet(torch.rand(4, 1, 28, 28), torch.tensor([5, 5, 6, 6]))
    known = {"images": earlier.images, "labels": earlier.labels}
    others = other_classes(cfg, stage.data, matched, known)
    assert torch.equal(others.images[:4], earlier.images)
    future = sorted(set(range(10)) - {5, 6} - set(stage.classes))
    assert others.labels[4:].tolist() == [c for c in future for _ in range(3)]
    noise = Normalizer.standard(stage.data).to_network(others.images[4:])
    assert noise.std().item() == pytest.approx(0.5, rel=0.1)
    own = dataclasses.replace(cfg, inner_set="own")
    assert other_classes(own, stage.data, matched, known) is None


# The published settings


def test_the_defaults_are_the_published_ones():
    cfg = PSGConfig()
    assert (cfg.runs, cfg.batches, cfg.batch, cfg.clip, cfg.width) == (200, 10, 256, 0.1, 128)
    assert (cfg.image_learning_rate, cfg.image_momentum, cfg.net_learning_rate, cfg.updates) == (
        0.1,
        0.5,
        0.01,
        1,
    )
    published = {1: (1, 1), 10: (10, 50), 20: (20, 25), 50: (50, 10)}
    assert {spc: MatchingConfig(spc=spc).outer_inner for spc in published} == published
    assert PSGJointConfig().noise_at == "party"


@pytest.mark.parametrize(
    ("data", "epsilon", "printed"),
    [
        ("mnist", 10.0, (1.8354, 1.6675, 1.7772, 1.7390, 1.7357)),
        ("mnist", 1.0, (12.949, 11.568, 12.473, 12.158, 12.131)),
        ("fashion_mnist", 10.0, (1.7488,) * 5),
        ("fashion_mnist", 1.0, (12.239,) * 5),
    ],
)
def test_the_noise_of_the_continual_setting_is_the_printed_one(data, epsilon, printed):
    """20,000 real gradients a stage, calibrated by the published convention."""
    for stage, sigma in zip(
        scenario_stages(ScenarioConfig(data=data, parties=5)), printed, strict=True
    ):
        budget = Budget(epsilon, 1e-5, accounting="rdp_improved")
        (share,) = method("psg").plan(PSGConfig(), stage, budget).parties
        assert share.noise_multiplier == pytest.approx(sigma, rel=5e-4)
        assert share.sampling_rate == 256 / share.records
        once = poisson(share.sampling_rate, gaussian(share.noise_multiplier))
        assert flatten(share.event) == flatten(repeated(once, 20_000))
