"""The detector of inverted images on mixtures with a known share, and on undecidable images."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.errors import UserError
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.types import DatasetInfo
from fedsynth.data import registry as datasets
from fedsynth.evaluation.inversion_detector import (
    EDGE,
    MIN_DIFFERENCE,
    detect_inversion,
    edges,
    interpolate_share,
)

MNIST = datasets.find("mnist").info
quick = settings(max_examples=25, deadline=None)


def strokes(n: int, seed: int) -> torch.Tensor:
    """Bright blots on a dark background with margins, of MNIST's mean brightness on average."""
    rng = np.random.default_rng(seed)
    images = np.zeros((n, 1, 28, 28), np.float32)
    side = 14
    for image in images:
        top, left = rng.integers(4, 28 - 4 - side, 2)
        image[0, top : top + side, left : left + side] = rng.random((side, side))
    return torch.from_numpy(images * MNIST.mean[0] / images.mean())


@quick
@given(st.integers(1, 300), st.floats(0, 1), st.integers(0, 99), st.floats(0, 0.3))
def test_the_share_of_a_mixture_is_found(n, share, seed, noise):
    """Every image by its edge and the share by both estimates, for all shares and noise."""
    images = strokes(n, seed)
    flipped = torch.rand(n, generator=torch.Generator().manual_seed(seed)) < share
    images[flipped] = 1 - images[flipped]
    blurred = images + noise * torch.randn(images.shape)
    found = detect_inversion(SyntheticSet(blurred, torch.zeros(n, dtype=torch.long)), MNIST)
    truth = float(flipped.float().mean())
    assert (found.images, found.decided) == (n, 1.0)
    assert found.reliable
    assert found.inverted == int(flipped.sum())
    assert found.share_by_edges == pytest.approx(truth)
    if not noise:  # clamped noise makes dark images brighter and bright ones darker
        spread = float(images.mean(dim=(1, 2, 3)).std()) if n > 1 else 0.0
        assert found.share_by_brightness == pytest.approx(
            truth, abs=0.02 + spread / (1 - 2 * 0.1307)
        )


@quick
@given(st.integers(2, 40), st.integers(0, 99))
def test_inverting_all_images_inverts_the_estimate(n, seed):
    images = torch.rand(n, 1, 28, 28, generator=torch.Generator().manual_seed(seed)) ** 3
    labels = torch.zeros(n, dtype=torch.long)
    one, other = (detect_inversion(SyntheticSet(x, labels), MNIST) for x in (images, 1 - images))
    assert (one.inverted, one.upright) == (other.upright, other.inverted)
    assert one.edge == pytest.approx(1 - other.edge, abs=1e-5)
    assert one.share_by_edges == pytest.approx(1 - other.share_by_edges)
    assert one.share_by_brightness == pytest.approx(1 - other.share_by_brightness, abs=1e-5)


def test_grey_images_are_undecided():
    grey = torch.full((20, 1, 28, 28), 0.5)
    found = detect_inversion(SyntheticSet(grey, torch.zeros(20, dtype=torch.long)), MNIST)
    assert (found.inverted, found.upright, found.decided) == (0, 0, 0.0)
    assert not found.reliable
    assert found.share_by_edges == 0.5
    one_decided = torch.cat([grey, torch.zeros(1, 1, 28, 28)])
    assert not detect_inversion(
        SyntheticSet(one_decided, torch.zeros(21, dtype=torch.long)), MNIST
    ).reliable


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 9, 12)])
def test_edges_against_a_loop_over_pixels(shape):
    images = torch.rand(3, *shape, generator=torch.Generator().manual_seed(1))
    _, height, width = shape
    for image, found in zip(images, edges(images), strict=True):
        outer = [
            float(plane[row, column])
            for plane in image
            for row in range(height)
            for column in range(width)
            if min(row, column, height - 1 - row, width - 1 - column) < EDGE
        ]
        assert float(found) == pytest.approx(sum(outer) / len(outer), abs=1e-5)


def test_colours_and_bytes_are_accepted():
    info = DatasetInfo("colour", (3, 12, 12), 2, (0.2, 0.3, 0.1), (0.1, 0.1, 0.1))
    dark = torch.full((4, 3, 12, 12), 51, dtype=torch.uint8)
    found = detect_inversion(
        SyntheticSet(torch.cat([dark, 255 - dark[:1]]), torch.zeros(5).long()), info
    )
    assert (found.inverted, found.upright) == (1, 4)
    assert found.share_by_brightness == pytest.approx(0.2, abs=1e-5)


def test_unsuitable_images_are_refused():
    with pytest.raises(UserError, match="no released images"):
        detect_inversion(SyntheticSet(torch.zeros(0, 1, 28, 28), torch.zeros(0).long()), MNIST)
    with pytest.raises(UserError, match="4x4 pixels are too small"):
        detect_inversion(SyntheticSet(torch.zeros(2, 1, 4, 4), torch.zeros(2).long()), MNIST)


@quick
@given(st.floats(0, 1), st.floats(0, 0.4), st.floats(0.6, 1))
def test_a_mixture_of_two_reference_runs_is_recovered(share, upright, inverted):
    edge = share * inverted + (1 - share) * upright
    assert interpolate_share(edge, upright, inverted) == pytest.approx(share, abs=1e-9)


def test_shares_are_clamped_and_equal_reference_runs_give_none():
    assert interpolate_share(0.9, 0.3, 0.7) == 1.0
    assert interpolate_share(0.1, 0.3, 0.7) == 0.0
    assert interpolate_share(0.5, 0.5, 0.5 + MIN_DIFFERENCE / 2) is None
    assert interpolate_share(0.5, 0.6, 0.4) is None
