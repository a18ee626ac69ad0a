"""The grid of a run: every method at every budget and seed, and what each is planned to cost."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from dp_accounting import DpEvent

from fedsynth.core.model import PartyPlan, Plan
from fedsynth.evaluation.classical_classifiers import missing
from fedsynth.experiment.config import Config, budget
from fedsynth.experiment.job import Job
from fedsynth.experiment.scenario import facts as facts_of
from fedsynth.experiment.scenario import setting_in_words, tasks
from fedsynth.methods import method
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import disclosed
from fedsynth.privacy.guard import CURATOR
from fedsynth.privacy.secagg.distributed_noise import weakened
from fedsynth.report.report_data import MethodFacts, PrivacyRow, ReportFacts


def make_jobs(config: Config, out: Path | str) -> list[Job]:
    """All jobs; those whose stages wait for each other come first, as they take longest."""
    jobs = [
        Job(
            name,
            dataclasses.asdict(settings),
            budget(config, name, eps),
            seed,
            config.world,
            config.evaluation,
            str(out),
            config.run.noise_seed,
            config.run.num_gpus > 0,
            config.run.secure_sum,
        )
        for seed in config.run.seed
        for name, settings in config.methods.items()
        for eps in (config.run.epsilon if method(name).private else config.run.epsilon[:1])
    ]
    return sorted(jobs, key=lambda job: not job.the_method.inherits(job.config))


def plans(job: Job) -> list[Plan]:
    """The plan of every stage."""
    return [job.plan(stage) for stage in range(len(tasks(job.world)))]


def paper_epsilon(job: Job, event: DpEvent) -> float:
    """An event's epsilon as the method's authors count."""
    return epsilon(event, job.budget.delta, job.the_method.paper_convention)


def published(share: PartyPlan, event: DpEvent) -> DpEvent:
    """What the authors would count where a view counts `event`: with all the noise, or with some
    shares of it known."""
    if event == disclosed():
        return event
    if share.paper_event is None or event == share.event:
        return share.paper_event or event
    for colluding in range(1, share.shares):
        if weakened(share.event, share.shares, colluding) == event:
            return weakened(share.paper_event, share.shares, colluding)
    return share.paper_event  # counted on their terms, whoever looks


def privacy_rows(jobs: list[Job]) -> list[PrivacyRow]:
    """What every party does and spends by plan, a row a party and view."""
    rows = []
    for job in jobs:
        for plan in plans(job):
            for share in plan.parties:
                for view, event in (share.views or {CURATOR: share.event}).items():
                    rows.append(
                        PrivacyRow(
                            job.method,
                            job.budget.epsilon,
                            share.party,
                            plan.task.stage + 1,
                            share.records,
                            share.sampling_rate,
                            share.steps,
                            share.noise_multiplier,
                            view,
                            epsilon(event, job.budget.delta, "pld"),
                            epsilon(event, job.budget.delta, "rdp"),
                            paper_epsilon(job, published(share, event)),
                        )
                    )
    return rows


def judges_in_words(config: Config) -> str:
    """How a released set is judged, to be printed beside the numbers."""
    judges, facts = config.evaluation, facts_of(config.world)
    rules, names = judges.rules, judges.judges(facts)
    fresh = f"{judges.runs} fresh " if judges.runs > 1 else ""
    kinds = ", ".join(map(judges.named, names))
    caps = f", at most {judges.max_images:,} image passes" if judges.max_images else ""
    caps += f" in batches of {judges.batch}" if judges.batch else ""
    caps += f", fitted on at most {rules.most:,} images" if rules.most else ""
    left_out = [f"{n} ({why})" for n, why in missing(facts).items() if n in rules.judges]
    without = f"; {len(names)} of {len(rules.judges)}, without " + ", ".join(left_out)
    if judges.classifier or not left_out:
        without = ""
    best = ", last epoch; the best epoch apart as accuracy_optimistic_max"
    return (
        f"judged by {fresh}{kinds} net{'s' * (judges.runs > 1)} under protocol {judges.protocol}"
        f"{caps}{best if rules.optimistic else ''}{without}"
    )


def report_facts(config: Config, jobs: list[Job], command: str, notes: list[str]) -> ReportFacts:
    """The words of the report."""
    run = config.run
    one_seed = [job for job in jobs if job.seed == run.seed[0]]
    chosen = [method(name) for name in run.method]
    assumed = {text: None for job in one_seed for plan in plans(job) for text in plan.assumes}
    return ReportFacts(
        title=config.about,
        scenario=Path(run.scenario).stem,
        preset=run.preset,
        dataset=config.world.data,
        setting=f"{setting_in_words(config.world)}; {judges_in_words(config)}",
        methods=tuple(MethodFacts(m.name, m.summary, m.source, m.private) for m in chosen),
        unit=jobs[0].budget.unit,
        relation=jobs[0].budget.relation,
        accounting=run.accounting,
        delta=run.delta,
        privacy=tuple(privacy_rows(one_seed)),
        assumptions=tuple(assumed),
        noise_seed=run.noise_seed,
        command=command,
        notes=tuple(notes),
    )
