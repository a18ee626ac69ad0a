"""The run directory: the files of a run, each complete or absent.

Writes go to a temporary file that is synced and renamed, so a crash, a full disk or kill -9 never
leaves half a file. What the disk refuses is a `UserError`. Stages count from 1 here, in
`metrics.csv` and in file names.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from fedsynth.core.errors import UserError
from fedsynth.storage.environment import describe_environment
from fedsynth.storage.files import (
    TEMPORARY_SUFFIX,
    atomic_write,
    disk_errors,
    durable_append,
    make_directories,
    remove_directories,
    write_file,
)
from fedsynth.storage.lock import HOLDER, LOCK
from fedsynth.storage.metrics import Metric, MetricsFile
from fedsynth.storage.releases import ReleaseStore

CONFIG = "config.yaml"
ENVIRONMENT = "environment.json"
METRICS = "metrics.csv"
TIMINGS = "timings.csv"  # apart, because two runs never agree on them
LEDGER = "ledger.jsonl"
LOG = "log.txt"
EVENTS = "events.jsonl"  # of parties, rounds and evaluations; of a simulation only
MESSAGES = "messages"  # folder of a run at work: from its processes to the driver
REPORT = "report.html"
COMPARISON = "comparison.md"  # of the report, with published numbers
FIGURES = "figures"  # folder of the report's figures
PARTIES = "parties"  # folder of the simulated parties
FAILED = "failed.json"  # in the server's folder of a job that failed
NODES = "nodes.json"  # of a run on real nodes: where it was submitted
SERVER = "server"  # folder of the server: unfinished work and results of evaluations


def evaluation_file(job: str, stage: int, number: int | str) -> str:
    """The file of one classifier's result, in the run directory; stages count from 1."""
    return f"{SERVER}/{job}/evaluation-{stage}-{number}.json"


class RunDirectory:
    """One run on disk, from `create` (a new run), `open` (to continue) or `read`."""

    def __init__(self, path: Path, made: Sequence[Path] | None = None) -> None:
        self.path = path
        self._made = made  # directories of a new run that did not exist before it
        self.releases = ReleaseStore(path)
        self._metrics = MetricsFile(path / METRICS)
        self._timings = MetricsFile(path / TIMINGS)

    @classmethod
    def create(cls, path: str | Path) -> RunDirectory:
        """Start a new run at `path`, which must not exist or be an empty directory."""
        path = Path(path)
        with disk_errors(path):
            if path.is_dir():
                _check_unused(path)
            made = make_directories(path)
            try:
                # Found out now and not after an hour's work: can files be made here at all?
                atomic_write(path / LOG, b"")
            except OSError:
                remove_directories(made)
                raise
        return cls(path, made)

    @classmethod
    def open(cls, path: str | Path) -> RunDirectory:
        """Continue the run at `path`, which no other process uses; removes leftovers of a crash."""
        run = cls.read(path)
        for leftover in run.path.rglob(f".*{TEMPORARY_SUFFIX}"):
            with contextlib.suppress(OSError):
                leftover.unlink()
        _rename_former_files(run.path)
        run.compact_metrics()
        return run

    @classmethod
    def read(cls, path: str | Path) -> RunDirectory:
        """Open the run at `path`, which may be in use, for reading only."""
        path = Path(path)
        if not path.is_dir():
            what = "is a file" if path.exists() else "does not exist"
            raise UserError(f"{path} {what}: there is no run there. Check the path.")
        if not (path / CONFIG).is_file():
            raise UserError(f"{path} is not a run directory: it has no {CONFIG}.")
        return cls(path)

    def roll_back(self) -> None:
        """Remove a new run that could not start; one that was only opened stays as it is."""
        if self._made is not None:
            for name in (CONFIG, ENVIRONMENT, LOG, HOLDER, LOCK):
                (self.path / name).unlink(missing_ok=True)
            remove_directories(self._made)

    @property
    def finished(self) -> bool:
        """True if the run is complete: the report is written last, and no job failed."""
        failed = (self.path / SERVER).glob(f"*/{FAILED}")
        return (self.path / REPORT).is_file() and not any(failed)

    def write_bytes(self, name: str, data: bytes) -> Path:
        """Write a file of the run, atomically; `name` may hold folders."""
        target = self.path / name
        if target == self.path or not target.resolve().is_relative_to(self.path.resolve()):
            raise ValueError(f"{name!r} is outside the run directory")
        return write_file(target, data)

    def write_text(self, name: str, text: str) -> Path:
        """Write a text file of the run, atomically, as UTF-8."""
        return self.write_bytes(name, text.encode())

    def write_config(self, config: Mapping[str, Any]) -> Path:
        """Write the resolved configuration: plain values only."""
        text = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
        return self.write_text(CONFIG, text)

    def read_config(self) -> dict[str, Any]:
        """The configuration the run was started with."""
        path = self.path / CONFIG
        try:
            config = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise UserError(f"{path} cannot be read: {error}") from error
        if not isinstance(config, dict):
            raise UserError(f"{path} is damaged: it should hold keys and values.")
        return config

    def write_environment(self, arguments: Sequence[str]) -> Path:
        """Write versions, machine and command; `arguments` are the words after the command."""
        text = json.dumps(describe_environment(arguments), indent=2, ensure_ascii=False)
        return self.write_text(ENVIRONMENT, text + "\n")

    def read_environment(self) -> dict[str, Any]:
        """The content of `write_environment`; empty when it is missing or damaged."""
        try:
            return dict(json.loads((self.path / ENVIRONMENT).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return {}

    def add_metrics(self, rows: Iterable[Sequence[Any]]) -> None:
        """Append rows with the fields of `Metric`, all or none, durably."""
        self._metrics.add(rows)

    def add_timings(self, rows: Iterable[Sequence[Any]]) -> None:
        """Append rows of seconds, like metrics."""
        self._timings.add(rows)

    def compact_metrics(self) -> None:
        """Put `metrics.csv` into its final form: sorted, one row per key, the last one wins."""
        self._metrics.compact()
        self._timings.compact()

    def metrics(self) -> list[Metric]:
        """All metrics so far, one per key, sorted; then all timings."""
        return [*self._metrics.read(), *self._timings.read()]

    def add_events(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Append events, one JSON line each. Not synced to the disk: nothing depends on them."""
        lines = "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events)
        if lines:
            with disk_errors(self.path), open(self.path / EVENTS, "a", encoding="utf-8") as file:
                file.write(lines)

    def events(self) -> list[dict[str, Any]]:
        """All events so far, in the order of their arrival; damaged lines are left out."""
        found = []
        with contextlib.suppress(OSError), open(self.path / EVENTS, encoding="utf-8") as file:
            for line in file:
                with contextlib.suppress(ValueError):
                    event = json.loads(line)
                    found += [event] if isinstance(event, dict) else []
        return found

    def log(self, text: str) -> None:
        """Append a line with the time to the log."""
        moment = datetime.now(UTC).isoformat(timespec="seconds")
        path = self.path / LOG
        with disk_errors(path):
            durable_append(path, f"{moment} {text}\n".encode())

    def files_of(self, folder: str) -> frozenset[str]:
        """The names of all files below a folder, relative to the run directory."""
        found = (path for path in (self.path / folder).rglob("*") if path.is_file())
        return frozenset(path.relative_to(self.path).as_posix() for path in found)


def _rename_former_files(path: Path) -> None:
    """Give the server's files of a run of an earlier version their present names."""
    former = path / "curator"
    if not former.is_dir() or (path / SERVER).exists():
        return
    for old, new in (("verdict", "evaluation"), ("symptoms", "inversion_estimate")):
        for file in former.glob(f"*/{old}-*.json"):
            file.rename(file.with_name(file.name.replace(old, new, 1)))
    former.rename(path / SERVER)


def _check_unused(path: Path) -> None:
    entries = {entry.name for entry in path.iterdir()}
    if CONFIG in entries:
        state = "a finished run" if RunDirectory(path).finished else "an unfinished run"
        raise UserError(
            f"out={path} already holds {state}. "
            f"Continue it with --resume {path}, or choose another directory with out=."
        )
    left_by_a_crash = {HOLDER, LOCK}
    if LOG in entries and not (path / LOG).stat().st_size:
        left_by_a_crash.add(LOG)
    foreign = [
        name for name in sorted(entries - left_by_a_crash) if not name.endswith(TEMPORARY_SUFFIX)
    ]
    if foreign:
        raise UserError(
            f"out={path} is not empty and is not a run directory (it holds {foreign[0]!r}). "
            "Choose another directory with out=."
        )
