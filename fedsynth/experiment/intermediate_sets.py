"""Evaluation of intermediate sets: accuracy over the epsilon that was spent by then.

A method may release, beside its last set, the sets that it had after fewer of its private steps.
They are computed from the same noised values, so they cost nothing of their own; the epsilon beside
each is that of the steps before it.
"""

from __future__ import annotations

import csv
import functools
import io
import statistics
from concurrent.futures import Future
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path

from dp_accounting import DpEvent

from fedsynth.core.errors import UserError
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.plan import SERVER_VIEW, PartyPlan, Plan
from fedsynth.engine.base import Engine
from fedsynth.evaluation.types import EvalResult
from fedsynth.experiment.evaluate import evaluate_classifier, number_of_classifiers
from fedsynth.experiment.job import Job
from fedsynth.experiment.reevaluation import Reevaluation, stored_or_started
from fedsynth.privacy.accounting.events import disclosed
from fedsynth.storage.files import write_file

CURVE = "intermediate.csv"


@dataclass(frozen=True)
class IntermediateAccuracy:
    """The accuracy of one classifier on the set that a job had after some of its steps."""

    method: str
    epsilon: float  # the budget of the job
    seed: int
    steps: int
    epsilon_pld: float
    epsilon_rdp: float
    classifier: str
    accuracy: float
    deviation: float  # over repetitions


def all_steps(plan: Plan) -> int:
    """The number of private steps of a stage: rounds of a conversation, or steps within a party."""
    return plan.rounds if plan.rounds > 1 else max(share.steps for share in plan.parties)


def event_after(job: Job, share: PartyPlan, steps: int) -> DpEvent:
    """The privacy event of a party's first steps, in a job of one stage."""
    plan = job.plan(0)
    if share.views.get(SERVER_VIEW) == disclosed():
        return disclosed()
    if steps >= all_steps(plan):
        return share.event
    return job.method_impl.event_after(job.config, plan, share, steps)


def evaluate_intermediate_sets(reevaluation: Reevaluation, engine: Engine) -> Path:
    """Train and test classifiers on all sets of each job, the last one included.

    Args:
        reevaluation: The run and the evaluation; what it has on disk is not computed again.
        engine: An open engine; its workers train the classifiers.

    Returns:
        The CSV file of the results.

    Raises:
        UserError: A job has several stages, or no job released intermediate sets.
    """
    run = reevaluation.run
    pending: dict[tuple[Job, int], list[Future[EvalResult]]] = {}
    for job in reevaluation.experiment.jobs:
        if len(job.plans) > 1:
            raise UserError(
                f"{run.path}: sets=intermediate needs a run of one stage; this has "
                f"{len(job.plans)}."
            )
        released = run.releases.load(job.name, 1) if run.releases.exists(job.name, 1) else None
        if not isinstance(released, SyntheticSet) or not released.earlier:
            continue
        last = all_steps(job.plan(0))
        for steps, own in sorted({**released.earlier, last: replace(released, earlier={})}.items()):
            folder, text = reevaluation.folder / job.name, job.text()
            pending[job, steps] = [
                stored_or_started(
                    folder / f"after-{steps}-{number}.json",
                    functools.partial(engine.submit, evaluate_classifier, text, 0, number, own),
                )
                for number in range(number_of_classifiers(job, is_model=False))
            ]
    if not pending:
        raise UserError(
            f"{run.path} holds no intermediate set: run it with METHOD.intermediate=N, which "
            "psg, psg_prior, psg_joint, gradient_matching and gs_wgan have."
        )
    rows = [row for (job, steps), futures in pending.items() for row in _rows(job, steps, futures)]
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([field.name for field in fields(IntermediateAccuracy)])
    writer.writerows(astuple(row) for row in rows)
    return write_file(reevaluation.folder / CURVE, buffer.getvalue().encode())


def read_curve(path: Path) -> list[IntermediateAccuracy]:
    """The rows that `evaluate_intermediate_sets` wrote."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            IntermediateAccuracy(
                row["method"],
                float(row["epsilon"]),
                int(row["seed"]),
                int(row["steps"]),
                float(row["epsilon_pld"]),
                float(row["epsilon_rdp"]),
                row["classifier"],
                float(row["accuracy"]),
                float(row["deviation"]),
            )
            for row in csv.DictReader(file)
        ]


def _rows(job: Job, steps: int, futures: list[Future[EvalResult]]) -> list[IntermediateAccuracy]:
    parties = job.plan(0).parties
    pld, rdp = (
        max(job.epsilon(event_after(job, share, steps), accountant) for share in parties)
        for accountant in ("pld", "rdp")
    )
    by_classifier: dict[str, list[float]] = {}
    for future in futures:
        result = future.result()
        by_classifier.setdefault(result.classifier, []).append(result.accuracy)
    return [
        IntermediateAccuracy(
            job.method,
            job.budget.epsilon,
            job.seed,
            steps,
            pld,
            rdp,
            classifier,
            statistics.fmean(values),
            statistics.stdev(values) if len(values) > 1 else 0.0,
        )
        for classifier, values in by_classifier.items()
    ]
