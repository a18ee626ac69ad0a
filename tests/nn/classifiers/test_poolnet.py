"""The pool-net learns, depends on its key alone, and treats images one by one when it is asked."""

from __future__ import annotations

import torch

from fedsynth.core.randomness import torch_generator
from fedsynth.nn.classifiers import poolnet
from fedsynth.nn.classifiers.poolnet import PoolNet, train_pool_net

CPU = torch.device("cpu")


def bars(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    places = torch.arange(n) % 3
    images = 0.2 * torch.rand(n, 1, 28, 28, generator=torch_generator("bars", n))
    for image, place in zip(images, places.tolist(), strict=True):
        image[0, 3 + 8 * place : 7 + 8 * place] += 0.7
    return images, places


def train(key: str = "k", steps: int = 25) -> PoolNet:
    images, places = bars(90)
    return train_pool_net(images, places, 3, width=4, steps=steps, key=(key,), device=CPU)


def test_it_learns_and_comes_back_ready_for_use() -> None:
    images, places = bars(60)
    net = train()
    assert not net.training
    assert (net(images).argmax(1) == places).float().mean() > 0.9


def test_the_key_is_all_its_randomness_and_the_global_generator_is_left_alone() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first = train(steps=3).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(4)
    again, other = train(steps=3).state_dict(), train("l", steps=3).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_features_of_an_image_do_not_depend_on_its_company(monkeypatch) -> None:
    images, _ = bars(10)
    net = train(steps=3)
    state = {name: value.clone() for name, value in net.state_dict().items()}
    net.train()
    together = net.embed(images)
    monkeypatch.setattr(poolnet, "INFERENCE_BATCH", 3)
    torch.testing.assert_close(net.embed(images), together, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(net.embed(images[4:5]), together[4:5], rtol=1e-5, atol=1e-6)
    assert all(torch.equal(state[name], value) for name, value in net.state_dict().items())
    assert net.embed(images[:0]).shape == (0, net.features)


def test_width_32_has_576_features() -> None:
    net = PoolNet(32, 10, 28)
    assert net.features == 576
    assert net.embed(torch.zeros(2, 1, 28, 28)).shape == (2, 576)


def test_gradients_do_not_depend_on_how_weights_lie() -> None:
    images, places = bars(16)

    def gradients(layout: torch.memory_format) -> list[torch.Tensor]:
        torch.manual_seed(0)
        net = PoolNet(4, 3, 28).double().to(memory_format=layout)
        loss = torch.nn.functional.cross_entropy(net(images.double()), places)
        return list(torch.autograd.grad(loss, list(net.parameters())))

    ours, plain = gradients(torch.channels_last), gradients(torch.contiguous_format)
    net = PoolNet(4, 3, 28)
    assert all(weight.stride(1) == 1 for weight in net.parameters() if weight.dim() == 4)
    for block in list(net.blocks)[:3]:
        images = block(images)
        assert images.is_contiguous(memory_format=torch.channels_last)
    for one, other in zip(ours, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
