"""What a run would do and cost, printed before any data is read."""

from __future__ import annotations

from rich.table import Table

from fedsynth.core import PartyPlan, Plan, Work
from fedsynth.engine.estimate import seconds, work_seconds
from fedsynth.engine.job import Job
from fedsynth.engine.judge import nets
from fedsynth.jobs import paper_epsilon, plans
from fedsynth.privacy.accounting import epsilon
from fedsynth.privacy.guard import CURATOR
from fedsynth.report.progress import duration

COLUMNS = (
    "method", "budget", "stage", "party", "records", "q", "steps", "noise", "view",
    "ε PLD", "ε RDP", "ε paper", "up", "down", "time",
)  # fmt: skip


def plan_table(jobs: list[Job], title: str) -> Table:
    """A row a method, budget, party and view: rates, noise, epsilons, bytes, core time."""
    table = Table(title=title, caption=_caption(jobs))
    for name in COLUMNS:
        left = name in ("method", "view")
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    for job in jobs:
        for plan in plans(job):
            for share in plan.parties:
                for view, event in (share.views or {CURATOR: share.event}).items():
                    table.add_row(*_cells(job, plan, share, view, event))
        table.add_section()
    return table


def _cells(job: Job, plan: Plan, share: PartyPlan, view: str, event: object) -> list[str]:
    delta = job.budget.delta
    private = job.the_method.private
    time = work_seconds((*share.work, *(_shared(plan))), plan.task.data)
    return [
        job.method,
        f"{job.budget.epsilon:g}",
        str(plan.task.stage + 1),
        str(share.party),
        f"{share.records:,}",
        f"{share.sampling_rate:.5f}" if private else "-",
        f"{share.steps:,}",
        f"{share.noise_multiplier:.4f}" if private else "none",
        view,
        f"{epsilon(event, delta, 'pld'):.4g}",
        f"{epsilon(event, delta, 'rdp'):.4g}",
        f"{paper_epsilon(job, share.paper_event or event):.4g}",
        size(share.bytes_up),
        size(share.bytes_down),
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
