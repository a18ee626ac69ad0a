"""Stage extensions: further evaluations of a stage that a scenario brings along (`extensions`)."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from fedsynth.core.errors import unknown

if TYPE_CHECKING:  # the keys of a run are checked without importing an engine
    from fedsynth.engine.base import Engine
    from fedsynth.experiment.job import Job

INVERSION_ESTIMATE = "inversion_estimate"
TABLE_COMPARISON = "table_comparison"
EXTENSIONS = {INVERSION_ESTIMATE: "fedsynth.experiment.inversion_estimate"}
STANDARD = {TABLE_COMPARISON: "fedsynth.experiment.table_comparison"}  # where they apply
"""The module of each extension; it holds the extension as `EXTENSION`."""


class StageExtension(Protocol):
    """An evaluation that the runner makes of every stage, beside the classifiers.

    Attributes:
        name: The key of the extension, and the stem of its result files.
    """

    name: str

    def applies(self, job: Job) -> bool:
        """True if a job has something to evaluate."""

    def metrics(self, engine: Engine, job: Job, stage: int) -> dict[str, float]:
        """The metrics of everything released up to a stage; called in a thread of its own."""


def load_extensions(names: Sequence[str]) -> tuple[StageExtension, ...]:
    """Import extensions by name, and those that every run has.

    Raises:
        UserError: There is no extension of this name.
    """
    for name in names:
        if name not in EXTENSIONS:
            raise unknown("extension", name, EXTENSIONS)
    modules = [*(EXTENSIONS[name] for name in names), *STANDARD.values()]
    return tuple(importlib.import_module(module).EXTENSION for module in modules)
