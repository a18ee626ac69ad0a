"""Data of the report that the recorded numbers of a run do not hold: texts and planned privacy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dp_accounting import DpEvent

from fedsynth.core.enums import Accounting, Relation, ViewKind
from fedsynth.core.plan import SERVER_VIEW, PartyPlan, View
from fedsynth.core.text import epsilon_text
from fedsynth.core.types import DatasetInfo, PartyInfo
from fedsynth.evaluation.classical_classifiers import unavailable
from fedsynth.experiment.config import ExperimentConfig
from fedsynth.experiment.evaluation_data import EvaluationData, evaluation_data
from fedsynth.experiment.experiment import Experiment
from fedsynth.experiment.job import Job
from fedsynth.experiment.scenario import scenario_stages, setting_in_words
from fedsynth.experiment.scenario_config import ScenarioConfig, dataset_info
from fedsynth.methods.registry import method
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import disclosed
from fedsynth.privacy.secagg.distributed_noise import weakened


@dataclass(frozen=True)
class MethodInfo:
    """Description of a method."""

    name: str
    summary: str
    source: str = ""
    private: bool = True  # False: a reference made from raw data, without a guarantee


@dataclass(frozen=True)
class PrivacyRow:
    """Parameters of a party in a stage, and its spending so far as one view counts it.

    The epsilons cover everything that this party has released up to and including this stage, so
    the largest is the cost of its participation.
    """

    method: str
    epsilon: float  # the budget
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
    epsilon_exchange: float | None = None  # PLD, for one unit exchanged for another


@dataclass(frozen=True)
class ReportData:
    """Texts and privacy figures of the report; a text may hold any characters."""

    title: str
    scenario: str
    preset: str
    dataset: str
    setting: str  # "class-incremental, one head over the classes seen"
    methods: tuple[MethodInfo, ...]
    unit: str
    relation: str
    accounting: str  # that calibrated the noise
    delta: float
    tested: EvaluationData
    privacy: tuple[PrivacyRow, ...] = ()
    assumptions: tuple[str, ...] = ()  # facts treated as public
    noise_seed: int | None = None  # None: noise from the operating system's entropy
    command: str = ""
    notes: tuple[str, ...] = ()
    exchange: str = ""  # what add/remove leaves out where counts are public
    parties: tuple[PartyInfo, ...] = ()  # of all stages
    info: DatasetInfo | None = None


def published_event(share: PartyPlan, view: View) -> DpEvent:
    """The event that the publication would count for a view of a party's plan.

    It has all the noise, or lacks the shares of the parties that collude in this view.
    """
    event = share.views.get(view, share.event)
    if event == disclosed() or share.paper_event is None:
        return event
    if view.kind == ViewKind.COLLUDING:
        return weakened(share.paper_event, share.shares, view.colluding)
    return share.paper_event  # the same for every other view


def exchange_epsilon(job: Job, event: DpEvent) -> float:
    """The epsilon for data sets that differ by an exchange of one unit, whatever the budget's
    relation."""
    return epsilon(event, job.budget.delta, Accounting.PLD, Relation.REPLACE_ONE)


def exchange_note(jobs: Sequence[Job]) -> str:
    """What add/remove leaves out where counts are public; empty if nothing.

    A count that is published is the same in neighbouring data sets, so that these differ by an
    exchange at least."""
    worst: dict[tuple[str, float], float] = {}
    for job in jobs:
        if job.budget.relation != Relation.ADD_REMOVE or not job.method_impl.private:
            continue
        for plan in job.plans:
            if any("number of records" in fact for fact in plan.assumes):
                found = max(exchange_epsilon(job, share.event) for share in plan.parties)
                key = job.method, job.budget.epsilon
                worst[key] = max(worst.get(key, 0.0), found)
    if not worst:
        return ""
    numbers = ", ".join(
        f"{epsilon_text(budget)} of {name} is {epsilon_text(value)}"
        for (name, budget), value in worst.items()
    )
    return (
        "Counts of records are treated as public, so data sets that fit them differ by an exchange "
        f"of a {jobs[0].budget.unit} and not by one more or less. For an exchange the epsilon "
        f"{numbers}; relation=replace_one calibrates to that."
    )


def privacy_rows(jobs: Sequence[Job]) -> list[PrivacyRow]:
    """Planned parameters and spending, one row per job, stage, party and view."""
    rows = []
    for job in jobs:
        for plan in job.plans:
            for share in plan.parties:
                for view, event in (share.views or {SERVER_VIEW: share.event}).items():
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
                            view.description,
                            job.epsilon(event, "pld"),
                            job.epsilon(event, "rdp"),
                            job.paper_epsilon(published_event(share, view)),
                            exchange_epsilon(job, event),
                        )
                    )
    return rows


def evaluation_text(config: ExperimentConfig) -> str:
    """The evaluation of released sets in words, to be printed next to the numbers."""
    evaluation, info = config.evaluation, dataset_info(config.scenario)
    rules, names = evaluation.rules, evaluation.classifiers(info)
    fresh = f"{evaluation.repetitions} fresh " if evaluation.repetitions > 1 else ""
    plural = "s" if evaluation.repetitions > 1 else ""
    classifiers = ", ".join(map(evaluation.label, names))
    text = f"evaluated with {fresh}{classifiers} net{plural} under protocol {evaluation.protocol}"
    if evaluation.max_images:
        text += f", at most {evaluation.max_images:,} image passes"
    if evaluation.batch:
        text += f" in batches of {evaluation.batch}"
    if rules.max_train_images:
        text += f", fitted on at most {rules.max_train_images:,} images"
    if rules.test_every_epoch:
        text += ", last epoch; the best epoch separately as accuracy_optimistic_max"
    absent = [
        f"{n} ({why})" for n, why in unavailable(info).items() if n in rules.default_classifiers
    ]
    if absent and not evaluation.classifier:
        text += f"; {len(names)} of {len(rules.default_classifiers)}, without {', '.join(absent)}"
    return text


def build_report_data(experiment: Experiment, command: str, notes: Sequence[str]) -> ReportData:
    """Collect the texts and the planned privacy of a run.

    Args:
        experiment: the run; privacy is that of its first seed.
        command: the command that repeats the run.
        notes: remarks for the reader.
    """
    config, run = experiment.config, experiment.config.run
    budget = experiment.jobs[0].budget
    methods = [method(name) for name in run.method]
    return ReportData(
        title=config.about,
        scenario=Path(run.scenario).stem,
        preset=run.preset,
        dataset=config.scenario.data,
        setting=f"{setting_in_words(config.scenario)}; {evaluation_text(config)}",
        methods=tuple(MethodInfo(m.name, m.summary, m.source, m.private) for m in methods),
        unit=budget.unit,
        relation=budget.relation,
        accounting=run.accounting,
        delta=run.delta,
        tested=evaluation_data(config.as_dict()),
        privacy=tuple(privacy_rows(experiment.first_seed_jobs)),
        assumptions=experiment.assumptions,
        noise_seed=run.noise_seed,
        command=command,
        notes=tuple(notes),
        exchange=exchange_note(experiment.first_seed_jobs),
        parties=parties_of(config.scenario),
        info=dataset_info(config.scenario),
    )


def parties_of(scenario: ScenarioConfig) -> tuple[PartyInfo, ...]:
    """The public facts of all parties of a scenario, in order."""
    return tuple(party for stage in scenario_stages(scenario) for party in stage.parties)
