"""The plan table: parameters and costs of a run, printed before any data is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dp_accounting import DpEvent
from rich.table import Table

from fedsynth.core.plan import SERVER_VIEW, PartyPlan, Plan
from fedsynth.core.text import bytes_text
from fedsynth.core.types import ComputeCost
from fedsynth.experiment import cost_model
from fedsynth.experiment.job import Job
from fedsynth.experiment.progress import duration
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.report.party_groups import GROUPED_FROM, group_by, number_range, party_ranges
from fedsynth.report.report_data import published_event

TESTS = 10_000  # test images of all classes, about

COLUMNS = (
    "method", "budget", "stage", "party", "records", "q", "steps", "noise", "view",
    "ε PLD", "ε RDP", "ε paper", "up", "down", "time",
)  # fmt: skip


def plan_table(jobs: Sequence[Job], title: str) -> Table:
    """One row per method, budget, party and view: rates, noise, epsilons, bytes, core time.

    Many parties with equal plans share one row: its time is their total, its bytes are those of one
    party."""
    table = Table(title=title, caption=_caption(jobs))
    for name in COLUMNS:
        left = name in ("method", "view")
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    for job in jobs:
        for plan in job.plans:
            for shares in _rows(plan):
                for view, event in (shares[0].views or {SERVER_VIEW: shares[0].event}).items():
                    table.add_row(*_cells(job, plan, shares, view.description, event))
        table.add_section()
    return table


def _rows(plan: Plan) -> list[list[PartyPlan]]:
    """The parties of every row."""
    if len(plan.parties) <= GROUPED_FROM:
        return [[share] for share in plan.parties]
    return group_by(
        plan.parties, lambda s: (s.sampling_rate, s.steps, s.noise_multiplier, repr(s.event))
    )


def _cells(
    job: Job, plan: Plan, shares: Sequence[PartyPlan], view: str, event: DpEvent
) -> list[str]:
    share, delta = shares[0], job.budget.delta
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
        view,
        f"{epsilon(event, delta, 'pld'):.4g}",
        f"{epsilon(event, delta, 'rdp'):.4g}",
        f"{job.paper_epsilon(published_event(share, event)):.4g}",
        number_range((one.bytes_up for one in shares), bytes_text),
        number_range((one.bytes_down for one in shares), bytes_text),
        duration(time),
    ]


def _shared(plan: Plan) -> tuple[ComputeCost, ...]:
    """The server's work, counted once: with its first party."""
    return plan.server_cost if len(plan.parties) == 1 else ()


def _caption(jobs: Sequence[Job]) -> str:
    release = sum(cost_model.release_seconds(plan) for job in jobs for plan in job.plans)
    judging = sum(evaluation_seconds(job) for job in jobs)
    real = once_seconds(jobs)
    more = f"; on real data, once and then kept on disk, {duration(real)}" if real else ""
    return (
        f"Estimated on this machine, one core: releases {duration(release)}, evaluation "
        f"{duration(judging)}{more}, together {duration(release + judging + real)}; divide by the "
        "workers."
    )


def evaluation_seconds(job: Job) -> float:
    """Core-seconds of evaluating every stage of a job: training and testing classifiers, and
    computing image quality."""
    total, images = 0.0, 0
    for plan in job.plans:
        info = plan.stage.data
        tests = TESTS * len(plan.stage.seen) // info.classes
        if hands_on_a_model(job):
            total += tests * cost_model.test_seconds("convnet", job.evaluation.width, info)
            continue
        images += released_images(job, plan)
        total += cost_model.evaluation_seconds(job.evaluation, info, max(1, images), tests)
        total += cost_model.quality_seconds(job.evaluation, info, max(1, images), TESTS)
    return total


def once_seconds(jobs: Sequence[Job]) -> float:
    """Core-seconds of the baselines on real data, computed once and kept on disk: the classifiers
    for calibration, one set per stage, and the image scorer."""
    if not (judged := [job for job in jobs if not hands_on_a_model(job)]):
        return 0.0
    setting, total, records = judged[0].evaluation, 0.0, 0
    for plan in judged[0].plans:
        records += sum(share.records for share in plan.parties)
        tests = TESTS * len(plan.stage.seen) // plan.stage.data.classes
        if setting.rules.calibrated:
            total += cost_model.evaluation_seconds(
                replace(setting, nets=1), plan.stage.data, records, tests
            )
    return total + cost_model.scorer_training_seconds(
        setting, judged[0].plans[0].stage.data, records
    )


def hands_on_a_model(job: Job) -> bool:
    """True if a job ends in a model, which is tested itself: a private method without a number of
    images per class."""
    return job.method_impl.private and not hasattr(job.config, "spc")


def released_images(job: Job, plan: Plan) -> int:
    """Images of one stage, by the plan: those that the parties send, or `spc` per class if the
    server generates them."""
    if plan.images is not None:
        return plan.images
    sent = sum(share.bytes_up for share in plan.parties) // _image_bytes(job, plan)
    if not hasattr(job.config, "spc"):
        return sent
    drawn = job.config.spc * len(plan.stage.classes)
    return max(sent, drawn) if plan.rounds == 1 else drawn


def _image_bytes(job: Job, plan: Plan) -> int:
    channels, height, width = plan.stage.data.shape
    return channels * height * width * (4 if job.method_impl.private else 1) + 8
