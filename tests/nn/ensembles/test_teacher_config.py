"""The sizes of DataLens's discriminators, and their initial parameters."""

from __future__ import annotations

import pytest
import torch

from fedsynth.core.errors import UserError
from fedsynth.nn.ensembles.teacher_config import TeacherConfig, initial_parameters

SMALL = TeacherConfig((2, 12, 12), classes=4, batch=5, channels=6, hidden=9)


def test_the_published_size_but_for_the_biases_that_batch_norm_subtracts():
    shape = TeacherConfig((1, 28, 28), classes=10, batch=15)
    assert shape.parameters + shape.second + shape.hidden == 555_655


def test_convolutions_begin_within_two_deviations_and_norms_at_one():
    flat = initial_parameters(SMALL, 2, torch.Generator().manual_seed(0), torch.float32)
    w = SMALL.views(flat, 2)
    for name in ("conv1", "conv1_label", "conv2", "conv2_label"):
        assert 0.03 < float(w[name].abs().max()) <= 0.04
    assert float(w["hidden"].abs().max()) > 0.04
    assert bool((w["norm2_scale"] == 1).all())
    assert not bool(w["conv1_bias"].any())


@pytest.mark.parametrize("shape", [(1, 30, 30), (1, 28, 32)])
def test_sizes_that_cannot_be_halved_twice_are_refused(shape):
    with pytest.raises(UserError, match="multiples of 4"):
        TeacherConfig(shape, classes=2, batch=3)
