"""PSG against the published algorithm, written out, and against its printed noise."""

from __future__ import annotations

import pytest
import torch
from tiny_runs import released_sets
from torch.nn import functional as F

from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import Budget
from fedsynth.data.normalization import Normalizer
from fedsynth.data.records import Records
from fedsynth.experiment.scenario import ScenarioConfig, party_records, scenario_stages
from fedsynth.methods.psg.gradient_matching import PrivateMatchingConfig
from fedsynth.methods.registry import method
from fedsynth.nn.classifiers.convnet import make_convnet
from fedsynth.privacy.accounting.events import flatten, gaussian, poisson, repeated

ALL = {"batch": 1000}  # more than a party has: every record is in every batch


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


def naive_psg(
    cfg: PrivateMatchingConfig, data: Records, classes: list[int], info, key: tuple
) -> torch.Tensor:
    """Algorithm 1 of the paper, without noise and with all records in every batch."""
    scale = Normalizer.standard(info)
    labels = torch.tensor([c for c in classes for _ in range(cfg.spc)])
    start = torch.randn((len(labels), *info.shape), generator=torch_generator(*key, "images"))
    images = (cfg.image_init * start).requires_grad_()
    optimiser = torch.optim.SGD([images], lr=cfg.image_learning_rate, momentum=cfg.image_momentum)
    outer, inner = cfg.outer_inner
    for run in range(cfg.networks):
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
    changes = {
        **ALL,
        "matching_dtype": "float32",
        "runs": 2,
        "outer": 2,
        "inner": 2,
        "batches": 2,
        "clip": 1.0,
    }
    job, sets = released_sets("psg", tmp_path, here, changes, holdout=1900)
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


# The published settings


def test_the_defaults_are_the_published_ones():
    cfg = PrivateMatchingConfig()
    assert (cfg.networks, cfg.batches, cfg.batch, cfg.clip, cfg.width) == (200, 10, 256, 0.1, 128)
    assert (cfg.image_learning_rate, cfg.image_momentum, cfg.net_learning_rate, cfg.updates) == (
        0.1,
        0.5,
        0.01,
        1,
    )


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
        (share,) = method("psg").plan(PrivateMatchingConfig(), stage, budget).parties
        assert share.noise_multiplier == pytest.approx(sigma, rel=5e-4)
        assert share.sampling_rate == 256 / share.records
        once = poisson(share.sampling_rate, gaussian(share.noise_multiplier))
        assert flatten(share.event) == flatten(repeated(once, 20_000))
