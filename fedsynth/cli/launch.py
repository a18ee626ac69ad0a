"""Starts and resumes a run for the command line, and prints its result."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from fedsynth.api import launch
from fedsynth.experiment.config import ExperimentConfig
from fedsynth.experiment.evaluation_data import evaluation_data
from fedsynth.report.summary import frame, rich_table, summarise
from fedsynth.storage.run_directory import REPORT, RunDirectory


def start(config: ExperimentConfig, arguments: Sequence[str], quiet: bool) -> int:
    """Start a new run."""
    return _printed(launch.start(config, arguments, quiet=quiet, note=_note))


def resume(folder: Path, overrides: Mapping[str, Any], quiet: bool) -> int:
    """Continue the run in `folder`. Only keys that change no result may be given."""
    return _printed(launch.resume(folder, overrides, quiet=quiet, note=_note))


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)


def _printed(run: RunDirectory) -> int:
    console = Console(width=None if sys.stdout.isatty() else 150)
    rows, tested = summarise(frame(run.metrics())), evaluation_data(run.read_config())
    console.print(rich_table(rows, tested, width=console.width))
    print(f"report: {run.path / REPORT}")
    return 0
