"""The policies of simulated parties: a party of a run reads a `party.yaml`, like a real one.

Each job is a world of its own, with one lifetime per party: its policy allows this one job, and its
lifetime budget is that of the job. Several jobs of a run on the same data are several worlds;
`fedsynth budget` computes what all of them together would have cost.
"""

from __future__ import annotations

import os
from typing import Any

from fedsynth.data.formats.npz import PREFIX, public_name
from fedsynth.engine.base import Engine
from fedsynth.experiment.job import Job
from fedsynth.experiment.proposal import proposal_text
from fedsynth.experiment.scenario_config import dataset_info
from fedsynth.privacy.lifetime import LifetimeBudget
from fedsynth.privacy.policy import SEED, SYSTEM, PartyPolicy, PolicyData, policy_text
from fedsynth.storage.files import disk_errors

MOST_ROUNDS = 10**9  # a simulated server is as patient as its methods
PARTY_FILE = "party.yaml"


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
        device="gpu" if job.gpu else "cpu",
        plugins=job.plugins,
    )


def write_policies(job: Job) -> str:
    """Write the policy of each party of a job into its folder, and return the folder of all.

    Not synced to the disk: a resumed run writes them again.
    """
    raw = policy_text(policy_of(job)).encode()
    for party in range(job.scenario.parties):
        path = job.party_folder(party) / PARTY_FILE
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.read_bytes() != raw:
                path.write_bytes(raw)
    return str(job.party_folder(0).parent)


def run_job(engine: Engine, job: Job, **options: Any) -> None:
    """Run a job with simulated parties; `options` as for `Engine.run`."""
    engine.run(
        job.text(),
        job.scenario.parties,
        proposal=proposal_text(job),
        policies=write_policies(job),
        **options,
    )
