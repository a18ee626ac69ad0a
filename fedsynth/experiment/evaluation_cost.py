"""How long judging takes here, for `--plan`: every network is timed for a few steps of its own
training, augmentation and all, on random numbers; nothing is read.

Classical classifiers cannot be timed on random numbers, because how long they take depends on how
hard the data are. Their share is what they took on MNIST, in units of a training step of a small
ConvNet that is timed here; right within a factor of two or three.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable

import torch

from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import DatasetInfo
from fedsynth.evaluation import classical_classifiers as suite
from fedsynth.evaluation.config import EvaluationConfig
from fedsynth.evaluation.image_quality import CAPPED
from fedsynth.evaluation.protocols import ParticipationSchedule
from fedsynth.evaluation.quality_metrics import GENERATED, REAL
from fedsynth.evaluation.scorer import BATCH as SCORER_BATCH
from fedsynth.evaluation.scorer import Scorer, ScorerConfig
from fedsynth.evaluation.train_classifier import fit_network, looks, network, one_thread
from fedsynth.nn.per_example.gradients import logits

PROBE = 32  # images a probe handles; time is taken to grow with the batch
PROBE_LARGE = 8  # of networks that take long
LARGE = ("alexnet", "vgg11", "resnet18")
ENOUGH = 2.0  # seconds after which a probe is not repeated
REPEATS = 3  # the first one warms up

FITS = {
    "logistic_regression": (45.0, 0.8),
    "random_forest": (47.0, 0.9),
    "gaussian_nb": (10.0, 0.2),
    "bernoulli_nb": (5.0, 0.2),
    "linear_svc": (57.0, 1.4),
    "decision_tree": (11.0, 1.2),
    "lda": (20.0, 0.4),
    "adaboost": (160.0, 0.9),
    "mlp": (98.0, 0.9),
    "bagging": (27.0, 0.8),
    "gbm": (180.0, 1.0),
    "xgboost": (145.0, 1.1),
}
"""Of each classical classifier: the time of a fit on 1,000 images of MNIST and of 5,000 answers, in
steps of a ConvNet of width 32 on 32 images, and the power of the number of images it grows with."""


def judging_seconds(setting: EvaluationConfig, info: DatasetInfo, images: int, tests: int) -> float:
    """Core-seconds of judging one set of this many images on this many test images, by all
    classifiers of the setting, each as often as it says."""
    used = min(images, setting.rules.most or images)
    total = 0.0
    for name in setting.judges(info):
        if setting.protocol == "G" and name in suite.CLASSICAL:
            total += fit_seconds(name, info, used)
        else:
            total += _network_seconds(name, setting, info, used, tests)
    return total * setting.runs


def _network_seconds(
    name: str, setting: EvaluationConfig, info: DatasetInfo, images: int, tests: int
) -> float:
    plan, rules = setting.schedule(images), setting.rules
    batch = min(rules.batch, images)
    stepping = plan.steps * batch * training_seconds(name, setting, info)
    tested = tests * (len(looks(plan)) if rules.optimistic else 1)
    return stepping + tested * answer_seconds(name, setting.width, info)


def fit_seconds(name: str, info: DatasetInfo, images: int) -> float:
    """Core-seconds of fitting a classical classifier on this many images."""
    steps, power = FITS[name]
    unit = PROBE * training_seconds("convnet", UNIT, UNIT_FACTS)
    size = math.prod(info.shape) / math.prod(UNIT_FACTS.shape)
    return steps * unit * (images / 1000) ** power * size


def quality_seconds(setting: EvaluationConfig, info: DatasetInfo, images: int, tests: int) -> float:
    """Core-seconds of appraising a set by a scorer that is trained already."""
    if not setting.quality:
        return 0.0
    cap = CAPPED if setting.scorer_images else REAL
    looked = min(images, GENERATED if not setting.scorer_images else CAPPED) + cap + tests
    return looked * scorer_seconds(setting.scorer_width, info, training=False)


def scorer_training_seconds(setting: EvaluationConfig, info: DatasetInfo, records: int) -> float:
    """Core-seconds of making the scorer, once for a data set."""
    if not setting.quality:
        return 0.0
    steps = ScorerConfig(setting.scorer_width, setting.scorer_images).steps(records)
    batch = min(SCORER_BATCH, records)
    return steps * batch * scorer_seconds(setting.scorer_width, info, training=True)


@functools.cache
def training_seconds(name: str, setting: EvaluationConfig, info: DatasetInfo) -> float:
    """Core-seconds of one image in one training step of a network, by the setting's protocol."""
    rules = setting.rules
    count = PROBE_LARGE if name in LARGE else min(PROBE, rules.batch)
    net = network(name, info, info.classes, setting.width, ("probe",))
    images, labels = _material(info, count)

    def step() -> None:
        fit_network(
            net,
            rules.scaled(images, info),
            labels,
            plan=ParticipationSchedule(1, 1, 1.0),
            rules=rules,
            strategy=rules.strategy(info),
            generator=torch_generator("probe"),
            dtype=setting.dtype,
        )

    return _timed(step) / count


@functools.cache
def answer_seconds(name: str, width: int, info: DatasetInfo) -> float:
    """Core-seconds of one test image."""
    net = network(name, info, info.classes, width, ("probe",)).eval()
    images, _ = _material(info, PROBE)
    return _timed(lambda: logits(net, images)) / PROBE


@functools.cache
def scorer_seconds(width: int, info: DatasetInfo, *, training: bool) -> float:
    """Core-seconds of one image, in a step of the scorer's training or looked at."""
    net = Scorer(info, width).train(training)
    images, labels = _material(info, PROBE)

    def step() -> None:
        torch.nn.functional.cross_entropy(net(images), labels).backward()

    return _timed(step if training else lambda: net.see(images)) / PROBE


def _material(info: DatasetInfo, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    images = torch.rand((count, *info.shape), generator=torch_generator("probe", count))
    return images, torch.arange(count) % info.classes


def _timed(run: Callable[[], object]) -> float:
    """The best of a few, or the first where that has taken long."""
    taken: list[float] = []
    with one_thread():
        while len(taken) < REPEATS and sum(taken) < ENOUGH:
            start = time.perf_counter()
            run()
            taken.append(time.perf_counter() - start)
    return min(taken)


UNIT = EvaluationConfig("P", width=32)
UNIT_FACTS = DatasetInfo("unit", (1, 28, 28), 10, (0.1307,), (0.3081,))
