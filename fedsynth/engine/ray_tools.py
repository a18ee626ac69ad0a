"""Ray's own tools on a run: the dashboard of a Ray that it starts, and the timeline of tasks."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Collection
from pathlib import Path

from fedsynth.core.enums import EngineName
from fedsynth.core.errors import UserError, unknown
from fedsynth.storage.files import write_file

DASHBOARD, TIMELINE = "dashboard", "timeline"
RAY_TOOLS = (DASHBOARD, TIMELINE)
TIMELINE_FILE = "ray_timeline.json"
_DASHBOARD_PACKAGE = "aiohttp_cors"  # of those that `ray[default]` adds
_REPORT_SECONDS = 1.5  # workers report their tasks to the head node once per second
_LOOKS = 8  # at most, at a timeline that still grows


def check_ray_tools(tools: Collection[str], engine: str, address: str | None) -> None:
    """Refuse tools that do not exist or do not fit the engine.

    Raises:
        UserError: A tool is unknown, the engine is not Ray, Ray's dashboard is not installed, or
            the run joins a cluster, which has a dashboard of its own.
    """
    for tool in tools:
        if tool not in RAY_TOOLS:
            raise unknown("tool of Ray", tool, RAY_TOOLS)
    given = f"ray_tools={','.join(tools)}"
    if tools and engine != EngineName.RAY:
        raise UserError(f"{given} is for engine=ray only, not {engine}.")
    if DASHBOARD in tools and address is not None:
        raise UserError(
            f"{given}: the cluster at address={address} has a dashboard of its own; `ray start "
            f"--head` printed its address. Allowed with address=: {TIMELINE}."
        )
    if DASHBOARD in tools and importlib.util.find_spec(_DASHBOARD_PACKAGE) is None:
        raise UserError(
            f"{given}: Ray's dashboard is not installed: pip install 'fedsynth[ray-dashboard]'"
        )


def write_timeline(folder: Path) -> Path:
    """Write the tasks of the connected Ray, as Chrome's tracing reads them.

    Args:
        folder: Where the file is put.

    Returns:
        The file.
    """
    import ray

    events, before = ray.timeline(), -1
    for _ in range(_LOOKS):
        if events and len(events) == before:
            break  # the last reports have come
        before = len(events)
        time.sleep(_REPORT_SECONDS)
        events = ray.timeline()
    path = folder / TIMELINE_FILE
    write_file(path, json.dumps(events).encode())
    return path
