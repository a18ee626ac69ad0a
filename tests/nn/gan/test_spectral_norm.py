"""Power iterations reach spectral norm one, by the rule of `torch.nn.utils.spectral_norm`."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedsynth.nn.gan.spectral_norm import SpectralConv2d, SpectralEmbedding, SpectralLinear


@pytest.mark.parametrize(
    ("layer", "inputs"),
    [
        (SpectralConv2d(3, 5, 3, padding=1), torch.rand(2, 3, 6, 6)),
        (SpectralLinear(20, 7), torch.rand(2, 20)),
        (SpectralEmbedding(6, 9), torch.tensor([1, 5])),
    ],
    ids=["convolution", "linear", "embedding"],
)
def test_power_iterations_reach_spectral_norm_one_and_rest_in_evaluation(layer, inputs):
    for _ in range(200):
        layer(inputs)
    top = torch.linalg.matrix_norm(layer.normalised().flatten(1), ord=2)
    assert top.item() == pytest.approx(1.0, rel=1e-3)
    before = layer.left.clone()
    layer.eval()(inputs)
    assert torch.equal(layer.left, before)
    layer.train()(inputs * 1)
    assert layer.left.shape == before.shape


def pair() -> tuple[SpectralLinear, nn.Linear]:
    """A normalised layer and a plain one with the same weights."""
    torch.manual_seed(0)
    ours, plain = SpectralLinear(12, 7), nn.Linear(12, 7)
    plain.weight.data.copy_(ours.weight.data)
    plain.bias.data.copy_(ours.bias.data)
    return ours, plain


def step(layer: nn.Module, weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The outputs of a training step."""
    outputs = layer(x)
    (gradient,) = torch.autograd.grad(outputs.square().sum(), weight)
    weight.data.sub_(gradient, alpha=0.01)
    return outputs.detach()


def test_training_is_that_of_torch_from_the_same_vector():
    ours, plain = pair()
    theirs = torch.nn.utils.spectral_norm(plain)
    theirs.weight_u.copy_(ours.left)
    x = torch.randn(5, 12)
    for _ in range(4):
        outputs = step(ours, ours.weight, x)
        torch.testing.assert_close(outputs, step(theirs, theirs.weight_orig, x))
    torch.testing.assert_close(ours.left, theirs.weight_u)
    torch.testing.assert_close(ours.weight, theirs.weight_orig)


def test_the_parametrization_of_torch_normalises_by_another_value():
    """Why it is not used: its iteration advances the vectors in the other order."""
    ours, plain = pair()
    theirs = torch.nn.utils.parametrizations.spectral_norm(plain)
    vectors = theirs.parametrizations.weight[0]
    vectors._v.copy_(nn.functional.normalize(ours.weight.detach().t() @ ours.left, dim=0))
    x = torch.randn(5, 12)
    assert not torch.allclose(ours(x), theirs(x), rtol=1e-3)
    torch.testing.assert_close(ours.left, vectors._u)


def test_a_convolution_on_doubled_pixels_is_that_of_the_doubled_image():
    torch.manual_seed(0)
    layer = SpectralConv2d(3, 5, 3, padding=1).double().eval()
    images = torch.randn(2, 3, 6, 4, dtype=torch.float64)
    doubled = images.repeat_interleave(2, 2).repeat_interleave(2, 3)
    torch.testing.assert_close(layer.on_doubled(images), layer(doubled), rtol=1e-12, atol=1e-12)
    ours, theirs = (
        torch.autograd.grad(out.sin().sum(), layer.weight)
        for out in (layer.on_doubled(images), layer(doubled))
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_the_norm_is_not_coarser_under_autocast():
    torch.manual_seed(0)
    layer = SpectralConv2d(3, 5, 3, padding=1).eval()
    with torch.autocast("cpu", torch.bfloat16):
        coarse = layer.normalised()
        assert layer(torch.randn(2, 3, 6, 4)).dtype == torch.bfloat16
    assert torch.equal(coarse, layer.normalised())
