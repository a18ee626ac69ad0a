"""Formulas of Inception Score and Frechet distance.

The networks are in `scorer` (trained on real data, for evaluation only) and `inception` (the common
one, if its weights are available).
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, pstdev

import torch

SPLITS = 10  # as published
SPLIT_IMAGES = 100  # minimum size of a split; small sets have fewer splits
GENERATED, REAL = 20_000, 60_000  # images in the published distance


@dataclass(frozen=True)
class Score:
    """An Inception Score: the mean over splits and its deviation (population, as published)."""

    mean: float
    deviation: float
    splits: int


def inception_score(probabilities: torch.Tensor, splits: int | None = None) -> Score:
    """exp(mean over x of KL(p(y|x) || p(y))) of each split, natural logarithm, 0 log 0 = 0.

    `probabilities` are rows of class probabilities, already in random order. It lies between 1 and
    the number of classes; with few images p(y) is coarse and the score smaller.
    """
    p = probabilities.double()
    if not len(p):
        raise ValueError("there are no images to score")
    number = splits or max(1, min(SPLITS, len(p) // SPLIT_IMAGES))
    scores = []
    for part in p.tensor_split(number):
        marginal = part.mean(0, keepdim=True)
        divergence = torch.special.xlogy(part, part) - torch.special.xlogy(part, marginal)
        scores.append(float(divergence.sum(1).mean().exp()))
    return Score(fmean(scores), pstdev(scores), number)


@dataclass(frozen=True)
class Moments:
    """Mean and covariance (n - 1) of features, float64."""

    mean: torch.Tensor
    covariance: torch.Tensor

    @staticmethod
    def of(features: torch.Tensor) -> Moments:
        """The moments of rows; of a single row the covariance is zero."""
        x = features.double()
        centred = x - x.mean(0)
        return Moments(x.mean(0), centred.t() @ centred / max(1, len(x) - 1))


def frechet_distance(a: Moments, b: Moments) -> float:
    """|m_a - m_b|^2 + tr(S_a + S_b - 2 (S_a S_b)^(1/2)), the squared distance of two Gaussians.

    The trace of the root is that of (S_a^(1/2) S_b S_a^(1/2))^(1/2), which is symmetric, so no
    complex root appears where covariances are singular.
    """
    values, vectors = torch.linalg.eigh(a.covariance)
    root = vectors @ torch.diag(values.clamp(min=0).sqrt()) @ vectors.t()
    inner = torch.linalg.eigvalsh(root @ b.covariance @ root).clamp(min=0)
    means = float((a.mean - b.mean).square().sum())
    covariances = float(a.covariance.trace() + b.covariance.trace() - 2 * inner.sqrt().sum())
    return max(0.0, means + covariances)
