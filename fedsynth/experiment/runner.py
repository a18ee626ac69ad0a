"""Runs the jobs of an experiment, evaluates each stage once it is released, records the results.

The runner reads the run directory once, when it starts. From then on the engine notifies it of each
stage that is complete, and futures of each evaluation.
"""

from __future__ import annotations

import functools
import json
import queue
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any, TypeVar

from fedsynth.core.errors import UserError
from fedsynth.core.outcomes import Outcome, ReleasedModel
from fedsynth.engine.base import Engine
from fedsynth.engine.dropouts import dropped_parties
from fedsynth.engine.placement import PartiesUnreachable
from fedsynth.evaluation.continual import stage_rows, summary_rows
from fedsynth.evaluation.image_quality import ImageQuality
from fedsynth.evaluation.types import EvalResult
from fedsynth.experiment.evaluate import (
    evaluate_classifier,
    evaluate_images,
    number_of_classifiers,
    releases_for_workers,
)
from fedsynth.experiment.job import Job
from fedsynth.experiment.job_metrics import keyed, privacy_metrics
from fedsynth.experiment.party_extracts import (
    collect_extracts,
    destroy_keys,
    release_seconds,
)
from fedsynth.experiment.progress import PROGRESS, ProgressDisplay, StageProgress
from fedsynth.experiment.run_ledger import merged_ledger
from fedsynth.experiment.server_session import dropout_notes
from fedsynth.experiment.simulated_parties import run_job
from fedsynth.experiment.stage_extension import StageExtension
from fedsynth.experiment.trackers import Tracker
from fedsynth.storage.message_log import MessageReader
from fedsynth.storage.run_directory import (
    FAILED,
    LEDGER,
    MESSAGES,
    SERVER,
    RunDirectory,
    evaluation_file,
)

DISPLAY_SECONDS = 1.0  # between two readings of the messages of parties and evaluations
DISPLAY_SHARE = 0.05  # most time that these readings may take

Result = TypeVar("Result")


@dataclass
class _StageEvaluation:
    """The evaluations of one stage, running or complete."""

    classifiers: list[Future[EvalResult]]
    quality: Future[ImageQuality | None]
    extensions: dict[str, Future[dict[str, float]]]  # by name, those that apply

    def futures(self) -> list[Future[Any]]:
        """All evaluations of the stage."""
        return [*self.classifiers, self.quality, *self.extensions.values()]


@dataclass
class _JobState:
    """The progress of one job."""

    job: Job
    release: Future[None] | None = None  # of the whole job; None: the job was complete before
    released: dict[int, bool] = field(default_factory=dict)  # stage -> whether it is a model
    evaluations: dict[int, _StageEvaluation] = field(default_factory=dict)
    recorded: dict[int, list[EvalResult]] = field(default_factory=dict)
    progress: dict[int, StageProgress] = field(default_factory=dict)  # the last one per party
    closed: bool = False
    error: Exception | None = None

    @property
    def stages(self) -> int:
        """The number of stages."""
        return len(self.job.plans)

    def released_up_to(self, stage: int) -> bool:
        """True if this stage and all earlier ones are released."""
        return all(earlier in self.released for earlier in range(stage + 1))


class Runner:
    """Runs jobs on an open engine. What is on disk already is not done again."""

    def __init__(
        self,
        run: RunDirectory,
        engine: Engine,
        progress: ProgressDisplay,
        extensions: Sequence[StageExtension] = (),
        trackers: Sequence[Tracker] = (),
    ) -> None:
        self.run, self.engine, self.progress = run, engine, progress
        self._extensions, self._trackers = extensions, trackers
        self._messages = MessageReader(run.path / MESSAGES)
        self._changes: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._stored: frozenset[str] = frozenset()
        self.notes: list[str] = []  # for the report
        self.failed: dict[str, str] = {}  # the reason per job

    def execute(self, jobs: Sequence[Job], at_once: int) -> None:
        """Run all jobs, `at_once` at a time, and evaluate every stage once it is released.

        A job that fails is booked in `failed` with its reason, and the others go on.

        Raises:
            Exception: The first failure, if no job is complete.
        """
        self._stored = self.run.files_of(SERVER)
        self._messages.start()
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="job")
        states: list[_JobState] = []
        try:
            states = [self._start(job) for job in jobs]
            next_display = time.monotonic() + DISPLAY_SECONDS
            while not all(state.closed for state in states):
                try:
                    change = self._changes.get(timeout=max(0.0, next_display - time.monotonic()))
                except queue.Empty:
                    start = time.monotonic()
                    self._read_messages(states)
                    end = time.monotonic()
                    next_display = end + max(DISPLAY_SECONDS, (end - start) / DISPLAY_SHARE)
                else:
                    change()
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._read_messages(states)
            self._messages.remove()
        if len(self.failed) == len(jobs):
            raise next(state.error for state in states if state.error is not None)
        self.run.write_text(LEDGER, merged_ledger(jobs))

    def _start(self, job: Job) -> _JobState:
        if _closed_file(job) in self._stored:
            self._clean_up(job)
            return _JobState(job, closed=True)
        state = _JobState(job)
        self.progress.job(job.name, state.stages)

        def on_stage(stage: int, outcome: Outcome) -> None:
            collect_extracts(self.engine, job, stage)
            is_model = isinstance(outcome, ReleasedModel)
            self._changes.put(
                functools.partial(self._booked, state, self._on_released, state, stage, is_model)
            )

        state.release = self._pool.submit(
            run_job,
            self.engine,
            job,
            sticky=job.method_impl.keeps_state,
            on_stage=on_stage,
        )
        self._watch(state, [state.release])
        return state

    def _watch(self, state: _JobState, futures: Iterable[Future[Any]]) -> None:
        """Advance a job when one of these futures is done."""
        advance = functools.partial(self._booked, state, self._advance, state)
        for future in futures:
            future.add_done_callback(lambda _: self._changes.put(advance))

    def _booked(self, state: _JobState, step: Callable[..., None], *arguments: Any) -> None:
        """Take a step of a job; its failure ends this job and no other."""
        if state.closed:
            return
        try:
            step(*arguments)
        except Exception as error:
            self._fail(state, error)

    def _fail(self, state: _JobState, error: Exception) -> None:
        """Book a failed job; what it has done is kept for `--resume`."""
        job = state.job
        state.closed, state.error = True, error
        text = str(error) or type(error).__name__
        reason = text if isinstance(error, UserError) else f"{type(error).__name__}: {text}"
        self.failed[job.name] = reason
        details = "".join(traceback.format_exception(error))
        self.run.write_text(_failed_file(job), json.dumps({"reason": reason, "details": details}))
        self.run.log(f"{job.name} failed: {reason}")
        self.progress.finish(job.name, f"failed: {reason}")

    def _on_released(self, state: _JobState, stage: int, is_model: bool) -> None:
        state.released[stage] = is_model
        job = state.job
        spent = job.budget.epsilon if job.method_impl.private else None
        at = StageProgress(len(state.released), 1, 1)
        self.progress.update(job.name, at, spent=spent, released=True)
        for later in range(stage, state.stages):
            if later not in state.evaluations and state.released_up_to(later):
                state.evaluations[later] = self._evaluate(state, later)
                self._watch(state, state.evaluations[later].futures())

    def _advance(self, state: _JobState) -> None:
        """Record the stages whose evaluations are done; close the job after the last one."""
        if state.release is None:
            return
        if state.release.done():
            state.release.result()
        for stage in list(state.evaluations):
            if stage not in state.recorded:
                self._record(state, stage)
        if state.release.done() and len(state.recorded) == state.stages:
            self._close(state)

    def _read_messages(self, states: Sequence[_JobState]) -> None:
        """Display the progress of jobs, and store and track the events, since the last reading."""
        by_name = {state.job.name: state for state in states}
        events: list[dict[str, Any]] = []
        moved: dict[str, _JobState] = {}
        for message in self._messages.new():
            if message.get("kind") != PROGRESS:
                events.append(message)
            elif state := by_name.get(str(message.get("job"))):
                state.progress[int(message["party"])] = StageProgress(*message["at"])
                moved[state.job.name] = state
        for state in moved.values():
            self._show(state)
        self.run.add_events(events)
        for tracker in self._trackers:
            for event in events:
                tracker.event(event)

    def _show(self, state: _JobState) -> None:
        """Display the progress of a job."""
        if state.closed or len(state.released) == state.stages:
            return
        job = state.job
        at_work = [at for at in state.progress.values() if at.stage not in state.released]
        done, steps = sum(party.done for party in at_work), sum(party.total for party in at_work)
        private = job.method_impl.private and (state.released or done)
        spent = job.budget.epsilon if private else None
        at = StageProgress(len(state.released) + 1, done, max(steps, 1))
        self.progress.update(job.name, at, spent=spent)

    def _evaluate(self, state: _JobState, stage: int) -> _StageEvaluation:
        """Start the evaluations of a stage; those on disk are read."""
        job, is_model = state.job, state.released[stage]
        arguments: tuple[Any, ...] = (job.text(), stage)
        released = releases_for_workers(self.engine, job, stage)
        classifiers = [
            self._stored_or(
                _classifier_file(job, stage, number),
                EvalResult.from_json,
                functools.partial(
                    self.engine.submit, evaluate_classifier, *arguments, number, *released
                ),
            )
            for number in range(number_of_classifiers(job, is_model))
        ]
        quality: Future[ImageQuality | None] = _completed(None)
        if job.evaluation.quality and not is_model:
            quality = self._stored_or(
                _quality_file(job, stage),
                lambda content: ImageQuality(**json.loads(content)),
                functools.partial(self.engine.submit, evaluate_images, *arguments, *released),
            )
        extensions = {
            extension.name: self._stored_or(
                _extension_file(job, extension.name, stage),
                json.loads,
                functools.partial(self._pool.submit, extension.metrics, self.engine, job, stage),
            )
            for extension in self._extensions
            if extension.applies(job)
        }
        return _StageEvaluation(classifiers, quality, extensions)

    def _stored_or(
        self, name: str, read: Callable[[str], Result], start: Callable[[], Future[Any]]
    ) -> Future[Any]:
        """The result in a file that was there at the start, or else a new computation."""
        if name in self._stored:
            return _completed(read((self.run.path / name).read_text()))
        return start()

    def _record(self, state: _JobState, stage: int) -> None:
        """Write the results of a stage once all its evaluations are done."""
        job, evaluation = state.job, state.evaluations[stage]
        classifiers = [f for each in state.evaluations.values() for f in each.classifiers]
        self.progress.evaluation(job.name, sum(f.done() for f in classifiers), len(classifiers))
        if not all(future.done() for future in evaluation.futures()):
            return
        results = [future.result() for future in evaluation.classifiers]
        for number, result in enumerate(results):
            self.run.write_text(_classifier_file(job, stage, number), json.dumps(asdict(result)))
            if result.remark:
                self.run.log(f"{job.name} stage {stage + 1}: {result.classifier}: {result.remark}")
        rows = {**stage_rows(results, class_stages(job)), **privacy_metrics(job, stage)}
        for name, extension in evaluation.extensions.items():
            rows |= extension.result()
            file = _extension_file(job, name, stage)
            self.run.write_text(file, json.dumps(extension.result()))
        if dropped := dropped_parties(job.dropout_file(stage)):
            rows["parties_gone"] = len(dropped)
        if quality := evaluation.quality.result():
            self.run.write_text(_quality_file(job, stage), json.dumps(asdict(quality)))
            rows |= quality.rows()
        if results[0].released:
            rows["images"] = results[0].released - self._images_before(state, stage)
        self.run.add_metrics(keyed(job, stage, rows))
        seconds = sum(result.seconds for result in results) + (quality.seconds if quality else 0)
        timings = {
            "seconds_release": round(release_seconds(job, stage), 1),
            "seconds_evaluation": seconds,
        }
        self.run.add_timings(keyed(job, stage, timings))
        state.recorded[stage] = results

    @staticmethod
    def _images_before(state: _JobState, stage: int) -> int:
        """The number of images released before this stage."""
        if not stage:
            return 0
        return state.evaluations[stage - 1].classifiers[0].result().released

    def _close(self, state: _JobState) -> None:
        job = state.job
        history = [state.recorded[stage] for stage in range(state.stages)]
        rows = summary_rows(history, class_stages(job))
        self.run.add_metrics(keyed(job, state.stages - 1, rows))
        text = f"accuracy {fmean(r.accuracy for r in history[-1]):.3f} after the last stage"
        for note in dropout_notes(job):
            self.run.log(note)
        self.progress.finish(job.name, text)
        self.run.log(f"{job.name}: {text}")
        self.run.write_text(_closed_file(job), "{}")
        (self.run.path / _failed_file(job)).unlink(missing_ok=True)  # booked by an earlier try
        self._clean_up(job)
        state.closed = True

    def _clean_up(self, job: Job) -> None:
        """Remove the raw records and keys of a closed job; also after a crash in between."""
        self.run.releases.drop_raw(job.name)
        try:
            destroy_keys(job, self.engine)
        except PartiesUnreachable as error:
            text = f"{job.name}: noise keys are not destroyed. {error}"
            self.notes.append(text)
            self.run.log(text)


def class_stages(job: Job) -> list[tuple[int, ...]]:
    """The new classes of each stage."""
    return [plan.stage.classes for plan in job.plans]


def _completed(value: Any) -> Future[Any]:
    """A future that is done."""
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def _classifier_file(job: Job, stage: int, number: int) -> str:
    return evaluation_file(job.name, stage + 1, number)


def _quality_file(job: Job, stage: int) -> str:
    return f"{SERVER}/{job.name}/quality-{stage + 1}.json"


def _extension_file(job: Job, extension: str, stage: int) -> str:
    return f"{SERVER}/{job.name}/{extension}-{stage + 1}.json"


def _failed_file(job: Job) -> str:
    return f"{SERVER}/{job.name}/{FAILED}"


def _closed_file(job: Job) -> str:
    return f"{SERVER}/{job.name}/closed.json"
