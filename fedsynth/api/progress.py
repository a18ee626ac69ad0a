"""The progress display of a run: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import IO

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bars
from rich.text import Text

from fedsynth.experiment.progress import StageProgress, duration

NARROW = 80  # columns; below, states are short and there are no bars


@dataclass
class _Line:
    """One line of the display, with the data for its estimate of the time left."""

    label: str
    share: float = 0.0
    start: tuple[float, float] | None = None  # time and share of the first update
    task: TaskID | None = None

    def left(self, now: float) -> str:
        """Time left, if the rest is as fast as the part so far."""
        if self.start is None:
            self.start = (now, self.share)
        since, share = self.start
        if self.share >= 1.0 or self.share <= share or now - since < 1.0:
            return ""
        return f"{duration((now - since) * (1.0 - self.share) / (self.share - share))} left"


@dataclass
class _Job:
    stages: int
    line: _Line
    stage: int = 0
    since: float = 0.0  # first update of this stage
    announced: int = 0  # the last stage whose end was announced
    spent: float | None = None
    finished: bool = False


class Progress:
    """The progress display of a run. Every method may be called from any thread.

    On a terminal: a line for the whole run, one per running job and one per running evaluation.
    Elsewhere: plain lines, one per finished stage. `silent`: nothing at all. Names and notes are
    displayed as they are, never as markup.
    """

    def __init__(self, *, silent: bool = False, stream: IO[str] | None = None) -> None:
        self._stream = stream if stream is not None else sys.stdout
        self._silent = silent
        self._lock = threading.RLock()
        self._jobs: dict[str, _Job] = {}
        self._evaluations: dict[str, _Line] = {}
        self._evaluated: dict[str, int] = {}
        self._run = _Line("all jobs")
        self._bars = None if silent else _bars(self._stream)
        self._narrow = self._bars is not None and self._bars.console.width < NARROW

    def __enter__(self) -> Progress:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def job(self, name: str, stages: int) -> None:
        """Announce a job of so many stages; its line appears with its first update."""
        with self._lock:
            self._jobs.setdefault(name, _Job(max(1, stages), _Line(name)))

    def update(
        self,
        name: str,
        at: StageProgress,
        *,
        spent: float | None = None,
        note: str = "",
        released: bool = False,
    ) -> None:
        """A job is there (stages from 1) and has spent this epsilon so far.

        A stage is over when it is `released` or the next one begins: a party may do several pieces
        of work in a stage, each with steps of its own."""
        stage, done, total = at
        with self._lock:
            job = self._jobs.setdefault(name, _Job(max(1, stage), _Line(name)))
            now = time.monotonic()
            if stage != job.stage:
                self._announce_stage(name, job, now)
                job.stage, job.since = stage, now
            job.spent = spent if spent is not None else job.spent
            job.line.share = min(1.0, (stage - 1 + done / max(1, total)) / job.stages)
            if self._narrow:
                words = [f"{stage}/{job.stages}", f"{done:,}/{total:,}"]
            else:
                words = [f"stage {stage}/{job.stages}", f"{done:,}/{total:,} steps"]
            if job.spent is not None:
                words.append(f"ε {job.spent:.4g}" if self._narrow else _spent(job.spent))
            self._draw(job.line, "  ".join([*words, note]).rstrip(), now)
            self._draw_run(now)
            if released:
                self._announce_stage(name, job, now)

    def evaluation(self, name: str, done: int, total: int) -> None:
        """`done` of `total` classifiers of a job's evaluation are trained.

        The end is announced once, and again if classifiers were added since."""
        with self._lock:
            if self._evaluated.get(name) == total:
                return
            line = self._evaluations.setdefault(name, _Line(name))
            line.share = done / max(1, total)
            state = f"evaluation  {done}/{total}" + (" classifiers" * (not self._narrow))
            self._draw(line, state, time.monotonic())
            self._draw_run(time.monotonic())
            if done >= total:
                self._evaluated[name] = total
                self._drop(self._evaluations.pop(name))
                self._plain(f"{name}: evaluation done, {total} classifiers")

    def finish(self, name: str, text: str) -> None:
        """A job is complete; `text` stays on the screen."""
        with self._lock:
            if job := self._jobs.get(name):
                job.finished, job.line.share = True, 1.0
                self._drop(job.line)
            if line := self._evaluations.pop(name, None):
                self._drop(line)
            self._draw_run(time.monotonic())
            self.message(f"{name}: {text}")

    def message(self, text: str) -> None:
        """A line of text, above the bars where there are bars."""
        with self._lock:
            if self._bars is not None:
                self._bars.console.print(Text(text), highlight=False)
            else:
                self._plain(text)

    def _announce_stage(self, name: str, job: _Job, now: float) -> None:
        if job.stage <= job.announced:
            return
        job.announced = job.stage
        words = [f"stage {job.stage}/{job.stages} done in {duration(now - job.since)}"]
        if job.spent is not None:
            words.append(_spent(job.spent))
        self._plain(f"{name}: {', '.join(words)}")

    def _plain(self, text: str) -> None:
        if self._bars is None and not self._silent:
            print(text, file=self._stream, flush=True)

    def _draw_run(self, now: float) -> None:
        if len(self._jobs) < 2:
            return
        jobs = self._jobs.values()
        self._run.share = sum(map(self._share, self._jobs)) / len(jobs)
        self._draw(self._run, f"{sum(job.finished for job in jobs)}/{len(jobs)} done", now)

    def _share(self, name: str) -> float:
        """The share of a job that is done: one half is its releases, the other its evaluation."""
        job = self._jobs[name]
        if job.finished:
            return 1.0
        line = self._evaluations.get(name)
        evaluated = line.share * job.line.share if line else float(name in self._evaluated)
        return (job.line.share + evaluated) / 2

    def _draw(self, line: _Line, state: str, now: float) -> None:
        if self._bars is None:
            return
        if line.task is None:
            line.task = self._bars.add_task("", total=1.0, label=line.label, state="", left="")
        self._bars.update(line.task, completed=line.share, state=state, left=line.left(now))

    def _drop(self, line: _Line) -> None:
        if self._bars is not None and line.task is not None:
            self._bars.remove_task(line.task)
            line.task = None


def _bars(stream: IO[str]) -> Bars | None:
    """Bars for a terminal that can draw them; None anywhere else, even with FORCE_COLOR."""
    if not stream.isatty():
        return None
    console = Console(file=stream)
    if console.is_dumb_terminal:
        return None
    bar = [BarColumn(bar_width=20 if console.width >= 100 else 6)]
    if console.width < NARROW:
        bar = []
    return Bars(
        TextColumn("{task.fields[label]}", markup=False),
        *bar,
        TextColumn("{task.fields[state]}", markup=False),
        TextColumn("{task.fields[left]}", markup=False, style="dim"),
        console=console,
        transient=True,
        refresh_per_second=4,
    )


def _spent(epsilon: float) -> str:
    return f"epsilon spent {epsilon:.4g}"
