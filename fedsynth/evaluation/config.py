"""The `evaluation.` keys: the protocol, and departures from it that make a run cheaper."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from fedsynth.core.enums import DataKind
from fedsynth.core.errors import UserError, nearest, unknown
from fedsynth.core.settings import setting
from fedsynth.core.types import DatasetInfo
from fedsynth.evaluation.classical_classifiers import SUITE, unavailable
from fedsynth.evaluation.protocols import PROTOCOLS, Protocol, TrainingSchedule, protocol
from fedsynth.nn.classifiers.registry import CLASSIFIERS, FOR_TABLES, FREE_WIDTH, classifier
from fedsynth.nn.compute_dtype import ComputeDtype

PRESETS: dict[str, dict[str, dict[str, int]]] = {
    "G": {
        "smoke": {"suite_images": 500, "max_images": 10_000},
        "laptop": {"suite_images": 5000, "max_images": 100_000},
    },
    "P": {"smoke": {"max_images": 20_000}, "laptop": {"max_images": 400_000}},
    "D": {"smoke": {"max_images": 20_000}, "laptop": {"max_images": 1_200_000}},
    "L": {
        "smoke": {"max_images": 20_000, "batch": 16},
        "laptop": {"max_images": 100_000, "batch": 16},
    },
}
"""Defaults of the cheaper presets per protocol. Those of P and D shorten only training on tens of
thousands of images; training on small sets is as published."""

SEPARATE = ("G", "L")  # protocols that ignore training keys given for another protocol

SCORERS: dict[str, dict[str, int]] = {
    "smoke": {"scorer_width": 8, "scorer_images": 10_000},
    "laptop": {"scorer_width": 16, "scorer_images": 60_000},
}

TRAINING_KEYS = ("classifier", "nets", "epochs", "max_images", "batch", "suite_images")
"""Keys whose values are chosen for one protocol."""


def merge_layers(layers: list[dict[str, object]], preset: str | None) -> dict[str, object]:
    """Merge the keys of several layers over those of the preset; later layers win.

    Training keys from before the layer that names protocol G or L are dropped: they were chosen for
    another protocol.
    """
    base: dict[str, object] = dict(SCORERS.get(preset or "", {}))
    naming = [i for i, layer in enumerate(layers) if "protocol" in layer]
    if naming:
        first = naming[-1]
        name = str(layers[first]["protocol"])
        base |= PRESETS.get(name, {}).get(preset or "", {})
        if name in SEPARATE and preset:
            earlier = [
                {k: v for k, v in layer.items() if k not in TRAINING_KEYS}
                for layer in layers[:first]
            ]
            layers = [*earlier, *layers[first:]]
    return {**base, **{k: v for layer in layers for k, v in layer.items()}}


LIMITS = {  # least and most
    "width": (1, 4096),
    "nets": (0, 10_000),
    "epochs": (0, 1_000_000),
    "max_images": (0, 10**12),
    "batch": (0, 1_000_000),
    "images_per_class": (0, 10_000_000),
    "suite_images": (0, 10**9),
    "scorer_width": (1, 1024),
    "scorer_images": (0, 10**12),
}


@dataclass(frozen=True)
class EvaluationConfig:
    """The protocol and departures from it; the defaults and a value of 0 follow the protocol."""

    protocol: str = setting("P", f"protocol of training: {', '.join(PROTOCOLS)}")
    classifier: tuple[str, ...] = setting(
        (),
        "classifiers to train, one or several; default as published: convnet (P, D), poolnet "
        f"(S), keras_cnn (L), all 13 (G). P, D, S, L: {', '.join(CLASSIFIERS)}. "
        f"G: {', '.join(SUITE)}",
    )
    width: int = setting(128, "width of the ConvNet or PoolNet")
    nets: int = setting(0, "fresh networks per classifier and released set; 0: as published")
    epochs: int = setting(0, "E; P, D and S train for E + 1 epochs; 0: as published")
    max_images: int = setting(0, "cap on the image passes of one training; 0: none")
    batch: int = setting(
        0, "batch size; smaller ones give more steps on as many images; 0: as published"
    )
    images_per_class: int = setting(
        0, "train on a random choice of so many images per class of the released set; 0: on all"
    )
    dtype: ComputeDtype = setting(
        ComputeDtype.FLOAT32,
        "type of matrix products and convolutions in training (bfloat16: as under autocast; auto: "
        "bfloat16 if the machine has instructions for it)",
    )
    suite_images: int = setting(
        0, "G: cap on the images that classifiers are fitted on, balanced over classes; 0: 60,000"
    )

    quality: bool = setting(
        False, "also compute Inception Score and FID-lite of the released images"
    )
    scorer_width: int = setting(64, "width of the network that computes these two")
    scorer_images: int = setting(0, "cap on the image passes of its training; 0: 50 epochs")
    fid_weights: str = setting(
        "",
        "with quality, weights of Inception for FID: a file, cache (that of torch), or download",
    )

    def __post_init__(self) -> None:
        protocol(self.protocol)
        given = (self.classifier,) if isinstance(self.classifier, str) else tuple(self.classifier)
        object.__setattr__(self, "classifier", tuple(dict.fromkeys(given)))
        for name in self.classifier:
            if name not in (known := {*CLASSIFIERS, *SUITE}):
                raise unknown("classifier", name, known)
        if self.dtype not in tuple(ComputeDtype):
            raise unknown("dtype", self.dtype, ComputeDtype)
        for name, (least, most) in LIMITS.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise UserError(
                    f"evaluation.{name}={value!r} must be a whole number from {least} to {most}."
                )

    @property
    def rules(self) -> Protocol:
        """The protocol with the batch size and the cap on images of this configuration."""
        rules = protocol(self.protocol)
        if self.protocol == "G" and self.suite_images:
            rules = replace(rules, max_train_images=self.suite_images)
        return replace(rules, batch=self.batch) if self.batch else rules

    @property
    def repetitions(self) -> int:
        """Number of fresh networks of each kind per released set."""
        return self.nets or protocol(self.protocol).repetitions

    def classifiers(self, info: DatasetInfo) -> tuple[str, ...]:
        """Names of the classifiers to train on such data: those configured, else those of the
        protocol that are available here."""
        if self.classifier:
            return self.classifier
        default = protocol(self.protocol).default_classifiers
        if default == SUITE:
            return tuple(name for name in default if name not in unavailable(info))
        return ("mlp",) if info.kind == DataKind.TABLE else default

    def check(self, info: DatasetInfo) -> None:
        """Check before any computation that everything configured can be computed for such data.

        Raises:
            UserError: a classifier is not of the protocol, not for such data or not installed, or
                image quality cannot be computed.
        """
        if self.quality and info.kind == DataKind.TABLE:
            raise UserError(
                f"evaluation.quality=true is for images, and data={info.name} is a table."
            )
        if self.quality:
            with torch.device("meta"):
                classifier("vgg11", info.shape, info.classes)
        if self.fid_weights:
            from fedsynth.evaluation.inception import find_weights

            find_weights(self.fid_weights)
        allowed = protocol(self.protocol).classifiers
        for name in self.classifiers(info):
            if name not in allowed:
                raise UserError(
                    f"evaluation.classifier={name} is not of protocol {self.protocol}."
                    f"{nearest(name, allowed)} Allowed: {', '.join(allowed)}."
                )
            if allowed == SUITE and (reason := unavailable(info).get(name)):
                raise UserError(f"evaluation.classifier={name}: {reason}.")
            if allowed != SUITE and info.kind == DataKind.TABLE and name not in FOR_TABLES:
                raise UserError(
                    f"evaluation.classifier={name} is for images, and data={info.name} is a "
                    f"table. Allowed for tables: {', '.join(FOR_TABLES)}, or evaluation.protocol=G."
                )
            if allowed != SUITE:
                with torch.device("meta"):
                    classifier(name, info.shape, info.classes, self.width)

    def most_images(self, classes: int) -> int:
        """The most images of a released set with so many classes that are trained on; 0: all."""
        limits = (self.rules.max_train_images, self.images_per_class * classes)
        return min((limit for limit in limits if limit), default=0)

    def schedule(self, images: int) -> TrainingSchedule:
        """The schedule of training on a set of this size."""
        used = min(images, self.rules.max_train_images or images)
        return self.rules.schedule(used, self.epochs, self.max_images)

    def label(self, name: str) -> str:
        """A classifier's name, with its width if that is configurable."""
        return f"{name}-{self.width}" if name in FREE_WIDTH else name

    def describe(self, images: int) -> str:
        """One line on the training on a set of this size, to be printed next to the numbers."""
        names = self.classifier or protocol(self.protocol).default_classifiers
        nets = ", ".join(map(self.label, names)) if len(names) < 7 else f"{len(names)} classifiers"
        plan = self.schedule(images)
        rounded = "" if self.dtype == ComputeDtype.FLOAT32 else f" in {self.dtype}"
        used = min(images, self.rules.max_train_images or images)
        return (
            f"protocol {self.protocol}, {nets} x {self.repetitions}{rounded}, "
            f"{plan.epochs:.4g} epochs ({plan.steps} steps of at most {self.rules.batch}) "
            f"on {used} images, last epoch, one head over the classes seen"
        )
