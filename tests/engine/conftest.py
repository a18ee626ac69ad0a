"""One Ray engine for all tests of this room, because starting Ray takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import fakes
import pytest


@pytest.fixture(scope="session")
def ray_stage() -> Iterator[fakes.Stage]:
    """Two workers on a local Ray."""
    with fakes.open_stage("ray", workers=2, timeout=120.0) as stage:
        yield stage


@pytest.fixture
def local_stage() -> Iterator[fakes.Stage]:
    """Everything in this process."""
    with fakes.open_stage("inprocess") as stage:
        yield stage
