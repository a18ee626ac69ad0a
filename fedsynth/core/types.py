"""Public facts about data, parties and budgets, from which every plan is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedsynth.core.enums import Accounting, DataKind, Relation, Unit

Shape = tuple[int, int, int]  # channels, height, width of an image; a table is (columns, 1, 1)


@dataclass(frozen=True)
class Budget:
    """The privacy budget of one party over a whole run, with what its epsilon means."""

    epsilon: float
    delta: float
    unit: Unit = Unit.RECORD
    relation: Relation = Relation.ADD_REMOVE
    accounting: str = Accounting.PLD  # or the name of a published convention

    def __post_init__(self) -> None:
        """Turn stored texts into enum members."""
        object.__setattr__(self, "unit", Unit(self.unit))
        object.__setattr__(self, "relation", Relation(self.relation))


@dataclass(frozen=True)
class Column:
    """One column of a table: its categories, or the range of its numbers.

    Both come from the literature or a schema, never from the data at hand."""

    name: str
    low: float = 0.0
    high: float = 1.0
    categories: tuple[str, ...] = ()  # in the order of their codes; empty: a numeric column
    whole: bool = False  # an integer column


@dataclass(frozen=True)
class DatasetInfo:
    """Public facts of a data set: shape, number of classes and normalisation constants.

    A table is a set of records of shape (columns, 1, 1), one channel per column, whose values
    `data.tables` maps to [0, 1] and back; code that reads single numbers and no neighbourhoods
    therefore works on tables unchanged."""

    name: str
    shape: Shape
    classes: int
    mean: tuple[float, ...]  # of pixels in [0, 1], one per channel, from the literature
    std: tuple[float, ...]
    kind: DataKind = DataKind.IMAGE
    columns: tuple[Column, ...] = ()  # of a table
    class_names: tuple[str, ...] = field(default=(), repr=False)  # empty: classes have numbers only

    def class_text(self, label: int) -> str:
        """A class by its name, or by its number where it has none."""
        return self.class_names[label] if self.class_names else str(label)


@dataclass(frozen=True)
class PartyInfo:
    """Public facts of one party before it has released anything."""

    party: int
    records: int
    class_counts: Mapping[int, int]  # the classes that the party states it holds, with counts
    name: str = ""  # where the data name their parties


@dataclass(frozen=True)
class Stage:
    """Public facts of one stage of a scenario."""

    data: DatasetInfo
    index: int
    count: int  # of stages in the scenario
    parties: tuple[PartyInfo, ...]  # the parties of this stage
    classes: tuple[int, ...]  # classes of this stage, in the scenario's order
    seen: tuple[int, ...]  # classes of this and all earlier stages, in order


@dataclass(frozen=True)
class ComputeCost:
    """A repeated unit of computation, for estimates of time: see `experiment.cost_model`."""

    # "gradient" (private, clipped), "match" (synthetic step), "train" (plain SGD step),
    # "scattering" (the transform), "teachers" (one round of DataLens), "critic" (a step of
    # GS-WGAN's critic), or "NAME draw" and "NAME step" (images of its generator, and its step)
    kind: str
    width: int  # of the ConvNet or critic; hidden units of a teacher; depth of a generator
    batch: int  # records, or teachers
    times: int
    dtype: str = "float32"  # of products and convolutions: see `nn.compute_dtype`
