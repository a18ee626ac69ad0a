"""Post-processing of the sketch: images of the class models, the features, and the released set.

All of it works on noised sums and on sets that are public already, with public randomness. A party
that releases alone does it itself; in the joint form the server does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch.nn import functional

from fedsynth.core.outcomes import Outcome, SyntheticSet
from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import DatasetInfo
from fedsynth.data.records import class_indices
from fedsynth.methods.common.class_indices import argmax_covering_classes
from fedsynth.methods.dpdc.condensation import condense
from fedsynth.methods.sketch_teach.class_model import Ask, ClassModel, ClassModelEstimator
from fedsynth.methods.sketch_teach.config import LabelKind, ReleaseParameters, SketchTeachConfig
from fedsynth.methods.sketch_teach.linear_teacher import (
    FeatureMap,
    Head,
    first_head,
    gradient_factors,
)
from fedsynth.nn.classifiers.poolnet import INFERENCE_BATCH, train_pool_net
from fedsynth.nn.transforms.augment import random_affine
from fedsynth.nn.transforms.image_priors import elastic
from fedsynth.privacy.outer_products import clipped_outer_sum

BATCH_SIZE = 2000


def estimate_class_models(
    ask: Ask,
    parameters: ReleaseParameters,
    classes: Sequence[int],
    *,
    records: int,
    key: tuple[object, ...],
    noise_scale: float = 1.0,
) -> dict[int, ClassModel]:
    """Estimate a model of each class from the noised answers to the sketch's queries.

    Args:
        ask: Returns the noised answer to a query.
        parameters: The numbers of this release.
        classes: The classes to estimate.
        records: The public number of their records.
        key: The key of the public randomness.
        noise_scale: The noise of the answers, relative to that of one party.
    """
    estimator = ClassModelEstimator(
        ask,
        parameters.sketch,
        classes,
        multipliers=parameters.sketch_multipliers,
        records=records,
        noise_scale=noise_scale,
    )
    return estimator.estimate(parameters.cells, torch_generator(*key, "cells"))


def sample_images(
    models: Sequence[ClassModel],
    per_class: int,
    parameters: ReleaseParameters,
    *,
    side: int,
    generator: torch.Generator,
    temperature: float,
) -> torch.Tensor:
    """Draw images of each class, one class after another, deformed and changed by the prior."""
    batches = []
    for model in models:
        for n in _batch_sizes(per_class):
            images, norms = model.sample(n, side, generator, temperature)
            images = parameters.prior.intensity(images, norms)
            images = elastic(images, generator, parameters.elastic)
            enriched = parameters.prior.enrich(images, generator)
            chosen = torch.rand(n, generator=generator) < parameters.enriched
            batches.append(torch.where(chosen.view(-1, 1, 1, 1), enriched, images))
    return torch.cat(batches)


def _batch_sizes(n: int) -> list[int]:
    return [min(BATCH_SIZE, n - start) for start in range(0, n, BATCH_SIZE)]


class SetSynthesizer:
    """Fits features to images of the class models, and labels a synthetic set by a trained head.

    Attributes:
        order: The classes of the head: those of the models, then earlier ones.
        net: The pool-net.
        features: The feature map.
    """

    def __init__(
        self,
        cfg: SketchTeachConfig,
        parameters: ReleaseParameters,
        data: DatasetInfo,
        models: Mapping[int, ClassModel],
        *,
        earlier: SyntheticSet | None,
        key: tuple[object, ...],
        device: torch.device,
    ) -> None:
        """
        Args:
            cfg: The settings.
            parameters: The numbers of this release.
            data: The public facts of the data.
            models: The model of each class.
            earlier: Images of other classes, from which the head must distinguish these classes.
            key: The key of the public randomness.
            device: The device to compute on.
        """
        self._cfg, self._parameters, self._data, self._key = cfg, parameters, data, key
        self._models = models
        earlier_classes = [] if earlier is None else sorted(set(earlier.labels.tolist()))
        self.order = [*models, *(c for c in earlier_classes if c not in models)]
        pool = sample_images(
            list(models.values()),
            cfg.pool,
            parameters,
            side=data.shape[-1],
            generator=torch_generator(*key, "pool"),
            temperature=1.0,
        )
        labels = torch.tensor(list(models)).repeat_interleave(cfg.pool)
        if earlier is not None:
            pool = torch.cat([pool, earlier.pixels()])
            labels = torch.cat([labels, earlier.labels])
        self.net = train_pool_net(
            pool,
            class_indices(labels, self.order),
            len(self.order),
            width=cfg.width,
            steps=cfg.pool_steps,
            key=key,
            device=device,
        )
        self.features = FeatureMap.fit(self.net, pool, cfg.scattering)
        rows = self.features(pool)
        with torch.inference_mode():
            logits = [self.net(batch.to(device)) for batch in pool.split(INFERENCE_BATCH)]
        self._initial_head = first_head(rows, torch.cat(logits))
        own = len(models) * cfg.pool
        self._negatives = (rows[own:], class_indices(labels[own:], self.order))

    def head(self) -> Head:
        """The head before its first step, fitted to synthetic images only."""
        return Head(
            self._initial_head,
            steps=self._parameters.steps,
            learning_rate=self._cfg.learning_rate,
            momentum=self._parameters.momentum,
        )

    def mean_gradient(
        self, weights: torch.Tensor, total: torch.Tensor, records: int
    ) -> torch.Tensor:
        """The mean gradient over the records and over earlier images.

        Earlier classes weigh as much per class as the classes of the records.

        Args:
            weights: The head.
            total: The noised gradient sum over the records.
            records: The public number of records.
        """
        rows, indices = self._negatives
        if not len(rows):
            return total / records
        earlier_classes = len(indices.unique())
        weight = records / len(self._models) * earlier_classes / len(rows)
        left, right = gradient_factors(weights, rows, indices)
        negatives = clipped_outer_sum(left, right, self._cfg.clip).to(total.dtype)
        return (total + weight * negatives) / (records + weight * len(rows))

    def synthesize(self, weights: torch.Tensor) -> SyntheticSet:
        """The set to release: fresh images, more varied than the pool and labelled by the head, or
        few images that are optimised to match such a set, each with the class it was made for."""
        cfg, parameters = self._cfg, self._parameters
        if cfg.matched_to is None:
            return self._label(self._sample(parameters.spc), weights)
        large = self._label(self._sample(cfg.matched_to), weights)
        small = condense(
            cfg.condensation(parameters.spc),
            large,
            self._data,
            key=(*self._key, "small"),
            device=self.features.centre.device,
        )
        if cfg.labels == LabelKind.HARD:
            return small
        return replace(small, soft=self._label(small.images, weights).soft)

    def _sample(self, per_class: int) -> torch.Tensor:
        """Fresh images of all classes in random order, as bytes."""
        generator = torch_generator(*self._key, "set")
        images = sample_images(
            list(self._models.values()),
            per_class,
            self._parameters,
            side=self._data.shape[-1],
            generator=generator,
            temperature=self._parameters.temperature,
        )
        images = images[torch.randperm(len(images), generator=generator)]
        moved = torch.rand(len(images), generator=generator) < self._parameters.moved
        for chosen in moved.nonzero().flatten().split(BATCH_SIZE) if moved.any() else ():
            images[chosen] = random_affine(images[chosen], generator)
        return (images.clamp(0, 1) * 255).round().to(torch.uint8)

    def _label(self, images: torch.Tensor, weights: torch.Tensor) -> SyntheticSet:
        """These images with the head's labels among the classes of the models."""
        own = len(self._models)
        logits = (self.features(images / 255) @ weights.T).cpu()[:, :own]
        classes = torch.tensor(self.order[:own])
        labels = classes[argmax_covering_classes(logits)]
        if self._cfg.labels == LabelKind.HARD:
            return SyntheticSet(images, labels)
        soft = torch.zeros(len(images), self._data.classes)
        soft[:, classes] = functional.softmax(logits, dim=1)
        return SyntheticSet(images, labels, soft)


def negative_examples(cfg: SketchTeachConfig, inherited: Sequence[Outcome]) -> SyntheticSet | None:
    """The first images of each earlier class, for the next party's teacher; None without any."""
    sets = [outcome for outcome in inherited if isinstance(outcome, SyntheticSet)]
    if not cfg.negatives or not sets:
        return None
    hard = SyntheticSet.join([replace(outcome, soft=None) for outcome in sets])
    first = [
        torch.nonzero(hard.labels == label).flatten()[: cfg.negatives]
        for label in hard.labels.unique()
    ]
    chosen = torch.cat(first)
    return SyntheticSet(hard.images[chosen], hard.labels[chosen])


def without_classes(classes: Sequence[int], earlier: SyntheticSet | None) -> SyntheticSet | None:
    """Earlier images except those of classes that the records themselves have."""
    if earlier is None:
        return None
    kept = ~torch.isin(earlier.labels, torch.tensor(list(classes)))
    return SyntheticSet(earlier.images[kept], earlier.labels[kept]) if kept.any() else None
