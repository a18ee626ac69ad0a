"""Portraits: what comes back of classes whose moments are known, with and without noise."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from fedsynth.core.randomness import torch_generator
from fedsynth.methods.sketch_teach.class_model import ClassModel, ClassModelEstimator, laid_out
from fedsynth.methods.sketch_teach.queries import COMMON, COUNT, MEANS, Query
from fedsynth.methods.sketch_teach.representation import Sketch
from fedsynth.nn.transforms.dct import inverse_dct
from fedsynth.privacy.outer_products import clipped_outer_sum
from fedsynth.privacy.party_data import Records

SKETCH = Sketch(4)
NAMES = (4, 1)
MULTIPLIERS = (3.0, 3.0, 3.0, 3.0)


def asker(records: Records, multipliers: tuple[float, ...], seed: int = 0):
    """Answers questions as one party would, with plain noise."""
    generator = torch.Generator().manual_seed(seed)

    def ask(question: Query) -> torch.Tensor:
        if question.kind == MEANS:
            rows = question.counted(records.pixels())
            sums = torch.stack([rows[records.labels == name].sum(0) for name in question.classes])
        else:
            values, groups = question.grouped(records)
            sums = torch.stack(
                [
                    clipped_outer_sum(values[groups == g], values[groups == g], question.bound)
                    for g in range(question.shape[0])
                ]
            )
        assert sums.shape == question.shape
        noise = torch.randn(sums.shape, generator=generator)
        return sums + question.bound * multipliers[question.number] * noise

    return ask


def two_classes(each: int = 1500, lumps: bool = False) -> Records:
    """Smooth images whose shapes vary along a few low frequencies, each class by its own."""
    generator = torch.Generator().manual_seed(2)
    made = []
    for place in range(2):
        low = torch.zeros(each, 16)
        low[:, 0], low[:, 5 + place] = 6.0, 1.5
        low[:, 1] = 0.9 * torch.randn(each, generator=generator)
        if lumps:  # two kinds of the same class
            low[:, 1] = 0.2 * low[:, 1] + torch.where(torch.arange(each) % 2 == 0, 1.2, -1.2)
        low[:, 4] = 0.4 * (1 + place) * torch.randn(each, generator=generator)
        made.append(inverse_dct(low, 28))
    images = (torch.cat(made).clamp(0, 1) * 255).round().to(torch.uint8)
    return Records(images, torch.tensor(NAMES).repeat_interleave(each))


def painted(
    records: Records, multipliers=MULTIPLIERS, cells: int = 1, seed: int = 0
) -> dict[int, ClassModel]:
    sitting = ClassModelEstimator(
        asker(records, multipliers, seed),
        SKETCH,
        NAMES,
        multipliers=multipliers,
        records=len(records.labels),
    )
    return sitting.portraits(cells, torch_generator("cells"))


def moments(portrait: ClassModel) -> tuple[torch.Tensor, torch.Tensor]:
    weights = portrait.weights / portrait.weights.sum()
    mean = weights @ portrait.means
    apart = portrait.means - mean
    between = (weights[:, None] * apart).T @ apart
    inside = torch.einsum("c,crw,crv->wv", weights, portrait.spreads, portrait.spreads)
    return mean, between + inside


@pytest.mark.parametrize("cells", [1, 3])
def test_with_hardly_any_noise_means_and_most_of_the_spread_come_back(cells: int) -> None:
    records = two_classes()
    for name, portrait in painted(records, (1e-6,) * 4, cells).items():
        points = SKETCH.points(records.pixels()[records.labels == name])
        mean, covariance = moments(portrait)
        torch.testing.assert_close(mean, points.mean(0), atol=0.02, rtol=0)
        true = torch.cov(points.T)
        assert 0.6 < float(covariance.trace() / true.trace()) < 1.1  # clipping takes some
        direction = torch.linalg.eigh(true).eigenvectors[:, -1]
        found = torch.linalg.eigh(covariance).eigenvectors[:, -1]
        assert abs(float(direction @ found)) > 0.99


def test_noise_blurs_a_portrait_and_more_records_sharpen_it() -> None:
    def error(each: int, seed: int) -> float:
        records = two_classes(each)
        portrait = painted(records, seed=seed)[4]
        points = SKETCH.points(records.pixels()[records.labels == 4])
        return float((moments(portrait)[1] - torch.cov(points.T)).norm())

    few = sum(error(100, seed) for seed in range(3))
    many = sum(error(2000, seed) for seed in range(3))
    assert many < 0.5 * few


def test_cells_find_the_two_kinds_of_a_class() -> None:
    records = two_classes(lumps=True)
    one, several = (painted(records, (0.5,) * 4, cells)[4] for cells in (1, 4))
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


def test_samples_have_the_class_s_mean_and_norms() -> None:
    records = two_classes()
    portrait = painted(records, (1e-6,) * 4)[1]
    images, norms = portrait.sample(1000, 28, torch_generator("samples"))
    mine = records.pixels()[records.labels == 1]
    assert float(norms.mean()) == pytest.approx(float(mine.flatten(1).norm(dim=1).mean()), rel=0.03)
    shapes = functional.normalize(images.flatten(1), dim=1).mean(0)
    wanted = functional.normalize(mine.flatten(1), dim=1).mean(0)
    assert float(functional.cosine_similarity(shapes, wanted, dim=0)) > 0.98
    again, _ = portrait.sample(1000, 28, torch_generator("samples"))
    assert torch.equal(images, again)


@pytest.mark.parametrize("cells", [1, 4])
@pytest.mark.parametrize("seed", range(4))
def test_classes_that_are_all_noise_still_give_finite_images(cells: int, seed: int) -> None:
    few = two_classes(6)
    for portrait in painted(few, (300.0,) * 4, cells, seed).values():
        images, norms = portrait.sample(20, 28, torch.Generator().manual_seed(1))
        assert torch.isfinite(images).all()
        assert torch.isfinite(norms).all()
        assert (norms >= 0).all()


@pytest.mark.parametrize("each", [50, 6000])
def test_counts_and_norms_lean_on_what_all_classes_have_where_noise_is_large(each: int) -> None:
    """Against dividing noised sums by noised counts: far better for small classes, no worse for
    large ones; no class is black or brighter than white."""
    names, multiplier, shapes = tuple(range(10)), 15.0, len(SKETCH.places)
    generator = torch.Generator().manual_seed(each)
    counts = each * (0.865 + 0.03 * torch.arange(10))
    norms = 0.1 + 0.01 * torch.arange(10)
    truth = torch.zeros(10, SKETCH.width)
    truth[:, 0], truth[:, shapes] = 0.9, norms
    found: dict[str, list[torch.Tensor]] = {"own": [], "naive": []}
    for _ in range(20):
        noise = torch.randn(10, SKETCH.width + 1, generator=generator)
        sums = torch.cat([truth * counts[:, None], COUNT * counts[:, None]], 1)
        sums += SKETCH.longest * multiplier * noise
        sitting = ClassModelEstimator(
            lambda _, sums=sums: sums, SKETCH, names, multipliers=(multiplier,), records=each * 10
        )
        _, means, _ = sitting._means()
        found["own"].append(means[:, shapes] - norms)
        naive = (sums[:, -1] / COUNT).clamp_min(0.1 * each)
        found["naive"].append(sums[:, shapes] / naive - norms)
        assert float(means[:, shapes].min()) > 0
        assert float(means[:, shapes].max()) <= 0.5
    own, naive = (float(torch.stack(found[name]).square().mean()) for name in ("own", "naive"))
    assert own < (0.1 if each == 50 else 1.0) * naive


def test_one_class_has_as_many_records_as_there_are() -> None:
    """Their number is public, so that noise in the count says nothing."""

    def ask(question: Query) -> torch.Tensor:
        answer = torch.zeros(question.shape)
        answer[..., -1] = 1e6
        return answer

    sitting = ClassModelEstimator(ask, SKETCH, NAMES[:1], multipliers=MULTIPLIERS, records=50)
    counts, _, _ = sitting._means()
    assert counts.tolist() == [50.0]


def test_every_question_waits_for_the_answers_before_it_and_tells_only_public_things() -> None:
    """What a question carries follows from noised answers: the same answers, the same question."""
    seen: list[tuple[str, dict[str, torch.Tensor]]] = []
    answers: list[torch.Tensor] = []
    honest = asker(two_classes(50), MULTIPLIERS)

    def recording(question: Query) -> torch.Tensor:
        seen.append((question.kind, {k: v.clone() for k, v in question.known.items()}))
        answers.append(honest(question))
        return answers[-1]

    def replaying(question: Query) -> torch.Tensor:
        kind, known = seen[len(heard)]
        heard.append(question.kind)
        assert question.kind == kind
        assert question.known.keys() == known.keys()
        assert all(torch.equal(known[k], v) for k, v in question.known.items())
        return answers[len(heard) - 1]

    heard: list[str] = []
    for ask in (recording, replaying):
        sitting = ClassModelEstimator(ask, SKETCH, NAMES, multipliers=MULTIPLIERS, records=100)
        sitting.portraits(2, torch_generator("cells"))
    assert heard == ["means", "common", "spreads", "cells"]
    assert seen[0][1] == {}
    assert COMMON in heard


def test_centres_of_a_gaussian_lie_along_its_longest_direction() -> None:
    spread = torch.diag(torch.tensor([3.0, 0.1, 0.1], dtype=torch.float64))
    centres, covariances = laid_out(spread, 4, torch_generator("lay"))
    assert centres.shape == (4, 3)
    assert covariances.shape == (4, 3, 3)
    assert float(centres[:, 0].std()) > 1.5
    assert float(centres[:, 1:].abs().max()) < 0.2
    assert float(covariances[:, 0, 0].mean()) < 1.5
