"""A scattering transform: fixed wavelets and moduli in place of learned filters.

Two scales (J=2) and eight orientations (L=8) of Morlet wavelets, up to second order: 81 maps, each
averaged over a grid of 3x3 windows, which gives 729 numbers per image. Nothing is trained and each
image is transformed by itself, so the transform itself has no privacy cost.

An image of 28 pixels is padded with zeros to 32; convolutions are circular there and computed as
products of spectra. The coarse wavelets keep only the 16x16 frequencies around their own; their
output is sampled at every second pixel, and its modulus is computed from that window alone.

Hand-written because the windows of frequencies, the 3x3 grid and the normalisation per order are
not options of the general packages, and 60,000 images must be transformed on a CPU in a minute.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch.nn import functional

from fedsynth.core.errors import UserError

ORIENTATIONS = 8
SIDE = 32  # of the padded image
HALF = SIDE // 2
CELLS = 3  # windows per side
NUMBERS = (1 + 2 * ORIENTATIONS + ORIENTATIONS**2) * CELLS**2
CHUNK = 32  # images at a time, so that the maps stay in the cache
_WIDTH, _FREQUENCY, _SLANT = 0.8, 3 * math.pi / 4, 4 / ORIENTATIONS
_AVERAGE_WIDTH = 1.6  # of the last averaging, in pixels


def morlet(scale: int, orientation: int, side: int = SIDE) -> torch.Tensor:
    """A Morlet wavelet of mean zero, wrapped around a square: complex [side, side], centre at 0.

    A plane wave of frequency 3 pi / 2^(scale + 2) under a Gaussian of width 0.8 * 2^scale along
    it and twice that across.
    """
    angle = math.pi * orientation / ORIENTATIONS
    width, frequency = _WIDTH * 2**scale, _FREQUENCY / 2**scale
    pixels = torch.arange(-2 * side, 2 * side, dtype=torch.float64)
    y, x = torch.meshgrid(pixels, pixels, indexing="ij")
    along = x * math.cos(angle) + y * math.sin(angle)
    across = y * math.cos(angle) - x * math.sin(angle)
    envelope = torch.exp(-(along**2 + (_SLANT * across) ** 2) / (2 * width**2))
    wave = envelope * torch.exp(1j * frequency * along)
    wave = wave - envelope * (wave.sum() / envelope.sum())
    wave = wave * (_SLANT / (2 * math.pi * width**2))
    return wave.view(4, side, 4, side).sum(dim=(0, 2))


def averaging(side: int) -> torch.Tensor:
    """The matrix [3, side] that averages one axis of a map: a Gaussian of 1.6 pixels of the padded
    image, taken at every fourth of them, then the mean over three overlapping windows."""
    step = SIDE // side
    distance = torch.arange(side)[None, :] * step - torch.arange(0, SIDE, 4)[:, None]
    distance = (distance + SIDE // 2) % SIDE - SIDE // 2
    weights = torch.exp(-(distance.double() ** 2) / (2 * _AVERAGE_WIDTH**2))
    weights = weights / weights.sum(dim=1, keepdim=True)
    return functional.adaptive_avg_pool1d(weights.T[None], CELLS)[0].T.contiguous()


def window(orientation: int) -> torch.Tensor:
    """The frequencies of the padded image that a coarse wavelet keeps, as flat indices [16, 16] in
    the order of a spectrum whose zero lies at the centre frequency of the wavelet."""
    angle = math.pi * orientation / ORIENTATIONS
    centre = _FREQUENCY / 2 * SIDE / (2 * math.pi)
    offsets = torch.fft.fftfreq(HALF, 1 / HALF).long()
    rows = (offsets + round(centre * math.sin(angle))) % SIDE
    columns = (offsets + round(centre * math.cos(angle))) % SIDE
    return rows[:, None] * SIDE + columns[None, :]


@dataclass(frozen=True)
class _Constants:
    fine: torch.Tensor  # spectra [8, 32, 32] of the wavelets of scale 0
    coarse: torch.Tensor  # [8, 16, 16]: kept frequencies of the wavelets of scale 1
    windows: torch.Tensor  # [8 * 256]: the indices of those frequencies
    average: torch.Tensor  # [3, 32]
    average_coarse: torch.Tensor  # [3, 16]


@lru_cache(maxsize=4)
def _constants(device: torch.device) -> _Constants:
    spectra = torch.fft.fft2(
        torch.stack([morlet(j, turn) for j in (0, 1) for turn in range(ORIENTATIONS)])
    ).to(torch.complex64)
    windows = torch.stack([window(turn) for turn in range(ORIENTATIONS)]).flatten(1)
    # A quarter, as the inverse transform divides by a number of points four times smaller.
    coarse = spectra[ORIENTATIONS:].flatten(1).gather(1, windows).view(-1, HALF, HALF) / 4
    return _Constants(
        spectra[:ORIENTATIONS].to(device),
        coarse.to(device),
        windows.flatten().to(device),
        averaging(SIDE).float().to(device),
        averaging(HALF).float().to(device),
    )


def scattering(images: torch.Tensor) -> torch.Tensor:
    """The scattering coefficients of grey images [n, 1, s, s], s at most 32: float32 [n, 729].

    Columns: order 0 (9), order 1 (144), order 2 (576). In each order the coefficients of an image
    are divided by their L2 norm, which removes brightness and contrast; those of a black image are
    zero.
    """
    _, channels, height, width = images.shape
    if channels != 1 or max(height, width) > SIDE:
        raise UserError(
            f"the scattering transform takes grey images of at most {SIDE}x{SIDE}, "
            f"got {channels} channel(s) of {height}x{width}."
        )
    top, left = (SIDE - height) // 2, (SIDE - width) // 2
    padded = functional.pad(
        images[:, 0], (left, SIDE - width - left, top, SIDE - height - top)
    ).float()
    if not len(padded):
        return padded.new_zeros(0, NUMBERS)
    return torch.cat([_transform(part) for part in padded.split(CHUNK)])


def _transform(x: torch.Tensor) -> torch.Tensor:
    constants = _constants(x.device)
    spectrum = torch.fft.fft2(x)[:, None]
    first = _modulus(torch.fft.ifft2(spectrum * constants.fine))
    orders = (
        _average(x, constants.average),
        torch.cat(
            [
                _average(first, constants.average),
                _average(_coarse(spectrum, constants), constants.average_coarse),
            ],
            dim=1,
        ),
        _average(_coarse(torch.fft.fft2(first), constants), constants.average_coarse),
    )
    return torch.cat([functional.normalize(order, dim=1, eps=1e-6) for order in orders], dim=1)


def _coarse(spectra: torch.Tensor, constants: _Constants) -> torch.Tensor:
    """Moduli of all coarse wavelets on every second pixel: [n, maps, 8, 16, 16]."""
    kept = spectra.flatten(2)[..., constants.windows]
    return _modulus(torch.fft.ifft2(kept.view(*kept.shape[:2], -1, HALF, HALF) * constants.coarse))


def _modulus(z: torch.Tensor) -> torch.Tensor:
    """|z|, a few times faster than torch's version, which guards against overflow."""
    return torch.addcmul(z.real * z.real, z.imag, z.imag).sqrt_()


def _average(maps: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """The 3x3 window means of each map, one row per image."""
    return (matrix @ maps @ matrix.T).flatten(1)
