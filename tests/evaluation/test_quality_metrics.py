"""Inception Score and Frechet distance against their definitions and the specification's checks."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.randomness import torch_generator
from fedsynth.evaluation.quality_metrics import Moments, frechet_distance, inception_score


def gaussian(n: int, width: int, seed: int) -> torch.Tensor:
    return torch.randn(n, width, generator=torch_generator("quality", seed), dtype=torch.float64)


def test_sure_and_evenly_spread_answers_score_the_number_of_classes() -> None:
    sure = torch.eye(10).repeat(60, 1)
    assert inception_score(sure).mean == pytest.approx(10.0)
    assert inception_score(sure).splits == 6
    assert inception_score(torch.eye(10).repeat(600, 1)).splits == 10


def test_the_same_answer_for_every_image_scores_one() -> None:
    for answer in (torch.full((10,), 0.1), torch.eye(10)[3], torch.arange(10) / 45):
        assert inception_score(answer.repeat(300, 1)).mean == pytest.approx(1.0)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 80), st.integers(2, 6), st.integers(0, 99), st.integers(1, 4))
def test_the_score_is_its_definition(n: int, classes: int, seed: int, splits: int) -> None:
    splits = min(splits, n)
    p = torch.softmax(3 * gaussian(n, classes, seed), 1)
    p[0] = torch.eye(classes, dtype=torch.float64)[0]  # with zeros in it
    expected = []
    for part in np.array_split(p.numpy(), splits):
        marginal = part.mean(0)
        kl = [
            sum(q * math.log(q / m) for q, m in zip(row, marginal, strict=True) if q)
            for row in part
        ]
        expected.append(math.exp(sum(kl) / len(kl)))
    score = inception_score(p, splits)
    assert score.mean == pytest.approx(np.mean(expected))
    assert score.deviation == pytest.approx(np.std(expected), abs=1e-9)
    assert 1 - 1e-9 <= score.mean <= classes + 1e-9
    assert score.splits == splits


def test_nothing_to_score_is_an_error() -> None:
    with pytest.raises(ValueError, match="no images"):
        inception_score(torch.zeros(0, 10))


def test_two_balls_are_as_far_apart_as_their_centres() -> None:
    a = torch.linspace(-1, 2, 64, dtype=torch.float64)
    ball = Moments(torch.zeros(64, dtype=torch.float64), torch.eye(64, dtype=torch.float64))
    moved = Moments(a, ball.covariance)
    assert frechet_distance(ball, moved) == pytest.approx(float(a.square().sum()))


def test_a_set_is_at_no_distance_from_itself() -> None:
    width = 256
    for features in (gaussian(600, width, 1), gaussian(20, width, 2)):  # also with fewer rows
        moments = Moments.of(features * torch.arange(width))
        assert frechet_distance(moments, moments) <= 1e-6 * width * float(
            moments.covariance.trace()
        )
        assert frechet_distance(Moments.of(features), Moments.of(features)) <= 1e-6 * 2048


@pytest.mark.filterwarnings("ignore:Matrix is singular")  # of scipy's root, not of ours
@settings(max_examples=25, deadline=None)
@given(st.integers(2, 40), st.integers(2, 40), st.integers(1, 8), st.integers(0, 99))
def test_the_distance_is_the_published_formula(n: int, m: int, width: int, seed: int) -> None:
    a, b = gaussian(n, width, seed), 2 * gaussian(m, width, seed + 100) + 1
    one, other = Moments.of(a), Moments.of(b)
    assert torch.allclose(one.covariance, torch.cov(a.t()).reshape(width, width))
    ridge = 1e-9 * torch.eye(width, dtype=torch.float64)  # scipy's root dislikes singular products
    product = (one.covariance + ridge) @ (other.covariance + ridge)
    root = np.real(scipy.linalg.sqrtm(product.numpy()))
    spread = one.covariance.trace() + other.covariance.trace() - 2 * np.trace(root)
    expected = float((one.mean - other.mean).square().sum() + spread)
    assert frechet_distance(one, other) == pytest.approx(expected, rel=1e-3, abs=1e-3)
    assert frechet_distance(other, one) == pytest.approx(frechet_distance(one, other), abs=1e-6)
