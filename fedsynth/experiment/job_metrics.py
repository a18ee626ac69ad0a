"""The metrics of one stage of a job: its privacy costs, and rows that say what epsilon means."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

from fedsynth.core.plan import SERVER_VIEW
from fedsynth.experiment.job import Job
from fedsynth.experiment.party_extracts import known_entries
from fedsynth.privacy.accounting.events import disclosed
from fedsynth.privacy.ledger import Entry, total
from fedsynth.storage.metrics import Metric


def privacy_metrics(
    job: Job, stage: int, entries_of: Callable[[int], Sequence[Entry] | None] | None = None
) -> dict[str, float]:
    """The spending of a stage's parties by their ledgers, and the costs of the stage by plan.

    Args:
        job: The job.
        stage: The stage.
        entries_of: The ledger entries of a party, None where they are not known: the plan is
            counted then. Default: from its own ledger, or as it signed them.
    """
    plan = job.plan(stage)
    entries_of = entries_of or functools.partial(known_entries, job)
    spent: dict[str, list[float]] = {"pld": [], "rdp": [], "paper": []}
    for share in plan.parties:
        entries = entries_of(share.party)
        event = share.event if entries is None else total(list(entries))
        if share.views.get(SERVER_VIEW) == disclosed():
            event = disclosed()  # no guarantee against the trusted aggregator that adds the noise
        for name in ("pld", "rdp"):
            spent[name].append(job.epsilon(event, name))
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


def keyed(job: Job, stage: int, rows: Mapping[str, float]) -> list[Metric]:
    """The metrics of a stage, each with what the epsilon in its row means.

    The budget holds for one view. The spending is that for the server, who is told everything, if
    a trusted aggregator adds the noise. The published count has the neighbours of its paper."""
    budget, parties = job.budget, job.plan(stage).parties
    view = parties[0].budget_view if parties else SERVER_VIEW
    disclosing = any(share.views.get(SERVER_VIEW) == disclosed() for share in parties)
    relations = {"epsilon_paper": job.method_impl.paper_relation}
    views = dict.fromkeys(("epsilon_pld", "epsilon_rdp"), SERVER_VIEW if disclosing else view)
    return [
        Metric(
            job.method,
            budget.epsilon,
            job.seed,
            stage + 1,
            name,
            value,
            budget.unit,
            relations.get(name, budget.relation),
            budget.delta,
            views.get(name, view).description,
        )
        for name, value in rows.items()
    ]
