"""What a run would do and cost, printed before any data is read."""

from __future__ import annotations

from collections.abc import Sequence

from dp_accounting import DpEvent
from rich.table import Table

from fedsynth.core import PartyPlan, Plan, Work
from fedsynth.engine.estimate import seconds, work_seconds
from fedsynth.engine.job import Job
from fedsynth.engine.judge import nets
from fedsynth.jobs import paper_epsilon, plans, published
from fedsynth.privacy.accounting import epsilon
from fedsynth.privacy.guard import CURATOR
from fedsynth.report.crowd import CROWD, alike, span, who
from fedsynth.report.progress import duration

COLUMNS = (
    "method", "budget", "stage", "party", "records", "q", "steps", "noise", "view",
    "ε PLD", "ε RDP", "ε paper", "up", "down", "time",
)  # fmt: skip


def plan_table(jobs: list[Job], title: str) -> Table:
    """A row a method, budget, party and view: rates, noise, epsilons, bytes, core time.

    Where there are many parties, those that do and spend the same share a row; the time of such a
    row is that of all of them, its bytes those of one."""
    table = Table(title=title, caption=_caption(jobs))
    for name in COLUMNS:
        left = name in ("method", "view")
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    for job in jobs:
        for plan in plans(job):
            for shares in _rows(plan):
                for view, event in (shares[0].views or {CURATOR: shares[0].event}).items():
                    table.add_row(*_cells(job, plan, shares, view, event))
        table.add_section()
    return table


def _rows(plan: Plan) -> list[list[PartyPlan]]:
    """The parties of every row."""
    if len(plan.parties) <= CROWD:
        return [[share] for share in plan.parties]
    return alike(
        plan.parties, lambda s: (s.sampling_rate, s.steps, s.noise_multiplier, repr(s.event))
    )


def _cells(
    job: Job, plan: Plan, shares: Sequence[PartyPlan], view: str, event: DpEvent
) -> list[str]:
    share, delta = shares[0], job.budget.delta
    private = job.the_method.private
    work = [work for one in shares for work in one.work]
    time = work_seconds((*work, *_shared(plan)), plan.task.data)
    return [
        job.method,
        f"{job.budget.epsilon:g}",
        str(plan.task.stage + 1),
        who([one.party for one in shares]),
        span(one.records for one in shares),
        f"{share.sampling_rate:.5f}" if private else "-",
        f"{share.steps:,}",
        f"{share.noise_multiplier:.4f}" if private else "none",
        view,
        f"{epsilon(event, delta, 'pld'):.4g}",
        f"{epsilon(event, delta, 'rdp'):.4g}",
        f"{paper_epsilon(job, published(share, event)):.4g}",
        span((one.bytes_up for one in shares), size),
        span((one.bytes_down for one in shares), size),
        duration(time),
    ]


def _shared(plan: Plan) -> tuple[Work, ...]:
    """The curator's work, counted once: with its first party."""
    return plan.curator_work if len(plan.parties) == 1 else ()


def _caption(jobs: list[Job]) -> str:
    release = sum(seconds(plan) for job in jobs for plan in plans(job))
    judging = sum(evaluation_seconds(job) for job in jobs)
    return (
        f"Estimated on this machine, one core: releases {duration(release)}, evaluation "
        f"{duration(judging)}, together {duration(release + judging)}; divide by the workers."
    )


def evaluation_seconds(job: Job) -> float:
    """Core-seconds of judging every stage of a job: the training of its classifiers."""
    work = []
    images = 0
    for plan in plans(job):
        images += sum(share.bytes_up for share in plan.parties) // _image_bytes(job, plan)
        schedule = job.evaluation.schedule(max(1, images))
        times = schedule.steps * nets(job, model=job.the_method.inherits(job.config))
        batch = min(job.evaluation.rules.batch, max(1, images))
        work.append(Work("train", job.evaluation.width, batch, times))
    return work_seconds(work, plans(job)[0].task.data)


def _image_bytes(job: Job, plan: Plan) -> int:
    channels, height, width = plan.task.data.shape
    return channels * height * width * (4 if job.the_method.private else 1) + 8


def size(count: int) -> str:
    """Bytes as people write them."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB"
