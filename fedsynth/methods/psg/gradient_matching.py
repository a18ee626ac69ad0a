"""Gradient matching: the loop that PSG, its joint form and its non-private reference share.

The synthetic images are optimised so that the gradient they give a network resembles the gradient
that the real records give it. Only the real gradient is private, and the caller of `match_run`
supplies it through a mechanism; everything in this file is post-processing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self, TypeVar

import torch
from torch import nn

from fedsynth.core.messages import Arrays, Request
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.randomness import torch_generator
from fedsynth.core.settings import setting
from fedsynth.core.types import Budget, ComputeCost, DatasetInfo, Stage
from fedsynth.methods.common.intermediate import KeptValues, intermediate_setting, kept_after
from fedsynth.methods.common.optimised_images import OptimisedImages
from fedsynth.methods.method import Method, PartyContext, ServerContext
from fedsynth.nn.classifiers.convnet import RedrawnConvNet
from fedsynth.nn.compute_dtype import ComputeDtype, compute_type
from fedsynth.nn.matching_gradient.gradient import matching_gradient
from fedsynth.nn.per_example.gradients import loss_and_gradients
from fedsynth.privacy.clipping import LEAST_CLIP, MOST_CLIP

OUTER_INNER = {  # images per class -> (outer, inner) of the paper and its program
    1: (1, 1),
    10: (10, 50),
    20: (20, 25),
    30: (30, 20),
    40: (40, 15),
    50: (50, 10),
    100: (50, 10),
}
RUNS, RUNS_LARGE_BUDGET = 200, 1000  # fresh networks (R) at epsilon 1, at epsilon 10
NET_BATCH = 256  # images in a batch of the inner training
LAPTOP = {  # settings of the smoke and laptop presets of PSG and its relatives
    "width": 32,
    "outer": 1,
    "inner": 0,
    "image_learning_rate": 0.5,
    "image_init": 0.1,
    "updates": 3,
}


class InnerSet(StrEnum):
    """The images of the inner training."""

    OWN = "own"  # of the classes that are matched
    ALL = "all"  # also what earlier stages released


@dataclass(frozen=True)
class MatchingConfig:
    """The settings of the loop; the defaults are the published ones."""

    spc: int = setting(10, "synthetic images per class", at_least=1, at_most=1_000_000)
    runs: int | None = setting(
        None, "fresh networks (R); none: published, by budget and stages", at_least=1
    )
    outer: int | None = setting(None, "outer steps per network (T); none: by spc", at_least=1)
    inner: int | None = setting(None, "epochs of network training (J); none: by spc", at_least=0)
    batches: int = setting(10, "real gradients per outer step (K)", at_least=1)
    batch: int = setting(256, "expected size of a real batch (B)", at_least=1)
    image_learning_rate: float = setting(
        0.1, "learning rate of the images", above=0, formerly="image_rate"
    )
    image_momentum: float = setting(0.5, "momentum of the images", at_least=0, at_most=0.999)
    image_init: float = setting(1.0, "standard deviation of the first images", at_least=0)
    updates: int = setting(
        1, "image updates per real gradient (post-processing: they cost no privacy)", at_least=1
    )
    net_learning_rate: float = setting(
        0.01, "learning rate of the inner training", above=0, formerly="net_rate"
    )
    inner_set: InnerSet = setting(InnerSet.OWN, "images of the inner training: own classes or all")
    width: int = setting(128, "width of the ConvNet", at_least=1)
    matching_dtype: ComputeDtype = setting(
        ComputeDtype.AUTO,
        "arithmetic of matching and inner training, which touch no record (auto: bfloat16 if the "
        "machine has instructions for it)",
    )

    intermediate: int = intermediate_setting("runs")

    @property
    def outer_inner(self) -> tuple[int, int]:
        """(T, J): as set, else the published pair of the nearest published spc."""
        nearest = min(OUTER_INNER, key=lambda spc: abs(spc - self.spc))
        outer, inner = OUTER_INNER[nearest]
        return (
            outer if self.outer is None else self.outer,
            inner if self.inner is None else self.inner,
        )

    @property
    def networks(self) -> int:
        """R: as set, else the published number of class-incremental learning."""
        return RUNS if self.runs is None else self.runs

    def at_budget(self, stages: int, epsilon: float) -> Self:
        """These settings with the published number of runs, where none is set.

        It is 1,000 for a single stage at epsilon 10 and without privacy, and 200 at epsilon 1 and
        for several stages; other budgets have that of the nearer one.
        """
        if self.runs is not None:
            return self
        large = stages == 1 and epsilon >= math.sqrt(10)
        return replace(self, runs=RUNS_LARGE_BUDGET if large else RUNS)

    @property
    def steps(self) -> int:
        """The number of real gradients: R T K."""
        return self.networks * self.outer_inner[0] * self.batches

    @property
    def kept_runs(self) -> tuple[int, ...]:
        """The numbers of runs after which an intermediate set is kept."""
        return kept_after(self.networks, self.intermediate)

    def matching_cost(self, classes: int) -> tuple[ComputeCost, ...]:
        """The work of the loop besides the real gradients."""
        images = self.spc * classes
        outer, inner = self.outer_inner
        trained = self.networks * (outer - 1) * inner * -(-images // NET_BATCH)
        return (
            ComputeCost(
                "match", self.width, images, self.steps * self.updates, self.matching_dtype
            ),
            ComputeCost("train", self.width, min(images, NET_BATCH), trained, self.matching_dtype),
        )


@dataclass(frozen=True)
class PrivateMatchingConfig(MatchingConfig):
    """The settings of the loop on clipped, noised gradients."""

    clip: float = setting(
        0.1, "bound C on a record's gradient", at_least=LEAST_CLIP, at_most=MOST_CLIP
    )
    dtype: ComputeDtype = setting(ComputeDtype.FLOAT32, "arithmetic of the real gradient")


def row_cosine_distance(
    real: Sequence[torch.Tensor], synthetic: Sequence[torch.Tensor]
) -> torch.Tensor:
    """The sum of 1 - cosine over the rows (output nodes) of all weights of two or more dimensions.

    Biases and norm parameters do not count. A positive factor on either side changes nothing."""
    loss = torch.zeros((), device=real[0].device)
    for a, b in zip(real, synthetic, strict=True):
        if a.dim() >= 2:
            rows_a, rows_b = a.flatten(1), b.flatten(1)
            dot = (rows_a * rows_b).sum(1)
            lengths = rows_a.norm(dim=1) * rows_b.norm(dim=1) + 1e-6
            loss = loss + (1 - dot / lengths).sum()
    return loss


class MatchedImages(OptimisedImages[MatchingConfig]):
    """The synthetic images of some classes while they are being matched."""

    def start(self) -> None:
        super().start()
        self.compute = compute_type(self.cfg.matching_dtype, self.labels.device)
        self.kept = KeptValues(self.cfg.kept_runs, self.images)
        device = self.images.device
        self._networks = RedrawnConvNet(self.cfg.width, self.data, self.data.classes, device)

    @property
    def state(self) -> dict[str, Any]:
        """The state to checkpoint; restored in place."""
        return {**super().state, **self.kept.state}

    def keep(self, runs: int) -> None:
        """Keep the current images if an intermediate set is due after so many runs."""
        if self.kept.due(runs):
            self.kept.keep(runs, self.images)

    def result(self) -> SyntheticSet:
        final, per_run = super().result(), self.cfg.steps // self.cfg.networks
        earlier = {
            runs * per_run: SyntheticSet(self.scale.to_pixels(images), final.labels)
            for runs, images in self.kept
        }
        return replace(final, earlier=earlier)

    def network(self, run: int) -> nn.Module:
        """The network of one run, over all classes of the data set, with fresh and public weights;
        those of the run before are overwritten."""
        return self._networks.draw(*self.key, "network", run)

    def match(self, net: nn.Module, real: Sequence[torch.Tensor]) -> None:
        """Update the images such that they give this network a gradient more like `real`."""
        distance = functools.partial(row_cosine_distance, [g for g in real if g.dim() >= 2])
        for _ in range(self.cfg.updates):
            self.move(
                matching_gradient(net, self.images, self.labels, distance, compute=self.compute)
            )

    def move(self, gradient: torch.Tensor) -> None:
        """Take one step against the gradient of the loss at the images."""
        self.descend(gradient, self.cfg.image_learning_rate)

    def train(
        self, net: nn.Module, run: int, outer: int, others: SyntheticSet | None = None
    ) -> None:
        """Train the network for J epochs of plain SGD on the images, and on `others` if given."""
        images, labels = self.images.detach(), self.labels
        if others is not None:
            images = torch.cat([images, self.scale.to_network(others.pixels()).to(images.device)])
            labels = torch.cat([labels, others.labels.to(labels.device)])
        parameters: list[torch.Tensor] = list(net.parameters())
        generator = torch_generator(*self.key, "inner", run, outer)
        for _ in range(self.cfg.outer_inner[1]):
            order = torch.randperm(len(labels), generator=generator).to(images.device)
            for part in order.split(NET_BATCH):
                _, gradients = loss_and_gradients(
                    net, images[part], labels[part], compute=self.compute
                )
                with torch.no_grad():
                    torch._foreach_add_(parameters, gradients, alpha=-self.cfg.net_learning_rate)


def match_run(
    matched: MatchedImages,
    run: int,
    real_gradient: Callable[[nn.Module, int], Sequence[torch.Tensor]],
    others: SyntheticSet | None = None,
) -> None:
    """Run the loop on one fresh network: T times K matched gradients and J epochs of training.

    Args:
        matched: The images, updated in place.
        run: The number of the run, 0 to R - 1.
        real_gradient: Supplies the private gradient of a network; calls are numbered over all
            runs.
        others: Images of classes that are not matched, for the inner training.
    """
    cfg = matched.cfg
    outer_steps, _ = cfg.outer_inner
    net = matched.network(run)
    call = run * outer_steps * cfg.batches
    for outer in range(outer_steps):
        for _ in range(cfg.batches):
            matched.match(net, real_gradient(net, call))
            call += 1
        if outer < outer_steps - 1:
            matched.train(net, run, outer, others)
    matched.keep(run + 1)


C = TypeVar("C")
M = TypeVar("M", bound=MatchingConfig)


class MatchingMethod(Method[M]):
    """A method of this loop: the published number of runs, and stages that may share images."""

    def at_budget(self, cfg: M, stages: Sequence[Stage], budget: Budget) -> M:
        return cfg.at_budget(len(stages), budget.epsilon)

    def inherits(self, cfg: M) -> bool:
        return cfg.inner_set == InnerSet.ALL


def classes_of_party(ctx: PartyContext[C]) -> list[int]:
    """The classes that a party holds, in the order of the stage."""
    return sorted(ctx.info.class_counts, key=ctx.plan.stage.classes.index)


def inner_set_request(ctx: ServerContext[M]) -> Request:
    """The seed and, with `inner_set=all`, the images that earlier stages released."""
    arrays: Arrays = {}
    if ctx.config.inner_set == InnerSet.ALL and ctx.inherited:
        earlier = SyntheticSet.join([s for s in ctx.inherited if isinstance(s, SyntheticSet)])
        arrays = replace(earlier, earlier={}).to_arrays()
    return Request(arrays=arrays, scalars={"seed": ctx.seed})


def other_classes(
    cfg: MatchingConfig, data: DatasetInfo, matched: MatchedImages, earlier: SyntheticSet | None
) -> SyntheticSet | None:
    """The images of other classes for the inner training; None unless `inner_set=all`.

    They are those of earlier stages (`earlier`) and noise for the classes of later ones."""
    if cfg.inner_set == InnerSet.OWN:
        return None
    present = set(matched.labels.tolist()) | set(earlier.labels.tolist() if earlier else [])
    later = [c for c in range(data.classes) if c not in present for _ in range(cfg.spc)]
    noise = torch.randn(
        (len(later), *data.shape), generator=torch_generator(*matched.key, "future")
    )
    placeholders = SyntheticSet(
        matched.scale.to_pixels(noise * cfg.image_init), torch.tensor(later, dtype=torch.int64)
    )
    return placeholders if earlier is None else SyntheticSet.join([earlier, placeholders])
