"""The plan table: parameters and costs of a run, printed before any data is read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from dp_accounting import DpEvent
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from fedsynth.core.plan import SERVER_VIEW, PartyPlan, Plan, View
from fedsynth.core.text import bytes_text
from fedsynth.core.types import ComputeCost
from fedsynth.experiment import cost_model, memory_model
from fedsynth.experiment.job import Job
from fedsynth.experiment.progress import duration
from fedsynth.report.party_groups import GROUPED_FROM, group_by, number_range, party_ranges
from fedsynth.report.report_data import published_event

COLUMNS = (
    "method", "budget", "stage", "party", "records", "q", "steps", "noise", "view",
    "ε PLD", "ε RDP", "ε paper", "up", "down", "time",
)  # fmt: skip


def plan_of_width(jobs: Sequence[Job], title: str, width: int) -> RenderableType:
    """The plan table, or where it does not fit, the same as lines below each other."""
    table = plan_table(jobs, title)
    needed = Measurement.get(wide := Console(width=10_000), wide.options, table).maximum
    if needed <= width:
        return table
    lines = [Text(title, style="bold")]
    for job in jobs:
        for cells in _job_rows(job):
            lines += _lines(dict(zip(COLUMNS, cells, strict=True)))
    return Group(*lines, Text(""), Text(_caption(jobs)))


def _lines(cell: Mapping[str, str]) -> list[Text]:
    """A row of the table as lines of less than 50 characters, unless a view has a long name."""
    head = f"{cell['method']}  ε {cell['budget']}  stage {cell['stage']}  party {cell['party']}"
    texts = [
        f"{cell['records']} records, {cell['steps']} steps, q {cell['q']}, noise {cell['noise']}",
        f"{cell['view']}: ε PLD {cell['ε PLD']}, RDP {cell['ε RDP']}, paper {cell['ε paper']}",
        f"up {cell['up']}, down {cell['down']}, time {cell['time']}",
    ]
    return [Text(head, style="bold"), *(Text(f"  {text}") for text in texts)]


def plan_table(jobs: Sequence[Job], title: str) -> Table:
    """One row per method, budget, party and view: rates, noise, epsilons, bytes, core time.

    Many parties with equal plans share one row: its time is their total, its bytes are those of one
    party."""
    table = Table(title=title, caption=_caption(jobs))
    for name in COLUMNS:
        left = name in ("method", "view")
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    for job in jobs:
        for cells in _job_rows(job):
            table.add_row(*cells)
        table.add_section()
    return table


def _job_rows(job: Job) -> Iterator[list[str]]:
    """The cells of each row of a job."""
    for plan in job.plans:
        for shares in _rows(plan):
            for view, event in (shares[0].views or {SERVER_VIEW: shares[0].event}).items():
                yield _cells(job, plan, shares, view, event)


def _rows(plan: Plan) -> list[list[PartyPlan]]:
    """The parties of every row."""
    if len(plan.parties) <= GROUPED_FROM:
        return [[share] for share in plan.parties]
    return group_by(
        plan.parties, lambda s: (s.sampling_rate, s.steps, s.noise_multiplier, repr(s.event))
    )


def _cells(
    job: Job, plan: Plan, shares: Sequence[PartyPlan], view: View, event: DpEvent
) -> list[str]:
    share = shares[0]
    private = job.method_impl.private
    work = [work for one in shares for work in one.cost]
    time = cost_model.work_seconds((*work, *_shared(plan)), plan.stage.data)
    return [
        job.method,
        f"{job.budget.epsilon:g}",
        str(plan.stage.index + 1),
        party_ranges([one.party for one in shares]),
        number_range(one.records for one in shares),
        f"{share.sampling_rate:.5f}" if private else "-",
        f"{share.steps:,}",
        f"{share.noise_multiplier:.4f}" if private else "none",
        view.description,
        f"{job.epsilon(event, 'pld'):.4g}",
        f"{job.epsilon(event, 'rdp'):.4g}",
        f"{job.paper_epsilon(published_event(share, view)):.4g}",
        number_range((one.bytes_up for one in shares), bytes_text),
        number_range((one.bytes_down for one in shares), bytes_text),
        duration(time),
    ]


def _shared(plan: Plan) -> tuple[ComputeCost, ...]:
    """The server's work, counted once: with its first party."""
    return plan.server_cost if len(plan.parties) == 1 else ()


def _caption(jobs: Sequence[Job]) -> str:
    release = sum(cost_model.release_seconds(plan) for job in jobs for plan in job.plans)
    evaluation = sum(cost_model.evaluation_seconds(job) for job in jobs)
    real = cost_model.baseline_seconds(jobs)
    more = f"; on real data, once and then kept on disk, {duration(real)}" if real else ""
    total = duration(release + evaluation + real)
    worker = bytes_text(memory_model.worker_bytes(jobs))
    driver = bytes_text(memory_model.driver_bytes(jobs, 4 * (os.cpu_count() or 1)))
    return (
        f"Estimated on this machine, one core: releases {duration(release)}, evaluation "
        f"{duration(evaluation)}{more}, together {total}; divide by the workers. Memory: up to "
        f"{worker} per worker, {driver} in the process that runs them."
    )
