"""The run directory: everything a run leaves behind, each file complete or absent.

Writes go to a temporary file that is synced and renamed, so a crash, a full disk or kill -9 never
leaves half a file. What the disk refuses is a `UserError`. Stages are counted from 1 here, in
`metrics.csv` and in file names, because people read them.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from fedsynth.core.errors import UserError
from fedsynth.core.outcomes import Outcome, SyntheticSet
from fedsynth.storage.environment import describe_environment
from fedsynth.storage.files import (
    TEMPORARY_SUFFIX,
    atomic_write,
    disk_errors,
    durable_append,
    make_directories,
    remove_directories,
)
from fedsynth.storage.lock import HOLDER, LOCK
from fedsynth.storage.metrics import Metric, MetricsFile
from fedsynth.storage.releases import archive, contact_sheet, png, unarchive

CONFIG = "config.yaml"
ENVIRONMENT = "environment.json"
METRICS = "metrics.csv"
TIMINGS = "timings.csv"  # apart, because two runs never agree on them
LEDGER = "ledger.jsonl"
LOG = "log.txt"
REPORT = "report.html"
SERVER = "server"  # folder of the server: unfinished work and results of evaluations


def release_name(method: str, epsilon: float, seed: int) -> str:
    """The folder of one job's releases."""
    return f"{method}-eps{repr(float(epsilon)).removesuffix('.0')}-seed{seed}"


class RunDirectory:
    """One run on disk. Make one with `create` (a new run), `open` (to go on) or `read`."""

    def __init__(self, path: Path, made: Sequence[Path] | None = None) -> None:
        self.path = path
        self._made = made  # directories of a new run that did not exist before it
        self._metrics = MetricsFile(path / METRICS)
        self._timings = MetricsFile(path / TIMINGS)

    @classmethod
    def create(cls, path: str | Path) -> RunDirectory:
        """Start a new run at `path`, which must not exist or be an empty directory."""
        path = Path(path)
        with disk_errors(path):
            if path.is_dir():
                _refuse_what_is_there(path)
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
        """Continue the run at `path`, which nobody else works at; tidies what a crash left."""
        run = cls.read(path)
        for leftover in run.path.rglob(f".*{TEMPORARY_SUFFIX}"):
            with contextlib.suppress(OSError):
                leftover.unlink()
        _rename_former_files(run.path)
        run.compact_metrics()
        return run

    @classmethod
    def read(cls, path: str | Path) -> RunDirectory:
        """The run at `path`, to look at: nothing in it is changed, it may still be at work."""
        path = Path(path)
        if not path.is_dir():
            what = "is a file" if path.exists() else "does not exist"
            raise UserError(f"{path} {what}: there is no run there. Check the path.")
        if not (path / CONFIG).is_file():
            raise UserError(f"{path} is not a run directory: it has no {CONFIG}.")
        return cls(path)

    def withdraw(self) -> None:
        """Take back a new run that could not begin; one that was only opened stays as it is."""
        if self._made is not None:
            for name in (CONFIG, ENVIRONMENT, LOG, HOLDER, LOCK):
                (self.path / name).unlink(missing_ok=True)
            remove_directories(self._made)

    @property
    def finished(self) -> bool:
        """Whether the run came to its end: the report is written last."""
        return (self.path / REPORT).is_file()

    def write_bytes(self, name: str, data: bytes) -> Path:
        """Write a file of the run, atomically; `name` may hold folders."""
        target = self.path / name
        if target == self.path or not target.resolve().is_relative_to(self.path.resolve()):
            raise ValueError(f"{name!r} is outside the run directory")
        with disk_errors(target):
            make_directories(target.parent)
            atomic_write(target, data)
        return target

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
        """Write what this run ran on and with; `arguments` are the words after the command."""
        text = json.dumps(describe_environment(arguments), indent=2, ensure_ascii=False)
        return self.write_text(ENVIRONMENT, text + "\n")

    def read_environment(self) -> dict[str, Any]:
        """What `write_environment` wrote; empty when it is missing."""
        try:
            return json.loads((self.path / ENVIRONMENT).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}

    def add_metrics(self, rows: Iterable[Sequence[Any]]) -> None:
        """Append rows (method, epsilon, seed, stage, metric, value), all or none, durably."""
        self._metrics.add(rows)

    def add_timings(self, rows: Iterable[Sequence[Any]]) -> None:
        """Append rows of seconds, like metrics."""
        self._timings.add(rows)

    def compact_metrics(self) -> None:
        """Put `metrics.csv` into its final form: sorted, one row a key, the last one wins."""
        self._metrics.settle()
        self._timings.settle()

    def metrics(self) -> list[Metric]:
        """All metrics so far, one a key, sorted; then all timings."""
        return [*self._metrics.read(), *self._timings.read()]

    def log(self, text: str) -> None:
        """Append a line with the time to the log."""
        moment = datetime.now(UTC).isoformat(timespec="seconds")
        path = self.path / LOG
        with disk_errors(path):
            durable_append(path, f"{moment} {text}\n".encode())

    def save_release(
        self, name: str, stage: int, outcome: Outcome, table: str | None = None
    ) -> Path:
        """Write a stage's outcome, and beside a synthetic set its picture, or `table`, its rows as
        CSV. Raw records, which only a non-private reference releases, go to a folder of their own
        (`drop_disclosed`)."""
        if isinstance(outcome, SyntheticSet) and outcome.raw:
            return self.write_bytes(
                f"disclosed/{_component(name)}/stage-{stage}.npz", archive(outcome)
            )
        kind = "stage" if isinstance(outcome, SyntheticSet) else "model"
        stem = f"releases/{_component(name)}/{kind}-{stage}"
        if isinstance(outcome, SyntheticSet) and table is not None:
            self.write_text(f"{stem}.csv", table)
        elif isinstance(outcome, SyntheticSet):
            self.write_bytes(f"{stem}.png", png(contact_sheet(outcome)))
        return self.write_bytes(f"{stem}.npz", archive(outcome))

    def drop_disclosed(self, name: str) -> None:
        """Remove a reference's raw records: once judged, nobody needs them."""
        shutil.rmtree(self.path / "disclosed" / _component(name), ignore_errors=True)
        with contextlib.suppress(OSError):
            (self.path / "disclosed").rmdir()

    def files_of(self, folder: str) -> frozenset[str]:
        """The names of all files below a folder, relative to the run directory."""
        found = (path for path in (self.path / folder).rglob("*") if path.is_file())
        return frozenset(path.relative_to(self.path).as_posix() for path in found)

    def has_release(self, name: str, stage: int) -> bool:
        """Whether this outcome is on disk."""
        return self._release(name, stage) is not None

    def holds_model(self, name: str, stage: int) -> bool:
        """Whether this outcome is a model and not a set."""
        path = self._release(name, stage)
        return path is not None and path.name.startswith("model-")

    def load_release(self, name: str, stage: int) -> Outcome:
        """Read a stage's outcome back, bit by bit what was saved."""
        path = self._release(name, stage)
        if path is None:
            raise UserError(f"{self.path} holds no release of {name} for stage {stage}.")
        return unarchive(path)

    def _release(self, name: str, stage: int) -> Path | None:
        for place in ("releases", "disclosed"):
            for kind in ("stage", "model"):
                path = self.path / place / _component(name) / f"{kind}-{stage}.npz"
                if path.is_file():
                    return path
        return None


def _rename_former_files(path: Path) -> None:
    """Give the server's files of a run of an earlier version their present names."""
    former = path / "curator"
    if not former.is_dir() or (path / SERVER).exists():
        return
    for old, new in (("verdict", "evaluation"), ("symptoms", "inversion_estimate")):
        for file in former.glob(f"*/{old}-*.json"):
            file.rename(file.with_name(file.name.replace(old, new, 1)))
    former.rename(path / SERVER)


def _component(name: str) -> str:
    if not name or name in {".", ".."} or "/" in name or "\\" in name or not name.isprintable():
        raise ValueError(f"not a name for a release: {name!r}")
    return name


def _refuse_what_is_there(path: Path) -> None:
    entries = {entry.name for entry in path.iterdir()}
    if CONFIG in entries:
        state = "a finished run" if REPORT in entries else "an unfinished run"
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
