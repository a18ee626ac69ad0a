"""The version of this package, for layers that may not import the package itself."""

from __future__ import annotations

import sys


def own_version() -> str:
    """The version of fedsynth that runs in this process."""
    return str(sys.modules["fedsynth"].__version__)
