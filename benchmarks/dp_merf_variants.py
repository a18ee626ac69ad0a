"""Variants of DP-MERF in mini-batches, judged by quick classifiers on a hold-out of MNIST.

    python benchmarks/dp_merf_variants.py [--generator linear] [--features 10000] ...

GS-WGAN's supplement prints batch size 500, noise .588 and 600 steps for DP-MERF, and numbers below
ours. This trains the generator as `dp_merf_batches` does, with shuffled batches of a fixed size, on
55,000 training records, and prints accuracies of five classifiers on the other 5,000. Not private:
noise comes from an ordinary generator.
"""

from __future__ import annotations

import argparse
import math
import time

import torch
from torch import Tensor, nn

from fedsynth.core.types import DatasetInfo
from fedsynth.data.registry import load
from fedsynth.evaluation.classical_classifiers import CLASSICAL
from fedsynth.methods.mean_embedding.output_space import ImageLayers, output_space

HOLDOUT, CLASSES, DECAY = 5000, 10, 0.9
INFO = DatasetInfo("images", (1, 28, 28), CLASSES, (0.5,), (0.5,))
JUDGES = ("gaussian_nb", "bernoulli_nb", "lda", "decision_tree", "bagging")


def trained(given: argparse.Namespace, images: Tensor, labels: Tensor) -> nn.Module:
    """A generator trained towards noised means of random features, batch by batch."""
    torch.manual_seed(given.seed)
    width = given.features
    frequencies = torch.randn(width // 2, 784) / math.sqrt(given.scale)
    generator = torch.Generator().manual_seed(given.seed + 500)

    def features(x: Tensor) -> Tensor:
        angles = (2 * x - 1 if given.symmetric else x) @ frequencies.t()
        return torch.cat([angles.cos(), angles.sin()], dim=1) / math.sqrt(width / 2)

    net = output_space(INFO, given.generator).generator(given.latent, CLASSES)
    adam = torch.optim.Adam(net.parameters(), given.learning_rate)
    per_epoch = len(images) // given.batch
    order = torch.arange(len(images))
    for step in range(given.steps):
        if step % per_epoch == 0:
            order = torch.randperm(len(images), generator=generator)
        start = step % per_epoch * given.batch
        batch = order[start : start + given.batch]
        mean = torch.zeros(CLASSES, width).index_add_(0, labels[batch], features(images[batch]))
        noise = 2 * given.noise * torch.randn(CLASSES, width, generator=generator)
        target = (mean + noise) / given.batch
        for group in adam.param_groups:
            group["lr"] = given.learning_rate * DECAY ** (step * 5 // given.steps)
        drawn = torch.randint(CLASSES, (given.batch,), generator=generator)
        drawn = labels[batch] if given.labels == "batch" else drawn
        latents = torch.randn(given.batch, given.latent, generator=generator)
        one_hot = nn.functional.one_hot(drawn, CLASSES).float()
        made = one_hot.t() @ features(net(latents, drawn).flatten(1)) / given.batch
        adam.zero_grad()
        (target - made).square().sum().backward()
        adam.step()
    return net.train(given.train_mode)


def main() -> None:
    """Print an accuracy per classifier, and processor time."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--generator", choices=list(ImageLayers), default="convolutions")
    parser.add_argument("--features", type=int, default=1000)
    parser.add_argument("--scale", type=float, default=105.0, help="squared length scale")
    parser.add_argument("--noise", type=float, default=0.588, help="over the sensitivity 2/batch")
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--latent", type=int, default=5)
    parser.add_argument("--labels", choices=("uniform", "batch"), default="uniform")
    parser.add_argument("--symmetric", action="store_true", help="pixels in [-1, 1] for features")
    parser.add_argument("--train-mode", action="store_true", help="draw with statistics of a batch")
    parser.add_argument("--images", type=int, default=10_000, help="drawn for the classifiers")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    begun = time.process_time()
    pixels, labels = load(given.data, "train")
    pixels = pixels.float().div(255).flatten(1)
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(99))
    held, own = order[:HOLDOUT], order[HOLDOUT:]
    net = trained(given, pixels[own], labels[own])
    drawn = torch.arange(CLASSES).repeat(given.images // CLASSES)
    latents = torch.randn(len(drawn), given.latent)
    with torch.no_grad():
        parts = zip(latents.split(500), drawn.split(500), strict=True)
        images = torch.cat([net(z, y).flatten(1) for z, y in parts]).numpy()
    for name in JUDGES:
        fitted = CLASSICAL[name](0, CLASSES, len(images)).fit(images, drawn.numpy())
        right = fitted.predict(pixels[held].numpy()) == labels[held].numpy()
        print(f"{name}: {right.mean():.3f}")
    print(f"{time.process_time() - begun:.0f} s of processor time")


if __name__ == "__main__":
    main()
