"""Takes a run to its end: jobs on the engine, evaluations as outcomes appear, books at the close."""

from __future__ import annotations

import json
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field

from fedsynth.core import ReleasedModel
from fedsynth.engine.engine import Engine
from fedsynth.engine.job import Job
from fedsynth.engine.judge import judge, nets
from fedsynth.evaluation.continual import stage_rows, summary_rows
from fedsynth.evaluation.downstream import EvalResult
from fedsynth.report.progress import Progress
from fedsynth.report.store import LEDGER, RunDirectory
from fedsynth.scenario import tasks

POLL_SECONDS = 0.1


@dataclass
class _Course:
    """How far one job is."""

    job: Job
    release: Future[None]
    stages: int
    judged: dict[int, list[Future[EvalResult] | None]] = field(default_factory=dict)
    closed: set[int] = field(default_factory=set)
    told: bool = False


class Runner:
    """One run on an open engine. What is on disk already is not done again."""

    def __init__(self, run: RunDirectory, engine: Engine, progress: Progress) -> None:
        self.run, self.engine, self.progress = run, engine, progress
        self.results: dict[tuple[str, int], list[EvalResult]] = {}

    def execute(self, jobs: list[Job], at_once: int) -> None:
        """Run all jobs, `at_once` at a time, and judge every stage as soon as it is released."""
        with _threads(at_once) as pool:
            courses = [self._start(job, pool) for job in jobs]
            while any(not c.told for c in courses):
                for course in courses:
                    self._advance(course)
                open_releases = [c.release for c in courses if not c.release.done()]
                if open_releases:
                    wait(open_releases, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
                else:
                    time.sleep(POLL_SECONDS / 5)
        self.run.write_text(LEDGER, merged_ledger(jobs))

    def _start(self, job: Job, pool: ThreadPoolExecutor) -> _Course:
        stages = len(tasks(job.world))
        self.progress.job(job.name, stages)
        release = pool.submit(self.engine.run, job.text(), job.world.parties)
        return _Course(job, release, stages)

    def _advance(self, course: _Course) -> None:
        """Show progress, judge what has been released, and book what has been judged."""
        if course.told:
            return
        job = course.job
        if course.release.done():
            course.release.result()
        else:
            self._show(course)
        for stage in range(course.stages):
            if stage not in course.judged and self._released_up_to(job, stage):
                model = isinstance(self.run.load_release(job.name, stage), ReleasedModel)
                course.judged[stage] = [
                    self._judge(job, stage, net) for net in range(nets(job, model))
                ]
            if stage in course.judged and stage not in course.closed:
                self._book(course, stage)
        if course.release.done() and len(course.closed) == course.stages:
            self._close(course)

    def _released_up_to(self, job: Job, stage: int) -> bool:
        return all(self.run.has_release(job.name, earlier) for earlier in range(stage + 1))

    def _judge(self, job: Job, stage: int, net: int) -> Future[EvalResult]:
        known = self.run.path / _verdict(job, stage, net)
        if known.is_file():
            done: Future[EvalResult] = Future()
            done.set_result(_read_verdict(known.read_text()))
            return done
        return self.engine.submit(judge, job.text(), stage, net)

    def _book(self, course: _Course, stage: int) -> None:
        """Write a stage's numbers once all its classifiers are done."""
        futures = course.judged[stage]
        job = course.job
        everything = [f for fs in course.judged.values() for f in fs]
        self.progress.evaluation(job.name, sum(f.done() for f in everything), len(everything))
        if not all(future.done() for future in futures):
            return
        results = [future.result() for future in futures]
        for net, result in enumerate(results):
            self.run.write_text(_verdict(job, stage, net), json.dumps(asdict(result)))
        self.results[job.name, stage] = results
        rows = {**stage_rows(results, self._class_stages(job)), **privacy_metrics(job, stage)}
        key = (job.method, job.budget.epsilon, job.seed, stage)
        self.run.add_metrics([(*key, name, value) for name, value in rows.items()])
        self.run.add_timings(
            [
                (*key, "seconds_release", self._release_seconds(job, stage)),
                (*key, "seconds_evaluation", sum(r.seconds for r in results)),
            ]
        )
        course.closed.add(stage)

    def _close(self, course: _Course) -> None:
        job = course.job
        history = [self.results[job.name, stage] for stage in range(course.stages)]
        rows = summary_rows(history, self._class_stages(job))
        key = (job.method, job.budget.epsilon, job.seed, course.stages - 1)
        self.run.add_metrics([(*key, name, value) for name, value in rows.items()])
        accuracy = sum(r.accuracy for r in history[-1]) / len(history[-1])
        self.progress.finish(job.name, f"accuracy {accuracy:.3f} after the last stage")
        self.run.log(f"{job.name} done: accuracy {accuracy:.4f}")
        course.told = True


"""Everything below is bookkeeping."""
