"""Trackers: other programs that follow a run by its events (`tracker=`).

A tracker receives each event of `experiment.events` when the driver reads it. The three here log
the curves and the accuracy of each evaluation and the seconds of each round; each needs the package
of its name, which fedsynth does not install (extras `tensorboard`, `mlflow` and `wandb`). A module
with a function `tracker(folder)` that can be imported is a tracker too, by its name.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from fedsynth.core.errors import UserError, unknown

Values = Callable[[Mapping[str, float], int], None]  # logs named values at a step


class Tracker(Protocol):
    """A program that follows a run."""

    def event(self, event: Mapping[str, Any]) -> None:
        """Take an event."""

    def close(self) -> None:
        """The run has ended."""


class ValueTracker:
    """A tracker that logs named values by step.

    Args:
        log: Logs values at a step.
        close: Called when the run has ended.
    """

    def __init__(self, log: Values, close: Callable[[], object]) -> None:
        self._log, self._close = log, close

    def event(self, event: Mapping[str, Any]) -> None:
        """See `Tracker.event`."""
        name = f"{event.get('job')}/stage {event.get('stage')}"
        if event.get("kind") == "round":
            self._log({f"{name}/seconds per round": float(event["seconds"])}, int(event["round"]))
        if event.get("kind") == "evaluation":
            name = f"{name}/{event['classifier']} {event['repetition'] + 1}"
            for curve in ("losses", "accuracies"):
                for step, value in event[curve]:
                    self._log({f"{name}/{curve}": float(value)}, int(step))
            self._log({f"{name}/accuracy": float(event["accuracy"])}, 0)

    def close(self) -> None:
        """See `Tracker.close`."""
        self._close()


def _tensorboard(folder: Path) -> Tracker:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder / "tensorboard"))

    def log(values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)

    return ValueTracker(log, writer.close)


def _mlflow(folder: Path) -> Tracker:
    mlflow = importlib.import_module("mlflow")
    mlflow.start_run(run_name=folder.name)
    return ValueTracker(lambda values, step: mlflow.log_metrics(values, step=step), mlflow.end_run)


def _wandb(folder: Path) -> Tracker:
    run = importlib.import_module("wandb").init(project="fedsynth", name=folder.name)
    return ValueTracker(lambda values, step: run.log({**values, "at step": step}), run.finish)


TRACKERS: Mapping[str, Callable[[Path], Tracker]] = {
    "tensorboard": _tensorboard,
    "mlflow": _mlflow,
    "wandb": _wandb,
}


@contextlib.contextmanager
def open_trackers(names: Sequence[str], folder: Path) -> Iterator[tuple[Tracker, ...]]:
    """The trackers of these names, open within the block.

    Args:
        names: The names.
        folder: The run directory.

    Raises:
        UserError: A name is unknown, or the package of a tracker is not installed.
    """
    with contextlib.ExitStack() as stack:
        opened = []
        for name in names:
            tracker = _maker(name)(folder)
            stack.callback(tracker.close)
            opened.append(tracker)
        yield tuple(opened)


def _maker(name: str) -> Callable[[Path], Tracker]:
    if name in TRACKERS:

        def make(folder: Path) -> Tracker:
            try:
                return TRACKERS[name](folder)
            except ImportError as error:
                raise UserError(
                    f"tracker={name} needs the package {name}, which is not installed: pip "
                    f"install 'fedsynth[{name}]', or leave tracker={name} out."
                ) from error

        return make
    try:
        found: Callable[[Path], Tracker] = importlib.import_module(name).tracker
    except (ImportError, AttributeError, ValueError) as error:
        raise unknown("tracker", name, TRACKERS) from error
    return found
