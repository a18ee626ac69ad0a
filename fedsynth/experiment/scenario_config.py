"""The keys of a scenario's data side, and the public facts that follow from them alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedsynth.core.enums import StageOrder
from fedsynth.core.settings import setting
from fedsynth.core.types import DatasetInfo
from fedsynth.data import registry as datasets
from fedsynth.data.datasets.emnist_users import AUTO, SOURCES
from fedsynth.data.image_transform import ImageTransform


@dataclass(frozen=True)
class ScenarioConfig:
    """A data set, its partition among parties, and the order in which they are asked."""

    data: str = setting("mnist", "data set")
    partition: str = setting("classes", "partitioner of the records among the parties")
    options: dict[str, Any] | None = setting(None, "options of the partitioner")
    parties: int = setting(
        5, "number of parties; 0: every user of the data", at_least=0, at_most=1_000_000
    )
    stages: StageOrder = setting(
        StageOrder.IN_TURN,
        "in_turn: each party is a stage of its own; together: one stage asks all",
    )
    partition_seed: int = setting(0, "public seed of the partition", at_least=0)
    resize: int | None = setting(
        None, "side to which images are scaled (bilinear)", at_least=4, at_most=1024
    )
    grey: bool = setting(False, "convert colour images to grey")
    holdout: float = setting(
        0.0,
        "training records held out to choose settings on: a share below 1 or a number",
        at_least=0,
    )
    data_dir: str | None = setting(None, "folder of data sets; default FEDSYNTH_DATA or the cache")
    source: str = setting(
        AUTO,
        "source of data=emnist_users; auto: the first that is available",
        choices=(AUTO, *SOURCES),
    )

    def __hash__(self) -> int:
        return hash((self.data, self.partition, repr(self.options), self.parties, self.stages))


def dataset_info(scenario: ScenarioConfig) -> DatasetInfo:
    """The public facts of a scenario's data set, after its image transform."""
    return image_transform(scenario).info(datasets.find(scenario.data, scenario.data_dir).info)


def image_transform(scenario: ScenarioConfig) -> ImageTransform:
    """The transform that every image of a scenario goes through."""
    return ImageTransform(scenario.resize, scenario.grey)
