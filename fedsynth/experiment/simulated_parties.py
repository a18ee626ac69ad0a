"""The policies of simulated parties: a party of a run reads a `party.yaml`, like a real one.

Each job is a world of its own, with one lifetime per party: its policy allows this one job, and its
lifetime budget is that of the job. Several jobs of a run on the same data are several worlds;
`fedsynth budget` computes what all of them together would have cost.
"""

from __future__ import annotations

import os
from typing import Any

from fedsynth.data.formats.npz import PREFIX, public_name
from fedsynth.engine.base import Engine, NodeSetup
from fedsynth.engine.placement import PARTY_FILE
from fedsynth.experiment.job import Job
from fedsynth.experiment.party_extracts import on_nodes
from fedsynth.experiment.proposal import proposal_text
from fedsynth.experiment.scenario import scenario_stages
from fedsynth.experiment.scenario_config import dataset_info
from fedsynth.privacy.lifetime import LifetimeBudget
from fedsynth.privacy.policy import SEED, SYSTEM, PartyPolicy, PolicyData, policy_text

__all__ = ["PARTY_FILE", "policy_of", "run_job", "write_policies"]

MOST_ROUNDS = 10**9  # a simulated server is as patient as its methods


def policy_of(job: Job) -> PartyPolicy:
    """The policy of a simulated party: it allows this job, and what a simulation needs."""
    scenario, budget = job.scenario, job.budget
    file = scenario.data.removeprefix(PREFIX) if scenario.data.startswith(PREFIX) else None
    data = PolicyData(
        name=public_name(scenario.data),
        file=os.path.abspath(file) if file else None,
        folder=os.path.abspath(scenario.data_dir) if scenario.data_dir else None,
        partition=scenario.partition,
        options=scenario.options,
        parties=scenario.parties,
        partition_seed=scenario.partition_seed,
        resize=scenario.resize,
        grey=scenario.grey,
        holdout=scenario.holdout,
        source=str(scenario.source),
    )
    return PartyPolicy(
        data=data,
        lifetime=LifetimeBudget(
            budget.epsilon, budget.delta, str(budget.unit), str(budget.relation)
        ),
        methods=(job.method,),
        kinds=(str(dataset_info(scenario).kind),),
        accounting=(str(budget.accounting),),
        noise=SYSTEM if job.noise_seed is None else f"{SEED}{job.noise_seed}",
        simulation=True,
        trusted_aggregator=True,
        secure_sum="allowed",
        progress=os.path.relpath(job.progress_folder(), job.party_folder(0)),
        least_shares=1,
        most_rounds=MOST_ROUNDS,
        device=job.device,
        plugins=job.plugins,
    )


def write_policies(job: Job) -> str:
    """Write the policy of each party of a job into its folder, and return the folder of all."""
    nodes = _nodes(job)
    for party in range(nodes.parties):
        nodes.write_policy(party)
    return nodes.policies


def run_job(engine: Engine, job: Job, **options: Any) -> None:
    """Run a job with simulated parties, or those on real nodes; `options` as for `Engine.run`."""
    nodes = _nodes(job)
    if not on_nodes(job):
        write_policies(job)
    engine.run(
        job.text(),
        nodes.parties,
        proposal=nodes.proposal,
        policies=nodes.policies,
        policy=nodes.policy,
        records=nodes.records,
        **options,
    )


def _nodes(job: Job) -> NodeSetup:
    """The setup of the parties' nodes; a party takes part in one stage, or in all with the same
    records."""
    records = [0] * job.scenario.parties
    for stage in scenario_stages(job.scenario):
        for info in stage.parties:
            records[info.party] = info.records
    return NodeSetup(
        proposal_text(job),
        job.scenario.parties,
        str(job.parties_folder()),
        policy_text(policy_of(job)),
        tuple(records),
    )
