"""PoolNet: a small batch-norm CNN for images that are already synthetic.

Claim: applied to records in evaluation mode, a trained PoolNet is a fixed map of each image by
itself. Assumption: it was trained on synthetic images only, since batch norm mixes the images of a
batch and training on records would not be private. It serves as a student of released images and,
through `embed`, as a fixed feature map.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR

from fedsynth.core.errors import UserError
from fedsynth.core.randomness import default_seed, torch_generator
from fedsynth.core.types import Shape
from fedsynth.nn import optimizers
from fedsynth.nn.compute_dtype import ComputeDtype, compute_type
from fedsynth.nn.per_example.gradients import loss_and_gradients
from fedsynth.nn.transforms.augment import random_affine

BATCH, LEARNING_RATE, WEIGHT_DECAY = 128, 3e-3, 0.01
INFERENCE_BATCH = 256  # images per pass without gradients


class PoolNet(nn.Module):
    """Three blocks of [3x3 convolution, batch norm, 2x2 max pool, ReLU] and a linear layer.

    Channels are width, 2 width, 2 width; 28 pixels shrink to 3, so width 32 gives 576 features.
    Weights are stored channels last, which halves the time of a step (mainly pooling).
    """

    def __init__(self, width: int, classes: int, side: int, colours: int = 1) -> None:
        super().__init__()
        channels = (colours, width, 2 * width, 2 * width)
        self.blocks = nn.Sequential(
            *(_block(channels[i], channels[i + 1]) for i in range(3)), nn.Flatten()
        )
        self.features = channels[3] * (side // 8) ** 2
        self.classifier = nn.Linear(self.features, classes)
        self.channels_last()

    def channels_last(self) -> PoolNet:
        """Store the weights channels last; necessary again after loading a state.

        The values are copied because a weight with one input channel counts as channels last
        whatever its strides are, and the kernels choose by strides."""
        for weight in self.parameters():
            if weight.dim() == 4:
                stored = torch.empty_like(weight.data, memory_format=torch.channels_last)
                weight.data = stored.copy_(weight.data)
        return self

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """The logits of images in the pixel scale."""
        return self.classifier(self.blocks(2 * pixels - 0.5))

    @torch.inference_mode()
    def embed(self, pixels: torch.Tensor) -> torch.Tensor:
        """The features of each image by itself: [n, features]. Sets evaluation mode."""
        self.eval()
        device = self.classifier.weight.device
        parts = [self.blocks(2 * part.to(device) - 0.5) for part in pixels.split(INFERENCE_BATCH)]
        return torch.cat(parts) if parts else torch.zeros(0, self.features, device=device)


def _block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.MaxPool2d(2),
        nn.ReLU(inplace=True),  # after pooling: the same values at a quarter of the cost
    )


def build(shape: Shape, classes: int, width: int) -> nn.Module:
    """See `classifiers.registry`."""
    channels, height, image_width = shape
    if height != image_width or height < 8:
        raise UserError(
            f"classifier 'poolnet' needs square images of at least 8 pixels, "
            f"got {height}x{image_width}."
        )
    return PoolNet(width, classes, height, channels)


def train_pool_net(
    images: torch.Tensor,
    targets: torch.Tensor,
    classes: int,
    *,
    width: int,
    steps: int,
    key: tuple[object, ...],
    device: torch.device,
) -> PoolNet:
    """Train a `PoolNet` on synthetic images with AdamW and a one-cycle schedule.

    Each image is rotated, stretched, sheared and shifted at random. Products are computed in
    bfloat16 where the processor has instructions for it.

    Args:
        images: In the pixel scale, [n, c, h, w].
        targets: Class indices 0..classes-1, or probabilities [n, classes].
        classes: Number of outputs.
        width: Channels of the first convolution.
        steps: Number of batches of `BATCH` images, drawn with replacement.
        key: Determines all randomness.
        device: Where to train.

    Returns:
        The network in evaluation mode.
    """
    with default_seed(*key, "pool net"):
        net = PoolNet(width, classes, images.shape[-1]).to(device)
    generator = torch_generator(*key, "pool training")
    optimiser = optimizers.AdamW(
        net.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True
    )
    schedule = OneCycleLR(optimiser, LEARNING_RATE, total_steps=steps + 1)
    compute = compute_type(ComputeDtype.AUTO, device)
    net.train()
    for _ in range(steps):
        chosen = torch.randint(0, len(images), (BATCH,), generator=generator)
        x = random_affine(images[chosen], generator, degrees=12, scale=0.12, shear=0.15)
        _, gradients = loss_and_gradients(
            net, x.to(device), targets[chosen].to(device), compute=compute
        )
        for weight, gradient in zip(net.parameters(), gradients, strict=True):
            weight.grad = gradient
        optimiser.step()
        schedule.step()
    return net.eval()
