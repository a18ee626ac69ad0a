"""What the report must be told, because it cannot be read from the run's numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dp_accounting import DpEvent

from fedsynth.core.plan import PartyPlan
from fedsynth.evaluation.classical_classifiers import missing
from fedsynth.experiment.config import Config
from fedsynth.experiment.grid import paper_epsilon, plans
from fedsynth.experiment.job import Job
from fedsynth.experiment.scenario import info as facts_of
from fedsynth.experiment.scenario import setting_in_words
from fedsynth.methods.registry import method
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import disclosed
from fedsynth.privacy.charging import CURATOR
from fedsynth.privacy.secagg.distributed_noise import weakened


@dataclass(frozen=True)
class MethodInfo:
    """A method as the reader should know it."""

    name: str
    summary: str
    source: str = ""
    private: bool = True  # False: a reference that uses the raw data and promises nothing


@dataclass(frozen=True)
class PrivacyRow:
    """What one party did in one stage and has spent since the run began, as one viewer counts.

    The epsilons hold for everything this party released up to and including this stage, so the
    largest is what its participation cost.
    """

    method: str
    epsilon: float  # the budget asked for
    party: int
    stage: int
    records: int
    sampling_rate: float
    steps: int
    noise_multiplier: float
    view: str
    epsilon_pld: float | None = None
    epsilon_rdp: float | None = None
    epsilon_paper: float | None = None


@dataclass(frozen=True)
class ReportData:
    """The words of the report; every text may hold any characters."""

    title: str
    scenario: str
    preset: str
    dataset: str
    setting: str  # "class-incremental, one head over the classes seen"
    methods: tuple[MethodInfo, ...]
    unit: str
    relation: str
    accounting: str  # what noise was calibrated to
    delta: float
    privacy: tuple[PrivacyRow, ...] = ()
    assumptions: tuple[str, ...] = ()  # facts treated as public
    noise_seed: int | None = None  # None: noise from the operating system's entropy
    command: str = ""
    notes: tuple[str, ...] = ()


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
                            plan.stage.index + 1,
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
    judges, info = config.evaluation, facts_of(config.world)
    rules, names = judges.rules, judges.judges(info)
    fresh = f"{judges.runs} fresh " if judges.runs > 1 else ""
    kinds = ", ".join(map(judges.named, names))
    caps = f", at most {judges.max_images:,} image passes" if judges.max_images else ""
    caps += f" in batches of {judges.batch}" if judges.batch else ""
    caps += f", fitted on at most {rules.most:,} images" if rules.most else ""
    left_out = [f"{n} ({why})" for n, why in missing(info).items() if n in rules.judges]
    without = f"; {len(names)} of {len(rules.judges)}, without " + ", ".join(left_out)
    if judges.classifier or not left_out:
        without = ""
    best = ", last epoch; the best epoch apart as accuracy_optimistic_max"
    return (
        f"judged by {fresh}{kinds} net{'s' * (judges.runs > 1)} under protocol {judges.protocol}"
        f"{caps}{best if rules.optimistic else ''}{without}"
    )


def report_facts(config: Config, jobs: list[Job], command: str, notes: list[str]) -> ReportData:
    """The words of the report."""
    run = config.run
    one_seed = [job for job in jobs if job.seed == run.seed[0]]
    chosen = [method(name) for name in run.method]
    assumed = {text: None for job in one_seed for plan in plans(job) for text in plan.assumes}
    return ReportData(
        title=config.about,
        scenario=Path(run.scenario).stem,
        preset=run.preset,
        dataset=config.world.data,
        setting=f"{setting_in_words(config.world)}; {judges_in_words(config)}",
        methods=tuple(MethodInfo(m.name, m.summary, m.source, m.private) for m in chosen),
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
