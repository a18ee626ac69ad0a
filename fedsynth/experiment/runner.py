"""Takes a run to its end: jobs on the engine, evaluations as outcomes appear, then the books."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any, TypeVar

from fedsynth.core.plan import SERVER_VIEW
from fedsynth.engine.base import Engine
from fedsynth.engine.dropouts import dropped_parties
from fedsynth.evaluation.continual import stage_rows, summary_rows
from fedsynth.evaluation.image_quality import ImageQuality
from fedsynth.evaluation.types import EvalResult, read_verdict
from fedsynth.experiment.evaluate import judge, nets, quality
from fedsynth.experiment.inversion_estimate import asked, symptoms
from fedsynth.experiment.job import Job
from fedsynth.experiment.party_timing import release_seconds
from fedsynth.experiment.progress import Progress, read_progress
from fedsynth.experiment.scenario import scenario_stages
from fedsynth.experiment.server_session import destroy_keys, dropout_notes
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import disclosed
from fedsynth.privacy.ledger import read_entries, total
from fedsynth.storage.run_directory import LEDGER, SERVER, RunDirectory

POLL_SECONDS = 0.1
Result = TypeVar("Result")


@dataclass
class _JobState:
    """How far one job is."""

    job: Job
    stages: int
    release: Future[None] | None = None
    verdicts: dict[int, list[Future[EvalResult]]] = field(default_factory=dict)
    qualities: dict[int, Future[ImageQuality | None]] = field(default_factory=dict)
    symptoms: dict[int, Future[dict[str, float]]] = field(default_factory=dict)
    booked: dict[int, list[EvalResult]] = field(default_factory=dict)
    closed: bool = False


class Runner:
    """One run on an open engine. What is on disk already is not done again."""

    def __init__(self, run: RunDirectory, engine: Engine, progress: Progress) -> None:
        self.run, self.engine, self.progress = run, engine, progress

    def execute(self, jobs: list[Job], at_once: int) -> None:
        """Run all jobs, `at_once` at a time, and judge every stage as soon as it is released."""
        self._pool = pool = ThreadPoolExecutor(at_once, thread_name_prefix="job")
        try:
            courses = [self._start(job, pool) for job in jobs]
            while not all(course.closed for course in courses):
                for course in courses:
                    self._advance(course)
                time.sleep(POLL_SECONDS)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        self.run.write_text(LEDGER, merged_ledger(jobs))

    def _start(self, job: Job, pool: ThreadPoolExecutor) -> _JobState:
        stages = len(scenario_stages(job.scenario))
        if (self.run.path / _closing(job)).is_file():
            self._tidy(job)
            return _JobState(job, stages, closed=True)
        self.progress.job(job.name, stages)
        sticky = job.method_impl.keeps_state
        release = pool.submit(self.engine.run, job.text(), job.scenario.parties, sticky=sticky)
        return _JobState(job, stages, release)

    def _advance(self, course: _JobState) -> None:
        """Show progress, judge what has been released, and book what has been judged."""
        if course.closed or course.release is None:
            return
        released = course.release.done()
        if released:
            course.release.result()
        else:
            self._show(course)
        for stage in range(course.stages):
            if stage not in course.verdicts and self._released_up_to(course.job, stage):
                course.verdicts[stage] = self._judge(course.job, stage)
                course.qualities[stage] = self._quality(course.job, stage)
                course.symptoms[stage] = self._symptoms(course.job, stage)
            if stage in course.verdicts and stage not in course.booked:
                self._book(course, stage)
        if released and len(course.booked) == course.stages:
            self._close(course)

    def _show(self, course: _JobState) -> None:
        """One line for the job: where its parties are, what the stage will have cost."""
        job = course.job
        shares = read_progress(job.progress_folder()).values()
        finished = sum(self.run.has_release(job.name, s + 1) for s in range(course.stages))
        at_work = [p for p in shares if not self.run.has_release(job.name, p.stage + 1)]
        done, total = sum(p.done for p in at_work), sum(p.total for p in at_work)
        stage = min(finished + 1, course.stages)
        spent = job.budget.epsilon if job.method_impl.private and (finished or done) else None
        self.progress.update(job.name, stage, done, max(total, 1), spent=spent)

    def _released_up_to(self, job: Job, stage: int) -> bool:
        return all(self.run.has_release(job.name, earlier + 1) for earlier in range(stage + 1))

    def _judge(self, job: Job, stage: int) -> list[Future[EvalResult]]:
        model = self.run.holds_model(job.name, stage + 1)
        return [self._verdict(job, stage, net) for net in range(nets(job, model))]

    def _verdict(self, job: Job, stage: int, net: int) -> Future[EvalResult]:
        """The verdict of one classifier: from disk if it is there, else a job for a worker."""
        path = self.run.path / _verdict_file(job, stage, net)
        if not path.is_file():
            return self.engine.submit(judge, job.text(), stage, net)
        return _known(read_verdict(path.read_text()))

    def _quality(self, job: Job, stage: int) -> Future[ImageQuality | None]:
        """How good a stage's images are, where that is asked for: from disk, or a worker's job."""
        if not job.evaluation.quality or self.run.holds_model(job.name, stage + 1):
            return _known(None)
        path = self.run.path / _quality_file(job, stage)
        if path.is_file():
            return _known(ImageQuality(**json.loads(path.read_text())))
        return self.engine.submit(quality, job.text(), stage)

    def _symptoms(self, job: Job, stage: int) -> Future[dict[str, float]]:
        """What a stage's images tell of users' faults, where that is in question: from disk, or
        found out by conversations beside the others."""
        if not asked(job):
            return _known({})
        path = self.run.path / _symptoms_file(job, stage)
        if path.is_file():
            return _known(json.loads(path.read_text()))
        return self._pool.submit(symptoms, self.engine, job, stage)

    def _book(self, course: _JobState, stage: int) -> None:
        """Write a stage's numbers once all its classifiers are done."""
        job, futures = course.job, course.verdicts[stage]
        everything = [f for fs in course.verdicts.values() for f in fs]
        self.progress.evaluation(job.name, sum(f.done() for f in everything), len(everything))
        seen, told = course.qualities[stage], course.symptoms[stage]
        if not (seen.done() and told.done() and all(future.done() for future in futures)):
            return
        results = [future.result() for future in futures]
        for net, result in enumerate(results):
            self.run.write_text(_verdict_file(job, stage, net), json.dumps(asdict(result)))
            if result.remark:
                self.run.log(f"{job.name} stage {stage + 1}: {result.classifier}: {result.remark}")
        rows = {**stage_rows(results, class_stages(job)), **privacy_metrics(job, stage)}
        rows |= told.result()
        self.run.write_text(_symptoms_file(job, stage), json.dumps(told.result()))
        if dropped := dropped_parties(job.dropout_file(stage)):
            rows["parties_gone"] = len(dropped)
        if found := seen.result():
            self.run.write_text(_quality_file(job, stage), json.dumps(asdict(found)))
            rows |= found.rows()
        if results[0].released:
            rows["images"] = results[0].released - self._images_before(course, stage)
        self.run.add_metrics(_keyed(job, stage, rows))
        spent = {
            "seconds_release": release_seconds(job, stage),
            "seconds_evaluation": sum(r.seconds for r in results) + (found.seconds if found else 0),
        }
        self.run.add_timings(_keyed(job, stage, spent))
        course.booked[stage] = results

    @staticmethod
    def _images_before(course: _JobState, stage: int) -> int:
        """Released images that classifiers had before this stage."""
        return course.verdicts[stage - 1][0].result().released if stage else 0

    def _close(self, course: _JobState) -> None:
        job = course.job
        history = [course.booked[stage] for stage in range(course.stages)]
        rows = summary_rows(history, class_stages(job))
        self.run.add_metrics(_keyed(job, course.stages - 1, rows))
        text = f"accuracy {fmean(r.accuracy for r in history[-1]):.3f} after the last stage"
        for note in dropout_notes(job):
            self.run.log(note)
        self.progress.finish(job.name, text)
        self.run.log(f"{job.name}: {text}")
        self.run.write_text(_closing(job), "{}")
        self._tidy(job)
        course.closed = True

    def _tidy(self, job: Job) -> None:
        """Remove what nobody needs once a job is closed; a crash may have come in between."""
        self.run.drop_disclosed(job.name)
        destroy_keys(job)


def class_stages(job: Job) -> list[tuple[int, ...]]:
    """The classes that each stage brought."""
    return [stage.classes for stage in scenario_stages(job.scenario)]


def privacy_metrics(job: Job, stage: int) -> dict[str, float]:
    """What the parties of a stage have spent, read from their ledgers, and what it took."""
    plan = job.plan(stage)
    spent: dict[str, list[float]] = {"pld": [], "rdp": [], "paper": []}
    for share in plan.parties:
        event = total(read_entries(job.party_folder(share.party) / "ledger.jsonl"))
        if share.views.get(SERVER_VIEW) == disclosed():
            event = disclosed()  # a trusted curator adds the noise: against it there is none
        spent["pld"].append(epsilon(event, job.budget.delta, "pld"))
        spent["rdp"].append(epsilon(event, job.budget.delta, "rdp"))
        spent["paper"].append(job.paper_epsilon(share.paper_event or event))
    return {
        **{f"epsilon_{name}": max(values) for name, values in spent.items()},
        "noise_multiplier": max(p.noise_multiplier for p in plan.parties),
        "sampling_rate": max(p.sampling_rate for p in plan.parties),
        "steps": max(p.steps for p in plan.parties),
        "records": sum(p.records for p in plan.parties),
        "bytes_up": sum(p.bytes_up for p in plan.parties),
        "bytes_down": sum(p.bytes_down for p in plan.parties),
    }


def merged_ledger(jobs: list[Job]) -> str:
    """Every party's verified ledger, one after the other: each keeps its own chain of hashes."""
    lines = []
    for job in sorted(jobs, key=lambda job: job.name):
        for party in range(job.scenario.parties):
            entries = read_entries(job.party_folder(party) / "ledger.jsonl")
            lines += [entry.line() + "\n" for entry in entries]
    return "".join(lines)


def _keyed(job: Job, stage: int, rows: Mapping[str, float]) -> list[tuple[Any, ...]]:
    key = (job.method, job.budget.epsilon, job.seed, stage + 1)
    return [(*key, name, value) for name, value in rows.items()]


def _verdict_file(job: Job, stage: int, net: int) -> str:
    return f"{SERVER}/{job.name}/verdict-{stage + 1}-{net}.json"


def _quality_file(job: Job, stage: int) -> str:
    return f"{SERVER}/{job.name}/quality-{stage + 1}.json"


def _known(value: Result) -> Future[Result]:
    """A future that is over."""
    future: Future[Result] = Future()
    future.set_result(value)
    return future


def _symptoms_file(job: Job, stage: int) -> str:
    return f"{SERVER}/{job.name}/symptoms-{stage + 1}.json"


def _closing(job: Job) -> str:
    return f"{SERVER}/{job.name}/closed.json"
