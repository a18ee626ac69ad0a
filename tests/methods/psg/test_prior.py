"""The generator prior: PSG's loop with the generator's weights in place of pixels."""

from __future__ import annotations

import copy

import torch
from torch.nn import functional as F

from fedsynth.core.types import DatasetInfo
from fedsynth.methods.psg.gradient_matching import row_cosine_distance
from fedsynth.methods.psg.prior import GeneratedImages, PSGPriorConfig

FACTS = DatasetInfo("tiny", (1, 28, 28), 4, (0.5,), (0.25,))
CFG = PSGPriorConfig(spc=2, width=4, updates=3, matching_dtype="float32")


def generated() -> GeneratedImages:
    return GeneratedImages(CFG, FACTS, [3, 1], ("key",))


def test_the_generator_learns_as_if_it_were_trained_through_its_images():
    """Against one graph from the loss to the weights, without the detour by the images."""
    ours = generated()
    naive = copy.deepcopy(ours.generator)
    adam = torch.optim.Adam(naive.parameters(), 0.01)
    net = ours.network(0)
    weights = list(net.parameters())
    generator = torch.Generator().manual_seed(0)
    real = [torch.randn(w.shape, generator=generator) for w in weights]
    for _ in range(CFG.updates):
        images = naive(ours.latents, torch.tensor([3, 3, 1, 1]))
        loss = F.cross_entropy(net(images), torch.tensor([3, 3, 1, 1]))
        synthetic = torch.autograd.grad(loss, weights, create_graph=True)
        adam.zero_grad()
        row_cosine_distance(real, synthetic).backward()
        adam.step()
    before = ours.images.clone()
    ours.match(net, real)
    assert (ours.images - before).abs().max() > 1e-2
    expected = naive(ours.latents, ours.labels).detach()
    torch.testing.assert_close(ours.images, expected, rtol=1e-2, atol=1e-3)


def test_the_released_images_are_those_of_the_fixed_codes():
    ours = generated()
    net = ours.network(0)
    ours.match(net, [torch.ones_like(w) for w in net.parameters()])
    with torch.no_grad():
        expected = ours.scale.to_pixels(ours.generator(ours.latents, ours.labels))
    released = ours.result()
    torch.testing.assert_close(released.images, expected)
    assert released.labels.tolist() == [3, 3, 1, 1]


def test_a_checkpoint_holds_all_that_changes(tmp_path):
    """The next step after a restore is the next step of the one that was saved."""
    from fedsynth.storage.checkpoint import rounds

    def run(stop: int | None) -> GeneratedImages:
        ours = generated()
        net = ours.network(0)
        real = [torch.ones_like(w) for w in net.parameters()]
        for step in rounds(4, ours.state, tmp_path / "c", fingerprint="f", every_seconds=0):
            if step == stop:
                return ours
            ours.match(net, real)
        return ours

    run(2)
    resumed = run(None)
    (tmp_path / "c").unlink()
    (tmp_path / "c.previous").unlink()
    assert torch.equal(resumed.images, run(None).images)
