"""Simulation of multi-party differentially private data releases.

The functions `run`, `resume`, `plan`, `evaluate` and `load` and the class `Synthesizer` are the
Python API; the other names are what a method, a scenario or a data set of one's own needs. They are
imported on first use, so that `import fedsynth` is quick and loads neither torch nor Flower.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedsynth.api.functions import evaluate as evaluate
    from fedsynth.api.functions import load as load
    from fedsynth.api.functions import plan as plan
    from fedsynth.api.functions import resume as resume
    from fedsynth.api.functions import run as run
    from fedsynth.api.synthesizer import Synthesizer as Synthesizer
    from fedsynth.core.enums import Accounting as Accounting
    from fedsynth.core.enums import DataKind as DataKind
    from fedsynth.core.enums import NoisePlacement as NoisePlacement
    from fedsynth.core.enums import Relation as Relation
    from fedsynth.core.enums import Unit as Unit
    from fedsynth.core.errors import UserError as UserError
    from fedsynth.core.messages import Release as Release
    from fedsynth.core.messages import Request as Request
    from fedsynth.core.outcomes import ReleasedModel as ReleasedModel
    from fedsynth.core.outcomes import SyntheticSet as SyntheticSet
    from fedsynth.core.plan import PartyPlan as PartyPlan
    from fedsynth.core.plan import Plan as Plan
    from fedsynth.core.settings import setting as setting
    from fedsynth.core.types import Budget as Budget
    from fedsynth.core.types import Column as Column
    from fedsynth.core.types import DatasetInfo as DatasetInfo
    from fedsynth.core.types import PartyInfo as PartyInfo
    from fedsynth.core.types import Stage as Stage
    from fedsynth.data.registry import dataset as dataset
    from fedsynth.methods.method import Method as Method
    from fedsynth.methods.method import PartyContext as PartyContext
    from fedsynth.methods.method import ServerContext as ServerContext

__version__ = "0.2.0"

_PUBLIC = {
    "api.functions": ("evaluate", "load", "plan", "resume", "run"),
    "api.synthesizer": ("Synthesizer",),
    "core.enums": ("Accounting", "DataKind", "NoisePlacement", "Relation", "Unit"),
    "core.errors": ("UserError",),
    "core.messages": ("Release", "Request"),
    "core.outcomes": ("ReleasedModel", "SyntheticSet"),
    "core.plan": ("PartyPlan", "Plan"),
    "core.settings": ("setting",),
    "core.types": ("Budget", "Column", "DatasetInfo", "PartyInfo", "Stage"),
    "data.registry": ("dataset",),
    "methods.method": ("Method", "PartyContext", "ServerContext"),
}
_MODULES = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = ["__version__", *sorted(_MODULES)]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'fedsynth' has no attribute {name!r}")
    return getattr(import_module(f"fedsynth.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
