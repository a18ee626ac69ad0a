"""The scattering transform against sums written out pixel by pixel, and what it does not see."""

from __future__ import annotations

import math

import pytest
import torch

from fedsynth.core.errors import UserError
from fedsynth.nn.transforms import scattering as module
from fedsynth.nn.transforms.scattering import (
    HALF,
    NUMBERS,
    SIDE,
    averaging,
    morlet,
    scattering,
    window,
)


def wavelet(scale: int, turn: int) -> torch.Tensor:
    """The wavelet that is really used, in space: the coarse ones lack the far frequencies."""
    if scale == 0:
        return morlet(0, turn)
    spectrum = torch.fft.fft2(morlet(1, turn)).flatten()
    kept = torch.zeros_like(spectrum)
    kept[window(turn).flatten()] = spectrum[window(turn).flatten()]
    return torch.fft.ifft2(kept.view(SIDE, SIDE))


def convolve(x: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    """A convolution that wraps around, as its definition says."""
    total = torch.zeros_like(kernel)
    for a in range(SIDE):
        for b in range(SIDE):
            total = total + kernel[a, b] * torch.roll(x, (a, b), dims=(0, 1))
    return total


def averaged(x: torch.Tensor) -> list[float]:
    """Nine Gaussian window means of a map, by loops."""
    side = len(x)
    step = SIDE // side
    grid = torch.zeros(8, 8, dtype=torch.float64)
    for i in range(8):
        for j in range(8):
            total = weight = 0.0
            for a in range(side):
                for b in range(side):
                    down = (a * step - 4 * i + 16) % SIDE - 16
                    right = (b * step - 4 * j + 16) % SIDE - 16
                    w = math.exp(-(down**2 + right**2) / (2 * 1.6**2))
                    total, weight = total + w * float(x[a, b]), weight + w
            grid[i, j] = total / weight
    windows = (slice(0, 3), slice(2, 6), slice(5, 8))
    return [float(grid[rows, columns].mean()) for rows in windows for columns in windows]


def test_it_is_the_direct_convolution() -> None:
    image = torch.rand(1, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    x = torch.zeros(SIDE, SIDE, dtype=torch.float64)
    x[2:30, 2:30] = image[0, 0]
    fine = [convolve(x, wavelet(0, turn)).abs() for turn in range(8)]
    coarse = [convolve(x, wavelet(1, turn)).abs()[::2, ::2] for turn in range(8)]
    first = [value for u in [*fine, *coarse] for value in averaged(u)]
    pairs = ((3, 0), (5, 6))  # two of the 64 maps of second order: (fine, coarse) orientation
    second = {
        pair: averaged(convolve(fine[pair[0]], wavelet(1, pair[1])).abs()[::2, ::2])
        for pair in pairs
    }

    found = scattering(image)[0].double()
    assert found.shape == (NUMBERS,)
    zeroth = torch.tensor(averaged(x), dtype=torch.float64)
    torch.testing.assert_close(found[:9], zeroth / zeroth.norm(), rtol=1e-4, atol=1e-6)
    orders = torch.tensor(first, dtype=torch.float64)
    torch.testing.assert_close(found[9:153], orders / orders.norm(), rtol=1e-4, atol=1e-6)
    blocks = found[153:].view(8, 8, 9)
    ratio = blocks[3, 0].norm() / torch.tensor(second[3, 0]).norm()
    for (a, b), values in second.items():
        expected = torch.tensor(values, dtype=torch.float64) * ratio
        torch.testing.assert_close(blocks[a, b], expected, rtol=1e-4, atol=1e-6)
    assert found[153:].norm().item() == pytest.approx(1.0, rel=1e-5)


def test_the_window_leaves_almost_nothing_out() -> None:
    for turn in range(8):
        whole = morlet(1, turn)
        assert (wavelet(1, turn) - whole).norm() < 0.1 * whole.norm()


def test_wavelets_have_no_mean_and_averages_sum_to_one() -> None:
    for scale in (0, 1):
        for turn in range(8):
            assert abs(morlet(scale, turn).sum()) < 1e-12
    for side in (SIDE, HALF):
        assert torch.allclose(averaging(side).sum(1), torch.ones(3, dtype=torch.float64))


def test_each_image_for_itself_and_black_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.rand(7, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    images[3] = 0
    together = scattering(images)
    monkeypatch.setattr(module, "CHUNK", 3)
    torch.testing.assert_close(scattering(images), together, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(scattering(images[5:6]), together[5:6], rtol=1e-5, atol=1e-6)
    assert (together[3] == 0).all()
    assert scattering(images[:0]).shape == (0, NUMBERS)


def test_brightness_does_not_matter_and_orientation_does() -> None:
    images = torch.rand(2, 1, 28, 28, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(scattering(images * 0.3), scattering(images), rtol=1e-4, atol=1e-6)
    stripes = torch.zeros(1, 1, 28, 28)
    stripes[..., ::3, :] = 1
    assert (scattering(stripes) - scattering(stripes.mT)).norm() > 0.5


def test_other_images_are_refused() -> None:
    for shape in ((1, 3, 28, 28), (1, 1, 40, 40)):
        with pytest.raises(UserError, match="grey images of at most 32x32"):
            scattering(torch.zeros(shape))
