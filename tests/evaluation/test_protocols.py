"""Schedules follow the published loops; shortened ones keep their proportions."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.types import DatasetInfo
from fedsynth.evaluation.config import EvaluationConfig
from fedsynth.evaluation.protocols import MIN_STEPS, PROTOCOLS, protocol

MNIST = DatasetInfo("mnist", (1, 28, 28), 10, (0.1307,), (0.3081,))
CIFAR = DatasetInfo("cifar10", (3, 32, 32), 10, (0.49, 0.48, 0.45), (0.2, 0.2, 0.2))


def published_learning_rates(epochs: int, batches: int, rate: float) -> list[float]:
    """The learning rate of every step, as in the published loop."""
    rates = []
    for epoch in range(epochs + 1):
        rates += [rate] * batches
        if epoch == epochs // 2 + 1:
            rate *= 0.1
    return rates


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(["P", "D"]), st.integers(2, 400), st.integers(1, 1500))
def test_uncapped_schedule_is_the_published_loop(name: str, epochs: int, images: int) -> None:
    rules = protocol(name)
    plan = rules.schedule(images, epochs)
    batches = -(-images // 256)
    expected = published_learning_rates(epochs, batches, rules.learning_rate)
    ours = [
        rules.learning_rate * (rules.learning_rate_drop if s >= plan.drop_after else 1)
        for s in range(plan.steps)
    ]
    assert ours == pytest.approx(expected)
    assert plan.epochs == epochs + 1


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 800), st.integers(1, 90))
def test_the_loops_of_g_and_l_run_exactly_e_epochs(images: int, epochs: int) -> None:
    for name, kept in (("G", 0.8), ("L", 0.5)):
        rules = protocol(name)
        plan, batches = rules.schedule(images, epochs), -(-images // rules.batch)
        assert (plan.steps, plan.epochs) == (epochs * batches, epochs)
        if name == "G":
            assert plan.drop_after == round(epochs * kept) * batches
    assert protocol("L").learning_rate_drop == 1  # the learning rate of L is constant


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 100_000))
def test_s_takes_about_as_many_steps_on_sets_of_all_sizes(images: int) -> None:
    plan = protocol("S").schedule(images)
    steps_per_epoch = -(-images // 128)
    assert plan.steps % steps_per_epoch == 0
    assert plan.epochs <= 301  # upper limit, for tiny sets
    assert plan.epochs >= 8  # lower limit, for large sets
    if 8 < plan.epochs < 301:
        assert 2500 <= plan.steps < 2500 + steps_per_epoch


def test_g_and_l_as_published() -> None:
    cnn = EvaluationConfig("G").schedule(60_000)
    assert (cnn.epochs, cnn.drop_after / cnn.steps) == (50, 40 / 50)
    rules = protocol("G")
    assert (rules.learning_rate, rules.momentum, rules.weight_decay) == (0.02, 0.9, 1e-4)
    assert (rules.batch, rules.learning_rate_drop, rules.max_train_images, rules.calibrated) == (
        128,
        0.1,
        60_000,
        True,
    )
    keras = EvaluationConfig("L").schedule(100_000)
    assert (keras.epochs, keras.steps) == (600, 600 * 196)
    rules = protocol("L")
    assert (rules.learning_rate, rules.momentum, rules.weight_decay) == (2e-3, 0, 0)
    assert (rules.batch, rules.max_train_images, rules.test_every_epoch) == (512, 100_000, True)
    assert not any(p.test_every_epoch for name, p in PROTOCOLS.items() if name != "L")


def test_the_learning_rate_drops_after_epoch_151_of_300() -> None:
    plan = EvaluationConfig(protocol="P").schedule(100)
    assert (plan.steps, plan.drop_after) == (301, 152)


def test_defaults_are_as_published() -> None:
    assert EvaluationConfig("D").schedule(500).epochs == 1001
    assert EvaluationConfig("P").schedule(60000).epochs == 41
    assert (EvaluationConfig("P").repetitions, EvaluationConfig("D").repetitions) == (3, 1)
    for rules in (PROTOCOLS["P"], PROTOCOLS["D"]):
        assert (rules.batch, rules.learning_rate, rules.momentum) == (256, 0.01, 0.9)
        assert rules.weight_decay == 5e-4


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 70000), st.integers(1, 3_000_000), st.sampled_from(["P", "D"]))
def test_cap_bounds_image_passes_and_keeps_the_drop_in_place(
    images: int, cap: int, name: str
) -> None:
    rules = protocol(name)
    full, capped = rules.schedule(images), rules.schedule(images, max_images=cap)
    assert capped.steps <= full.steps
    if MIN_STEPS < capped.steps < full.steps:
        assert capped.epochs * images <= cap
        assert (capped.steps + 1) / -(
            -images // 256
        ) * images > cap  # one more step would exceed it
    if capped.steps < full.steps:
        drift = capped.drop_after / capped.steps - full.drop_after / full.steps
        assert abs(drift) * capped.steps <= 1


def test_normalisation() -> None:
    pixels = torch.tensor([0.0, 0.1307, 1.0]).view(3, 1, 1, 1)
    standard = protocol("P").normalize(pixels, MNIST).flatten()
    assert standard.tolist() == pytest.approx([-0.1307 / 0.3081, 0, 0.8693 / 0.3081], abs=1e-6)
    assert protocol("D").normalize(pixels, MNIST).flatten()[[0, 2]].tolist() == [-1, 1]


def test_g_and_l_clamp_pixels_to_0_and_1() -> None:
    pixels = torch.tensor([-0.5, 0.1307, 7.0]).view(3, 1, 1, 1)
    assert protocol("L").normalize(pixels, CIFAR).flatten().tolist() == pytest.approx(
        [0, 0.1307, 1]
    )
    expected = [-0.1307 / 0.3081, 0, 0.8693 / 0.3081]  # for all data
    assert protocol("G").normalize(pixels, CIFAR).flatten().tolist() == pytest.approx(expected)
    assert protocol("G").augmentations(MNIST) == protocol("L").augmentations(MNIST) == ()


def test_augmentations_depend_on_the_data() -> None:
    fashion = dataclasses.replace(MNIST, name="fashion_mnist")
    assert protocol("P").augmentations(MNIST) == ("crop", "scale", "rotate")
    assert protocol("P").augmentations(CIFAR) == ()
    assert "flip" not in protocol("D").augmentations(MNIST)
    assert "flip" in protocol("D").augmentations(fashion)
    assert protocol("S").augmentations(MNIST) == ("affine",)
    assert protocol("S").augmentations(fashion) == ()
