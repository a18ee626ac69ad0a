"""The discriminator of a conditional DCGAN: its size, its labels, and DataLens's teachers."""

from __future__ import annotations

import pytest
import torch

from fedsynth.core.errors import UserError
from fedsynth.nn.ensembles.strided_conv import windows
from fedsynth.nn.ensembles.teacher import TeacherStack
from fedsynth.nn.ensembles.teacher_config import TeacherConfig, initial_parameters
from fedsynth.nn.gan.label_discriminator import LabelDiscriminator


def test_it_has_as_many_parameters_as_stated():
    with torch.device("meta"):
        net = LabelDiscriminator()
    assert sum(p.numel() for p in net.parameters()) == 3_768_381


def test_a_score_depends_on_the_label():
    torch.manual_seed(0)
    net = LabelDiscriminator(3, (1, 8, 8), channels=4, hidden=8)
    images, labels = torch.rand(6, 1, 8, 8), torch.arange(6) % 3
    scores = net(images, labels)
    assert scores.shape == (6,)
    assert not torch.allclose(scores, net(images, labels.flip(0)))


def test_it_has_the_parameters_of_a_teacher_of_datalens():
    shape = TeacherConfig((1, 8, 8), 3, batch=4, channels=5, hidden=7)
    net = LabelDiscriminator(3, (1, 8, 8), channels=5, hidden=7)
    assert sum(p.numel() for p in net.parameters()) == shape.parameters


def test_it_scores_as_a_teacher_of_datalens_with_the_same_weights():
    shape = TeacherConfig((1, 8, 8), 3, batch=4, channels=5, hidden=7)
    flat = initial_parameters(shape, 1, torch.Generator().manual_seed(1), torch.float32)
    w = {name: view[0] for name, view in shape.views(flat, 1).items()}
    net = LabelDiscriminator(3, (1, 8, 8), channels=5, hidden=7)
    first, second, cells = shape.first, shape.second, 4
    with torch.no_grad():
        pixels = w["conv1"].view(first, 5, 5, 1).permute(0, 3, 1, 2)
        maps = w["conv1_label"].view(5, 5, 3, first).permute(3, 2, 0, 1)
        net.first.weight.copy_(torch.cat([pixels, maps], dim=1))
        net.first.bias.copy_(w["conv1_bias"])
        pixels = w["conv2"].view(second, 5, 5, first).permute(0, 3, 1, 2)
        maps = w["conv2_label"].view(3, second, 5, 5).permute(1, 0, 2, 3)
        net.second.weight.copy_(torch.cat([pixels, maps], dim=1))
        hidden = w["hidden"].view(7, second * cells)
        net.third.weight.copy_(torch.cat([hidden, w["hidden_label"]], dim=1))
        net.score.weight.copy_(torch.cat([w["out"], w["out_label"]], dim=1))
        net.score.bias.copy_(w["out_bias"])
    images, labels = torch.rand(4, 1, 8, 8), torch.tensor([0, 2, 1, 0])
    rows = windows(images.permute(0, 2, 3, 1).contiguous()).unsqueeze(0)
    stack = TeacherStack(shape, shape.views(flat, 1))
    expected = stack.forward(rows, labels.unsqueeze(0), groups=1).logits
    torch.testing.assert_close(net(images, labels).detach(), expected[0], rtol=1e-3, atol=1e-5)


def test_odd_sizes_are_refused():
    with pytest.raises(UserError, match="multiples of 4"):
        LabelDiscriminator(3, (1, 10, 10))
