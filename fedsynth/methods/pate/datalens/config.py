"""DataLens's settings, and the published ones by data set and budget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fedsynth.core.settings import setting
from fedsynth.methods.common.noise_placement import JointConfig


@dataclass(frozen=True)
class Published:
    """What the authors chose for one data set and budget."""

    entries: int  # k
    sigma: float  # standard deviation of the noise on a vote sum of all teachers
    beta: float
    code: int


# From the commands of the authors' repository; epsilon 1 and 10. Its tables print other values for
# epsilon 10 (k=350, sigma=900).
PUBLISHED: Mapping[tuple[str, int], Published] = {
    ("mnist", 1): Published(200, 5000.0, 0.7, 50),
    ("mnist", 10): Published(300, 800.0, 0.2, 50),
    ("fashion_mnist", 1): Published(200, 5000.0, 0.9, 50),
    ("fashion_mnist", 10): Published(350, 1000.0, 0.27, 64),
}


def published(data: str, budget: float) -> Published:
    """The published choice; MNIST's for other data sets, and that of the nearer budget."""
    nearer = 1 if budget < math.sqrt(10) else 10
    return PUBLISHED.get((data, nearer), PUBLISHED["mnist", nearer])


@dataclass(frozen=True)
class DataLensConfig(JointConfig):
    """The settings; the defaults are the published ones."""

    teachers: int = setting(4000, "teachers, over all parties and stages", at_least=1)
    compression: str = setting(
        "topk",
        "what a ballot holds: signs of the k largest coordinates, signs of all (none), levels "
        "(d2p), or topk counted through a noised sketch (sketch)",
        choices=("topk", "none", "d2p", "sketch"),
    )
    entries: int | None = setting(
        None, "coordinates a teacher votes on (k); none: published", at_least=1
    )
    sigma: float | None = setting(None, "noise on a vote sum, in votes; none: published", above=0)
    beta: float | None = setting(
        None, "threshold, as a share of the teachers; none: published", at_least=0
    )
    clip: float = setting(1e-5, "clip of a gradient's coordinates; 0: none", at_least=0)
    stochastic: bool = setting(True, "signs are drawn by chance (else plain signs)")
    threshold: bool = setting(True, "small vote sums count as 0 (else votes / k)")
    levels: int = setting(4, "levels of d2p", at_least=2, at_most=128)
    sketch_rows: int = setting(20, "tables of the sketch", at_least=1)
    sketch_columns: int = setting(10000, "buckets of a table of the sketch", at_least=1)
    rounds: int = setting(
        300, "most rounds; a longer budget is spent on less noise (sigma is lowered)", at_least=1
    )
    batch: int = setting(30, "most images voted on in a round (m)", at_least=2)
    teacher_steps: int = setting(2, "updates of a teacher a round", at_least=1)
    pretraining: int = setting(10, "updates of a teacher in the first round", at_least=1)
    channels: int = setting(32, "channels of a teacher's second convolution", at_least=1)
    hidden: int = setting(256, "hidden units of a teacher", at_least=1)
    dtype: str = setting(
        "bfloat16", "type of teachers and their optimisers", choices=("bfloat16", "float32")
    )
    code: int | None = setting(None, "length of codes (z); none: published", at_least=1)
    step: float = setting(1e-3, "how far the targets lie from the images (gamma)", above=0)
    rate: float = setting(1e-3, "Adam's learning rate of the generator", above=0)
    generator_steps: int = setting(1, "updates of the generator a round (free)", at_least=1)
    generator_hidden: int = setting(1024, "hidden units of the generator", at_least=1)
    generator_channels: int = setting(128, "channels of the generator", at_least=1)
    spc: int = setting(6000, "images a class drawn from the generator", at_least=1)
