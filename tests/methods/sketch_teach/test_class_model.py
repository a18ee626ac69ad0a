"""Tests of class models of classes with known moments, with and without noise."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from fedsynth.core.randomness import torch_generator
from fedsynth.data.records import Records
from fedsynth.methods.sketch_teach.class_model import ClassModel, ClassModelEstimator, kmeans_cells
from fedsynth.methods.sketch_teach.queries import COMMON, COUNT, MEANS, Query
from fedsynth.methods.sketch_teach.representation import Sketch
from fedsynth.nn.transforms.dct import inverse_dct
from fedsynth.privacy.outer_products import clipped_outer_sum

SKETCH = Sketch(4)
CLASSES = (4, 1)
MULTIPLIERS = (3.0, 3.0, 3.0, 3.0)


def asker(records: Records, multipliers: tuple[float, ...], seed: int = 0):
    """A function that answers queries as one party does, with noise from a plain generator."""
    generator = torch.Generator().manual_seed(seed)

    def ask(query: Query) -> torch.Tensor:
        if query.kind == MEANS:
            rows = query.points_and_counts(records.pixels())
            sums = torch.stack([rows[records.labels == name].sum(0) for name in query.classes])
        else:
            values, groups = query.grouped_rows(records)
            sums = torch.stack(
                [
                    clipped_outer_sum(values[groups == g], values[groups == g], query.bound)
                    for g in range(query.shape[0])
                ]
            )
        assert sums.shape == query.shape
        noise = torch.randn(sums.shape, generator=generator)
        return sums + query.bound * multipliers[query.number] * noise

    return ask


def two_classes(each: int = 1500, clusters: bool = False) -> Records:
    """Smooth images whose shapes vary along a few low frequencies, each class by its own."""
    generator = torch.Generator().manual_seed(2)
    made = []
    for place in range(2):
        low = torch.zeros(each, 16)
        low[:, 0], low[:, 5 + place] = 6.0, 1.5
        low[:, 1] = 0.9 * torch.randn(each, generator=generator)
        if clusters:  # two clusters in each class
            low[:, 1] = 0.2 * low[:, 1] + torch.where(torch.arange(each) % 2 == 0, 1.2, -1.2)
        low[:, 4] = 0.4 * (1 + place) * torch.randn(each, generator=generator)
        made.append(inverse_dct(low, 28))
    images = (torch.cat(made).clamp(0, 1) * 255).round().to(torch.uint8)
    return Records(images, torch.tensor(CLASSES).repeat_interleave(each))


def estimated(
    records: Records, multipliers=MULTIPLIERS, cells: int = 1, seed: int = 0
) -> dict[int, ClassModel]:
    estimator = ClassModelEstimator(
        asker(records, multipliers, seed),
        SKETCH,
        CLASSES,
        multipliers=multipliers,
        records=len(records.labels),
    )
    return estimator.estimate(cells, torch_generator("cells"))


def moments(class_model: ClassModel) -> tuple[torch.Tensor, torch.Tensor]:
    weights = class_model.weights / class_model.weights.sum()
    mean = weights @ class_model.means
    apart = class_model.means - mean
    between = (weights[:, None] * apart).T @ apart
    inside = torch.einsum("c,crw,crv->wv", weights, class_model.factors, class_model.factors)
    return mean, between + inside


@pytest.mark.parametrize("cells", [1, 3])
def test_almost_without_noise_means_and_most_of_the_covariance_are_recovered(cells: int) -> None:
    records = two_classes()
    for name, class_model in estimated(records, (1e-6,) * 4, cells).items():
        points = SKETCH.points(records.pixels()[records.labels == name])
        mean, covariance = moments(class_model)
        torch.testing.assert_close(mean, points.mean(0), atol=0.02, rtol=0)
        true = torch.cov(points.T)
        assert 0.6 < float(covariance.trace() / true.trace()) < 1.1  # clipping takes some
        direction = torch.linalg.eigh(true).eigenvectors[:, -1]
        found = torch.linalg.eigh(covariance).eigenvectors[:, -1]
        assert abs(float(direction @ found)) > 0.99


def test_more_records_reduce_the_error() -> None:
    def error(each: int, seed: int) -> float:
        records = two_classes(each)
        class_model = estimated(records, seed=seed)[4]
        points = SKETCH.points(records.pixels()[records.labels == 4])
        return float((moments(class_model)[1] - torch.cov(points.T)).norm())

    few = sum(error(100, seed) for seed in range(3))
    many = sum(error(2000, seed) for seed in range(3))
    assert many < 0.5 * few


def test_cells_find_the_two_clusters_of_a_class() -> None:
    records = two_classes(clusters=True)
    one, several = (estimated(records, (0.5,) * 4, cells)[4] for cells in (1, 4))
    points = SKETCH.points(records.pixels()[records.labels == 4])
    drawn = [
        SKETCH.points((p.sample(800, 28, torch_generator("draw"))[0]).clamp(0, 1))[:, 1]
        for p in (one, several)
    ]
    true = float(points[:, 1].abs().mean())
    near_zero = [float((d.abs() < true / 3).float().mean()) for d in drawn]
    assert float((points[:, 1].abs() < true / 3).float().mean()) < 0.01
    assert near_zero[0] > 0.15
    assert near_zero[1] < 0.6 * near_zero[0]


def test_samples_have_the_mean_and_the_norms_of_the_class() -> None:
    records = two_classes()
    class_model = estimated(records, (1e-6,) * 4)[1]
    images, norms = class_model.sample(1000, 28, torch_generator("samples"))
    mine = records.pixels()[records.labels == 1]
    assert float(norms.mean()) == pytest.approx(float(mine.flatten(1).norm(dim=1).mean()), rel=0.03)
    shapes = functional.normalize(images.flatten(1), dim=1).mean(0)
    wanted = functional.normalize(mine.flatten(1), dim=1).mean(0)
    assert float(functional.cosine_similarity(shapes, wanted, dim=0)) > 0.98
    again, _ = class_model.sample(1000, 28, torch_generator("samples"))
    assert torch.equal(images, again)


@pytest.mark.parametrize("cells", [1, 4])
@pytest.mark.parametrize("seed", range(4))
def test_images_are_finite_if_noise_dominates(cells: int, seed: int) -> None:
    few = two_classes(6)
    for class_model in estimated(few, (300.0,) * 4, cells, seed).values():
        images, norms = class_model.sample(20, 28, torch.Generator().manual_seed(1))
        assert torch.isfinite(images).all()
        assert torch.isfinite(norms).all()
        assert (norms >= 0).all()


@pytest.mark.parametrize("each", [50, 6000])
def test_counts_and_norms_are_shrunk_towards_all_classes_if_noise_is_large(each: int) -> None:
    """Against dividing noised sums by noised counts: far better for small classes, no worse for
    large ones; no class is black or brighter than white."""
    names, multiplier, shapes = tuple(range(10)), 15.0, len(SKETCH.coefficients)
    generator = torch.Generator().manual_seed(each)
    counts = each * (0.865 + 0.03 * torch.arange(10))
    norms = 0.1 + 0.01 * torch.arange(10)
    truth = torch.zeros(10, SKETCH.width)
    truth[:, 0], truth[:, shapes] = 0.9, norms
    found: dict[str, list[torch.Tensor]] = {"own": [], "naive": []}
    for _ in range(20):
        noise = torch.randn(10, SKETCH.width + 1, generator=generator)
        sums = torch.cat([truth * counts[:, None], COUNT * counts[:, None]], 1)
        sums += SKETCH.max_norm * multiplier * noise
        estimator = ClassModelEstimator(
            lambda _, sums=sums: sums, SKETCH, names, multipliers=(multiplier,), records=each * 10
        )
        _, means, _ = estimator._means()
        found["own"].append(means[:, shapes] - norms)
        naive = (sums[:, -1] / COUNT).clamp_min(0.1 * each)
        found["naive"].append(sums[:, shapes] / naive - norms)
        assert float(means[:, shapes].min()) > 0
        assert float(means[:, shapes].max()) <= 0.5
    own, naive = (float(torch.stack(found[name]).square().mean()) for name in ("own", "naive"))
    assert own < (0.1 if each == 50 else 1.0) * naive


def test_a_single_class_has_the_public_number_of_records() -> None:
    """The total is public, so the noise of the count does not matter."""

    def ask(query: Query) -> torch.Tensor:
        answer = torch.zeros(query.shape)
        answer[..., -1] = 1e6
        return answer

    estimator = ClassModelEstimator(ask, SKETCH, CLASSES[:1], multipliers=MULTIPLIERS, records=50)
    counts, _, _ = estimator._means()
    assert counts.tolist() == [50.0]


def test_a_query_depends_on_earlier_noised_answers_only() -> None:
    """Replaying the same answers gives the same queries."""
    seen: list[tuple[str, dict[str, torch.Tensor]]] = []
    answers: list[torch.Tensor] = []
    honest = asker(two_classes(50), MULTIPLIERS)

    def recording(query: Query) -> torch.Tensor:
        seen.append((query.kind, {k: v.clone() for k, v in query.public.items()}))
        answers.append(honest(query))
        return answers[-1]

    def replaying(query: Query) -> torch.Tensor:
        kind, known = seen[len(replayed)]
        replayed.append(query.kind)
        assert query.kind == kind
        assert query.public.keys() == known.keys()
        assert all(torch.equal(known[k], v) for k, v in query.public.items())
        return answers[len(replayed) - 1]

    replayed: list[str] = []
    for ask in (recording, replaying):
        estimator = ClassModelEstimator(ask, SKETCH, CLASSES, multipliers=MULTIPLIERS, records=100)
        estimator.estimate(2, torch_generator("cells"))
    assert replayed == ["means", "common", "spreads", "cells"]
    assert seen[0][1] == {}
    assert COMMON in replayed


def test_kmeans_centres_lie_along_the_direction_of_largest_variance() -> None:
    spread = torch.diag(torch.tensor([3.0, 0.1, 0.1], dtype=torch.float64))
    centres, covariances = kmeans_cells(spread, 4, torch_generator("lay"))
    assert centres.shape == (4, 3)
    assert covariances.shape == (4, 3, 3)
    assert float(centres[:, 0].std()) > 1.5
    assert float(centres[:, 1:].abs().max()) < 0.2
    assert float(covariances[:, 0, 0].mean()) < 1.5
