"""The `evaluation.` keys: which protocol to follow, and where a cheaper run departs from it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from fedsynth.core.enums import DataKind
from fedsynth.core.errors import UserError, nearest, unknown
from fedsynth.core.settings import setting
from fedsynth.core.types import DatasetInfo
from fedsynth.evaluation.classical_classifiers import SUITE, missing
from fedsynth.evaluation.protocols import PROTOCOLS, ParticipationSchedule, Protocol, protocol
from fedsynth.nn.classifiers.registry import CLASSIFIERS, FREE_WIDTH, classifier
from fedsynth.nn.compute_dtype import DTYPES

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
"""What the cheaper forms of a run do of a protocol that is named, where nothing else is said. Those
of P and D cut trainings on tens of thousands of images and leave small sets as published."""

APART = ("G", "L")  # protocols for which nothing holds that was said for another one

SCORERS: dict[str, dict[str, int]] = {
    "smoke": {"scorer_width": 8, "scorer_images": 10_000},
    "laptop": {"scorer_width": 16, "scorer_images": 60_000},
}

TRAINING_KEYS = ("classifier", "nets", "epochs", "max_images", "batch", "suite_images")
"""What is said for one protocol and means nothing to another."""


def layered(sections: list[dict[str, object]], preset: str | None) -> dict[str, object]:
    """The keys of several layers, the last of which wins, over those of the preset. Protocols G and
    L start from the layer that names them: what earlier layers say of nets, epochs and batches was
    meant for another protocol."""
    base: dict[str, object] = dict(SCORERS.get(preset or "", {}))
    naming = [i for i, section in enumerate(sections) if "protocol" in section]
    if naming:
        first = naming[-1]
        name = str(sections[first]["protocol"])
        base |= PRESETS.get(name, {}).get(preset or "", {})
        if name in APART and preset:
            earlier = [
                {k: v for k, v in section.items() if k not in TRAINING_KEYS}
                for section in sections[:first]
            ]
            sections = [*earlier, *sections[first:]]
    return {**base, **{k: v for section in sections for k, v in section.items()}}


LEAST = {
    "width": 1,
    "nets": 0,
    "epochs": 0,
    "max_images": 0,
    "batch": 0,
    "suite_images": 0,
    "scorer_width": 1,
    "scorer_images": 0,
}


@dataclass(frozen=True)
class EvaluationConfig:
    """Which protocol to follow, and where a cheaper run departs from it. The defaults are the
    protocol itself; 0 means "what the protocol says"."""

    protocol: str = setting("P", f"how classifiers are trained: {', '.join(PROTOCOLS)}")
    classifier: tuple[str, ...] = setting(
        (),
        "what is trained, one or several; default the protocol's own: convnet (P, D), poolnet "
        f"(S), keras_cnn (L), all 13 (G). P, D, S, L: {', '.join(CLASSIFIERS)}. "
        f"G: {', '.join(SUITE)}",
    )
    width: int = setting(128, "width of the ConvNet or PoolNet")
    nets: int = setting(0, "fresh nets of each kind a released set; 0: the protocol's")
    epochs: int = setting(0, "E, of which P, D and S make E + 1; 0: the protocol's")
    max_images: int = setting(0, "cap on the image passes of one training; 0: none")
    batch: int = setting(0, "smaller batches make more steps of as many images; 0: the protocol's")
    dtype: str = setting(
        "float32",
        "type of matrix products and convolutions in training (bfloat16: as under autocast; auto: "
        "that where the machine has instructions for it)",
        choices=DTYPES,
    )
    suite_images: int = setting(
        0, "G: images that classifiers are fitted on, at most, classes alike; 0: 60,000"
    )

    quality: bool = setting(False, "also Inception Score and FID-lite of the released images")
    scorer_width: int = setting(64, "of the network behind these two")
    scorer_images: int = setting(0, "cap on the image passes of its training; 0: 50 epochs")
    fid_weights: str = setting(
        "",
        "with quality, FID by Inception: a file of weights, cache (what torch has), or download",
    )

    def __post_init__(self) -> None:
        protocol(self.protocol)
        given = (self.classifier,) if isinstance(self.classifier, str) else tuple(self.classifier)
        object.__setattr__(self, "classifier", tuple(dict.fromkeys(given)))
        for name in self.classifier:
            if name not in (known := {*CLASSIFIERS, *SUITE}):
                raise unknown("classifier", name, known)
        if self.dtype not in DTYPES:
            raise unknown("dtype", self.dtype, DTYPES)
        for name, least in LEAST.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UserError(f"evaluation {name}={value!r} must be a whole number >= {least}.")

    @property
    def rules(self) -> Protocol:
        """The protocol, with the batch and the cap on images of this setting."""
        rules = protocol(self.protocol)
        if self.protocol == "G" and self.suite_images:
            rules = replace(rules, most=self.suite_images)
        return replace(rules, batch=self.batch) if self.batch else rules

    @property
    def runs(self) -> int:
        """How many fresh nets of each kind judge one released set."""
        return self.nets or protocol(self.protocol).runs

    def judges(self, info: DatasetInfo) -> tuple[str, ...]:
        """The classifiers that judge data of this shape here, by name: those asked for, else the
        protocol's own, without those of the suite that cannot run (`suite.missing`)."""
        if self.classifier:
            return self.classifier
        own = protocol(self.protocol).judges
        if own == SUITE:
            return tuple(n for n in own if n not in missing(info))
        return ("mlp",) if info.kind == DataKind.TABLE else own

    def check(self, info: DatasetInfo) -> None:
        """Refuse, before anything is computed, a classifier that the protocol does not train or
        that cannot take such data here, and a quality that cannot be had."""
        if self.quality and info.kind == DataKind.TABLE:
            raise UserError(
                f"evaluation.quality=true is for images, and data={info.name} is a table."
            )
        if self.quality:
            with torch.device("meta"):
                classifier("vgg11", info.shape, info.classes)
        if self.fid_weights:
            from fedsynth.evaluation.inception import at_hand

            at_hand(self.fid_weights)
        allowed = protocol(self.protocol).classifiers
        for name in self.judges(info):
            if name not in allowed:
                raise UserError(
                    f"evaluation.classifier={name} is not of protocol {self.protocol}."
                    f"{nearest(name, allowed)} Allowed: {', '.join(allowed)}."
                )
            if allowed == SUITE and (reason := missing(info).get(name)):
                raise UserError(f"evaluation.classifier={name}: {reason}.")
            if allowed != SUITE and info.kind == DataKind.TABLE and name != "mlp":
                raise UserError(
                    f"evaluation.classifier={name} is for images, and data={info.name} is a "
                    "table. Allowed for tables: mlp, or evaluation.protocol=G."
                )
            if allowed != SUITE:
                with torch.device("meta"):
                    classifier(name, info.shape, info.classes, self.width)

    def schedule(self, images: int) -> ParticipationSchedule:
        """The schedule this setting gives a set of this many images."""
        used = min(images, self.rules.most or images)
        return self.rules.schedule(used, self.epochs, self.max_images)

    def named(self, name: str) -> str:
        """A classifier's name with its width, where that is free."""
        return f"{name}-{self.width}" if name in FREE_WIDTH else name

    def describe(self, images: int) -> str:
        """What really runs on a set of this size, in one line to print beside the numbers."""
        names = self.classifier or protocol(self.protocol).judges
        nets = ", ".join(map(self.named, names)) if len(names) < 7 else f"{len(names)} classifiers"
        plan = self.schedule(images)
        rounded = "" if self.dtype == "float32" else f" in {self.dtype}"
        used = min(images, self.rules.most or images)
        return (
            f"protocol {self.protocol}, {nets} x {self.runs}{rounded}, {plan.epochs:.4g} epochs "
            f"({plan.steps} steps of at most {self.rules.batch}) on {used} images, last epoch, "
            "one head over the classes seen"
        )
