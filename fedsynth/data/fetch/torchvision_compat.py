"""The import of torchvision, with a workaround for builds that do not match torch.

A CPU build of torch beside a CUDA build of torchvision cannot load torchvision's compiled
operators; `import torchvision` then fails with "operator torchvision::nms does not exist", although
data sets, models, transforms and utils need none of them. Declaring the two operators that are
looked up at import time makes the rest usable. Calling them still fails, as they have no kernel.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_SYMPTOM = "operator torchvision::nms does not exist"
_OPERATORS = ("nms", "qnms")
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_declared: list[torch.library.Library] = []  # a declaration lives as long as its Library object


def _declare_operators() -> None:
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for operator in _OPERATORS:
        library.define(operator + _SCHEMA)
    _declared.append(library)


def import_torchvision(module: str = "torchvision") -> ModuleType:
    """Import torchvision, or one of its modules ("torchvision.datasets").

    The plain import is tried first; any other failure is raised unchanged.
    """
    try:
        return importlib.import_module(module)
    except RuntimeError as error:
        if _SYMPTOM not in str(error) or _declared:
            raise
    half_imported = [m for m in sys.modules if m == "torchvision" or m.startswith("torchvision.")]
    for name in half_imported:
        del sys.modules[name]
    _declare_operators()
    return importlib.import_module(module)
