"""How long a test waits for what a free machine does in so many seconds."""

from __future__ import annotations

import os


def on_this_machine(seconds: float) -> float:
    """These seconds, and more where others keep the processors busy."""
    return seconds * max(1.0, 2 * os.getloadavg()[0] / (os.cpu_count() or 1))
