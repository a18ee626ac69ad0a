"""What follows from the sketch without the records: pool, pool-net, features, and the released set.

All of it is post-processing of noised sums and of sets that are public already, drawn with public
randomness: whoever has the sketch could do it. A party that releases alone does it at home; in the
joint form the curator does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch.nn import functional

from fedsynth.core.outcomes import Outcome, SyntheticSet
from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import DatasetInfo
from fedsynth.methods.common.class_indices import argmax_covering_classes
from fedsynth.methods.dpdc.condensation import condense
from fedsynth.methods.sketch_teach.class_model import Ask, ClassModel, ClassModelEstimator
from fedsynth.methods.sketch_teach.config import Recipe, SketchTeachConfig
from fedsynth.methods.sketch_teach.linear_teacher import (
    FeatureMap,
    Head,
    first_head,
    gradient_factors,
    places_in,
)
from fedsynth.nn.classifiers.poolnet import INFERENCE_BATCH, train_pool_net
from fedsynth.nn.transforms.augment import random_affine
from fedsynth.nn.transforms.image_priors import elastic
from fedsynth.privacy.outer_products import clipped_outer_sum

DRAWN_AT_ONCE = 2000


def portrayed(
    ask: Ask,
    recipe: Recipe,
    classes: Sequence[int],
    *,
    records: int,
    key: tuple[object, ...],
    times: float = 1.0,
) -> dict[int, ClassModel]:
    """The classes behind the answers to this recipe's questions, `times` as noisy as one party's;
    `records` are those of all of them."""
    sitting = ClassModelEstimator(
        ask,
        recipe.sketch,
        classes,
        multipliers=recipe.sketch_multipliers,
        records=records,
        times=times,
    )
    return sitting.portraits(recipe.cells, torch_generator(*key, "cells"))


def pictures(
    models: Sequence[ClassModel],
    each: int,
    recipe: Recipe,
    *,
    side: int,
    generator: torch.Generator,
    temperature: float,
) -> torch.Tensor:
    """`each` images of every class, one class after another, bent and enriched."""
    made = []
    for model in models:
        for n in _pieces(each):
            images, norms = model.sample(n, side, generator, temperature)
            images = recipe.prior.intensity(images, norms)
            images = elastic(images, generator, recipe.elastic)
            enriched = recipe.prior.enrich(images, generator)
            chosen = torch.rand(n, generator=generator) < recipe.enriched
            made.append(torch.where(chosen.view(-1, 1, 1, 1), enriched, images))
    return torch.cat(made)


def _pieces(n: int) -> list[int]:
    return [min(DRAWN_AT_ONCE, n - at) for at in range(0, n, DRAWN_AT_ONCE)]


class SetSynthesizer:
    """From class models to a feature map and a first head, and from a taught head to a set."""

    def __init__(
        self,
        cfg: SketchTeachConfig,
        recipe: Recipe,
        data: DatasetInfo,
        models: Mapping[int, ClassModel],
        *,
        earlier: SyntheticSet | None,
        key: tuple[object, ...],
        device: torch.device,
    ) -> None:
        """`earlier` holds images of other classes that the head must tell from these."""
        self._cfg, self._recipe, self._data, self._key = cfg, recipe, data, key
        self._models = models
        strangers: list[int] = [] if earlier is None else sorted(set(earlier.labels.tolist()))
        self.order = [*models, *(c for c in strangers if c not in models)]
        side = data.shape[-1]
        generator = torch_generator(*key, "pool")
        pool = pictures(
            list(models.values()),
            cfg.pool,
            recipe,
            side=side,
            generator=generator,
            temperature=1.0,
        )
        names = torch.tensor(list(models)).repeat_interleave(cfg.pool)
        if earlier is not None:
            pool = torch.cat([pool, earlier.pixels()])
            names = torch.cat([names, earlier.labels])
        self.net = train_pool_net(
            pool,
            places_in(names, self.order),
            len(self.order),
            width=cfg.width,
            steps=cfg.pool_steps,
            key=key,
            device=device,
        )
        self.features = FeatureMap.fit(self.net, pool, cfg.scattering)
        rows = self.features(pool)
        with torch.inference_mode():
            logits = [self.net(part.to(device)) for part in pool.split(INFERENCE_BATCH)]
        self._start = first_head(rows, torch.cat(logits))
        own = len(models) * cfg.pool
        self._negatives = (rows[own:], places_in(names[own:], self.order))

    def head(self) -> Head:
        """The head before it has met a record."""
        recipe = self._recipe
        return Head(self._start, steps=recipe.steps, rate=self._cfg.rate, momentum=recipe.momentum)

    def mean_gradient(
        self, weights: torch.Tensor, total: torch.Tensor, records: int
    ) -> torch.Tensor:
        """The gradient over the records (`total` is their noised sum) and over earlier images, a
        class of which weighs as much as a class of records."""
        rows, places = self._negatives
        if not len(rows):
            return total / records
        strangers = len(places.unique())
        weight = records / len(self._models) * strangers / len(rows)
        left, right = gradient_factors(weights, rows, places)
        others = clipped_outer_sum(left, right, self._cfg.clip)
        return (total + weight * others) / (records + weight * len(rows))

    def released(self, weights: torch.Tensor) -> SyntheticSet:
        """The set: fresh images, more varied than the pool, with the head's opinion of each; or few
        images matched to such a set. An image that was made for a class keeps it as its label."""
        cfg, recipe = self._cfg, self._recipe
        if cfg.drawn is None:
            return self._labelled(self._drawn(recipe.spc), weights)
        large = self._labelled(self._drawn(cfg.drawn), weights)
        small = condense(
            cfg.condensation(recipe.spc),
            large,
            self._data,
            key=(*self._key, "small"),
            device=self.features.centre.device,
        )
        if cfg.labels == "hard":
            return small
        return replace(small, soft=self._labelled(small.images, weights).soft)

    def _drawn(self, each: int) -> torch.Tensor:
        """Fresh images, `each` a class, as bytes."""
        recipe, side = self._recipe, self._data.shape[-1]
        generator = torch_generator(*self._key, "set")
        models = list(self._models.values())
        images = pictures(
            models,
            each,
            recipe,
            side=side,
            generator=generator,
            temperature=recipe.temperature,
        )
        images = images[torch.randperm(len(images), generator=generator)]
        moved = torch.rand(len(images), generator=generator) < recipe.moved
        for chosen in moved.nonzero().flatten().split(DRAWN_AT_ONCE) if moved.any() else ():
            images[chosen] = random_affine(images[chosen], generator)
        return (images.clamp(0, 1) * 255).round().to(torch.uint8)

    def _labelled(self, images: torch.Tensor, weights: torch.Tensor) -> SyntheticSet:
        """These images with the head's opinion. Earlier classes helped to teach; the set is not
        about them."""
        own = len(self._models)
        logits = (self.features(images / 255) @ weights.T).cpu()[:, :own]
        names = torch.tensor(self.order[:own])
        labels = names[argmax_covering_classes(logits)]
        if self._cfg.labels == "hard":
            return SyntheticSet(images, labels)
        soft = torch.zeros(len(images), self._data.classes)
        soft[:, names] = functional.softmax(logits, dim=1)
        return SyntheticSet(images, labels, soft)


def shown_negatives(cfg: SketchTeachConfig, inherited: Sequence[Outcome]) -> SyntheticSet | None:
    """What the next teacher is shown of earlier sets: the first images of every class."""
    sets = [outcome for outcome in inherited if isinstance(outcome, SyntheticSet)]
    if not cfg.negatives or not sets:
        return None
    hard = SyntheticSet.join([replace(outcome, soft=None) for outcome in sets])
    first = [
        torch.nonzero(hard.labels == name).flatten()[: cfg.negatives]
        for name in hard.labels.unique()
    ]
    chosen = torch.cat(first)
    return SyntheticSet(hard.images[chosen], hard.labels[chosen])


def others_than(own: Sequence[int], earlier: SyntheticSet | None) -> SyntheticSet | None:
    """Earlier images without those of classes that records speak for themselves."""
    if earlier is None:
        return None
    others = ~torch.isin(earlier.labels, torch.tensor(list(own)))
    return SyntheticSet(earlier.images[others], earlier.labels[others]) if others.any() else None
