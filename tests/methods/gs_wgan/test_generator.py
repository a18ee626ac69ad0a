"""GS-WGAN's generator at the server."""

from __future__ import annotations

import torch

from fedsynth.core.outcomes import SyntheticSet
from fedsynth.data import registry as datasets
from fedsynth.methods.common.generator_release import load_state_vector, state_vector
from fedsynth.methods.gs_wgan.generator import GeneratorTrainer, new_generator


def test_a_state_vector_holds_all_weights_and_buffers():
    data = datasets.find("mnist").info
    for kind in ("dcgan", "resnet"):
        net, other = (new_generator(kind, 8, 4, 3, data, key) for key in "ab")
        load_state_vector(other, state_vector(net))
        for name, value in net.state_dict().items():
            assert torch.equal(other.state_dict()[name], value)


def test_the_server_steps_along_the_gradient_and_keeps_a_moving_average():
    data = datasets.find("mnist").info
    net = new_generator("dcgan", 8, 4, 3, data, "net")
    naive = new_generator("dcgan", 8, 4, 3, data, "net")
    adam = torch.optim.Adam(naive.parameters(), 0.01, betas=(0.5, 0.9))
    trainer = GeneratorTrainer(net, learning_rate=0.01, ema_decay=0.6)
    mean = [torch.zeros_like(p) for p in naive.parameters()]
    generator = torch.Generator().manual_seed(0)
    for step in range(4):
        latents = torch.randint(0, 2, (5, 4), generator=generator).float()
        labels, gradients = (
            torch.tensor([0, 1, 2, 0, 1]),
            torch.randn(5, 1, 28, 28, generator=generator),
        )
        trainer.step(step, trainer.images(latents, labels), gradients)
        loss = (naive(latents, labels) * gradients).sum()
        adam.zero_grad()
        loss.backward()
        adam.step()
        decay = min(1 - 1 / (step + 1), 0.6)
        mean = [
            decay * m + (1 - decay) * p.detach()
            for m, p in zip(mean, naive.parameters(), strict=True)
        ]
    for averaged, expected in zip(trainer.mean.parameters(), mean, strict=True):
        torch.testing.assert_close(averaged, expected, rtol=1e-4, atol=1e-5)


def test_an_intermediate_set_is_the_set_of_a_trainer_that_stopped_there():
    """With spectral norms too, which follow the weights; the last set does not change."""
    data = datasets.find("mnist").info

    def trained(steps: int, kept: tuple[int, ...] = ()) -> SyntheticSet:
        net = new_generator("resnet", 8, 4, 3, data, "net")
        trainer = GeneratorTrainer(net, learning_rate=0.01, ema_decay=0.6, kept_steps=kept)
        generator = torch.Generator().manual_seed(0)
        for step in range(steps):
            latents = torch.randint(0, 2, (3, 4), generator=generator).float()
            images = trainer.images(latents, torch.arange(3))
            trainer.step(step, images, torch.randn(images.shape, generator=generator))
        return trainer.sample((4, 7, 9), 2, 4, ("sample",))

    whole = trained(4, (1, 3))
    assert torch.equal(whole.images, trained(4).images)
    assert set(whole.earlier) == {1, 3}
    for steps, own in whole.earlier.items():
        assert torch.equal(own.images, trained(steps).images)
        assert own.labels.tolist() == whole.labels.tolist() == [4, 4, 7, 7, 9, 9]
    assert not torch.equal(whole.earlier[1].images, whole.earlier[3].images)


def test_a_step_in_bfloat16_moves_as_one_in_float32():
    data = datasets.find("mnist").info
    moves = []
    for dtype in ("float32", "bfloat16"):
        net = new_generator("resnet", 16, 4, 3, data, "net")
        start = state_vector(net).clone()
        trainer = GeneratorTrainer(net, learning_rate=0.01, ema_decay=0.6, dtype=dtype)
        generator = torch.Generator().manual_seed(0)
        latents = torch.randint(0, 2, (6, 4), generator=generator).float()
        images = trainer.images(latents, torch.arange(6) % 3)
        assert images.dtype == torch.float32
        trainer.step(0, images, torch.randn(images.shape, generator=generator))
        moves.append(state_vector(trainer.net) - start)
    assert not torch.equal(*moves)
    assert torch.cosine_similarity(*moves, dim=0) > 0.9
