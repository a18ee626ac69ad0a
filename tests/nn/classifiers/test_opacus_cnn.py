"""The network of Opacus's MNIST example: its sizes, and the images it can take."""

from __future__ import annotations

import pytest
import torch

from fedsynth.core.errors import UserError
from fedsynth.nn.classifiers.opacus_cnn import LEAST_SIDE, build


@pytest.mark.parametrize("side", [LEAST_SIDE, 17, 27, 28, 29, 32, 64])
def test_the_linear_layer_fits_what_the_pools_leave(side: int) -> None:
    assert build((1, side, side), 3, 0)(torch.zeros(2, 1, side, side)).shape == (2, 3)


def test_smaller_images_are_refused() -> None:
    with pytest.raises(UserError, match="at least 16x16 pixels, got 15x28"):
        build((1, 15, 28), 10, 0)
