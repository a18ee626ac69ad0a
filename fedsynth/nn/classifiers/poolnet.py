"""A small ConvNet with batch norm, for images that are synthetic already.

Batch norm mixes the images of a batch while it trains, so nothing trained on records by it is
private: it is for synthetic images, and for judging what was released. Trained and in evaluation
mode it treats each image by itself, and then it may be applied to records: `embed` is a fixed map.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR

from fedsynth.core.randomness import default_seed, torch_generator
from fedsynth.nn.compute_dtype import compute_type
from fedsynth.nn.per_example.gradients import loss_and_gradients
from fedsynth.nn.transforms.augment import random_affine

BATCH, RATE, WEIGHT_DECAY = 128, 3e-3, 0.01
AT_ONCE = 256  # images of one pass without gradients


class PoolNet(nn.Module):
    """Three blocks of [3x3 convolution, batch norm, 2x2 max pool, ReLU] and a linear layer.

    Channels are width, 2 width, 2 width; 28 pixels shrink to 3, so width 32 gives 576 features.
    Weights lie channels last: a step takes half the time, pooling above all.
    """

    def __init__(self, width: int, classes: int, side: int, colours: int = 1) -> None:
        super().__init__()
        channels = (colours, width, 2 * width, 2 * width)
        self.blocks = nn.Sequential(
            *(self._block(channels[i], channels[i + 1]) for i in range(3)), nn.Flatten()
        )
        self.features = channels[3] * (side // 8) ** 2
        self.classifier = nn.Linear(self.features, classes)
        self.channels_last()

    def channels_last(self) -> PoolNet:
        """Weights laid out for speed; loading arrays undoes it.

        Copied into place: with one input channel a weight counts as laid out either way, and what
        follows goes by its strides."""
        for weight in self.parameters():
            if weight.dim() == 4:
                laid_out = torch.empty_like(weight.data, memory_format=torch.channels_last)
                weight.data = laid_out.copy_(weight.data)
        return self

    @staticmethod
    def _block(before: int, after: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(before, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.MaxPool2d(2),
            nn.ReLU(inplace=True),  # after pooling: the same values, a quarter of the work
        )

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """The logits of images on the pixel scale."""
        return self.classifier(self.blocks(2 * pixels - 0.5))

    @torch.inference_mode()
    def embed(self, pixels: torch.Tensor) -> torch.Tensor:
        """The features of each image by itself: [n, features]. Puts the net in evaluation mode."""
        self.eval()
        device = self.classifier.weight.device
        parts = [self.blocks(2 * part.to(device) - 0.5) for part in pixels.split(AT_ONCE)]
        return torch.cat(parts) if parts else torch.zeros(0, self.features, device=device)


def train_pool_net(
    images: torch.Tensor,
    places: torch.Tensor,
    classes: int,
    *,
    width: int,
    steps: int,
    key: tuple[object, ...],
    device: torch.device,
) -> PoolNet:
    """A net trained on synthetic images and the places of their classes: AdamW in one cycle, every
    image turned, stretched, sheared and moved a little. `key` is all its randomness. Products are
    taken in bfloat16 where the machine has instructions for that."""
    with default_seed(*key, "pool net"):
        net = PoolNet(width, classes, images.shape[-1]).to(device)
    generator = torch_generator(*key, "pool training")
    optimiser = torch.optim.AdamW(net.parameters(), RATE, weight_decay=WEIGHT_DECAY, fused=True)
    cycle = OneCycleLR(optimiser, RATE, total_steps=steps + 1)
    compute = compute_type("auto", device)
    net.train()
    for _ in range(steps):
        chosen = torch.randint(0, len(images), (BATCH,), generator=generator)
        x = random_affine(images[chosen], generator, degrees=12, scale=0.12, shear=0.15)
        _, slopes = loss_and_gradients(
            net, x.to(device), places[chosen].to(device), compute=compute
        )
        for weight, slope in zip(net.parameters(), slopes, strict=True):
            weight.grad = slope
        optimiser.step()
        cycle.step()
    return net.eval()
