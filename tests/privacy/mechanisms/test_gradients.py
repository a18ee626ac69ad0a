"""Gradients of any loss of its own: against a naive loop, and class by class."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from guarded import guard, private
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from fedsynth.core.randomness import default_seed
from fedsynth.data.records import Records
from fedsynth.nn.gan.mlp import mlp_discriminator, rows_with_labels
from fedsynth.privacy.accounting.events import from_json, gaussian, one_part, poisson
from fedsynth.privacy.ledger import read_entries
from fedsynth.privacy.mechanisms.gradients import ClippedGradientSum
from fedsynth.privacy.subsets import ClassSubset


def records(n: int, seed: int = 0) -> Records:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (n, 1, 3, 3), generator=generator, dtype=torch.uint8)
    return Records(images, torch.arange(n) % 3)


def net() -> nn.Sequential:
    with default_seed("net"):
        return mlp_discriminator(9 + 3, (5,))


def loss(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.softplus(-scores).squeeze(1) * (1 + labels)


def inputs(pixels: torch.Tensor, names: torch.Tensor) -> torch.Tensor:
    return rows_with_labels(pixels, names, 3)


def answer(path: Path, data: Records, call: int = 0, **terms) -> list[torch.Tensor]:
    terms = {"clip": 0.1, "noise_multiplier": 1e-9, "sampling_rate": 1.0, **terms}
    mechanism = ClippedGradientSum(model=net(), inputs=inputs, loss=loss, **terms)
    return guard(path).apply(mechanism, private(data, path), call=call)


def naive(data: Records, clip: float) -> list[torch.Tensor]:
    model = net().double()
    sums = [torch.zeros_like(p) for p in model.parameters()]
    for image, label in zip(data.pixels().double(), data.labels, strict=True):
        score = model(inputs(image[None], label[None]))
        slopes = torch.autograd.grad(loss(score, label[None]).sum(), list(model.parameters()))
        norm = math.sqrt(sum(float((s**2).sum()) for s in slopes))
        sums = [a + s * min(1.0, clip / norm) for a, s in zip(sums, slopes, strict=True)]
    return sums


@given(st.integers(0, 1000), st.sampled_from([0.01, 0.3, 100.0]), st.sampled_from([None, 0, 2]))
@settings(max_examples=15, deadline=None)
def test_the_sum_is_the_naive_one_over_all_records_or_those_of_a_class(
    tmp_path_factory, seed, clip, name
):
    data = records(8, seed)
    subset = None if name is None else ClassSubset(name, 3)
    found = answer(tmp_path_factory.mktemp("g"), data, clip=clip, subset=subset)
    if name is not None:
        chosen = data.labels == name
        data = Records(data.images[chosen], data.labels[chosen])
    for got, expected in zip(found, naive(data, clip), strict=True):
        # float32: one rounding of a record's gradient, which is at most `clip` long
        torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=max(1e-6, 1e-7 * clip))


def test_noise_has_the_promised_scale_and_is_there_without_records(tmp_path):
    terms = {"clip": 0.5, "noise_multiplier": 3.0, "sampling_rate": 0.3}
    draws = [answer(tmp_path, records(0), call=i, **terms) for i in range(60)]
    noise = torch.cat([s.flatten() for draw in draws for s in draw])
    assert noise.std().item() == pytest.approx(1.5, rel=0.05)


@pytest.mark.parametrize(("subset", "event"), [
    (None, poisson(0.3, gaussian(2.0))),
    (ClassSubset(1, 3), one_part("classes", 1, 3, poisson(0.3, gaussian(2.0)))),
])  # fmt: skip
def test_what_is_charged(tmp_path, subset, event):
    terms = {"noise_multiplier": 2.0, "sampling_rate": 0.3}
    answer(tmp_path, records(6), subset=subset, **terms)
    (entry,) = read_entries(tmp_path / "ledger.jsonl")
    assert from_json(entry.event) == event


def test_another_class_is_not_moved_by_a_record(tmp_path):
    data = records(9)
    fewer = Records(data.images[:-1], data.labels[:-1])  # without one of class 2
    for name, same in ((0, True), (1, True), (2, False)):
        both = [answer(tmp_path / f"{name}-{i}", some, subset=ClassSubset(name, 3))
                for i, some in enumerate((data, fewer))]  # fmt: skip
        assert all(torch.equal(a, b) for a, b in zip(*both, strict=True)) == same
