"""The time limit of a test for work that takes this many seconds on an idle machine."""

from __future__ import annotations

import os


def on_this_machine(seconds: float) -> float:
    """These seconds, and more where others keep the processors busy."""
    return seconds * max(1.0, 2 * os.getloadavg()[0] / (os.cpu_count() or 1))
