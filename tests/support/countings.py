"""Events and texts shared by the tests of several packages."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from dp_accounting import DpEvent

from fedsynth.privacy.accounting.events import gaussian, poisson, repeated

DELTA = 1e-5
MNIST = 256 / 60000  # a batch of the published settings


def sgd(q: float, sigma: float, steps: int) -> DpEvent:
    """Steps of DP-SGD: records enter with probability q, the sum gets noise sigma."""
    return repeated(poisson(q, gaussian(sigma)), steps)


def printed(text: str) -> Any:
    """The interval that rounds to this text, also if its last digit was truncated."""
    last_digit = 10.0 ** int(Decimal(text).as_tuple().exponent)
    return pytest.approx(float(text), rel=0, abs=last_digit)
