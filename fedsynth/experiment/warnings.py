"""Warnings about a run that is allowed: weak protection, assumptions, settings without effect."""

from __future__ import annotations

import os

from fedsynth.core.enums import NoisePlacement, Unit
from fedsynth.data import registry as datasets
from fedsynth.experiment import user_partition
from fedsynth.experiment.config import ExperimentConfig
from fedsynth.experiment.experiment import Experiment
from fedsynth.experiment.method_selection import takes_turns
from fedsynth.experiment.stage_extension import INVERSION_ESTIMATE
from fedsynth.methods.common.noise_placement import NoisePlacementConfig
from fedsynth.methods.registry import method

_SUMS = {
    "ideal": "by an ideal sum: the simulation itself adds up, as a trusted third party would. That "
    "shows the result and not the protection; secure_sum=secagg has both.",
    "secagg": "by SecAgg+ between the parties; the server must follow the protocol.",
}


def warnings(experiment: Experiment) -> list[str]:
    """Remarks about a run that is allowed and deserves a caution, one sentence or more each."""
    config = experiment.config
    texts = [
        f"{name} is left out: it cannot release data={config.scenario.data}."
        for name in config.left_out
    ]
    texts += config.omitted
    texts += _users(config)
    smallest = min(f.records for stage in experiment.stages for f in stage.parties)
    if config.run.unit == Unit.RECORD and config.run.delta > 1 / smallest:
        texts.append(
            f"delta={config.run.delta:g} is above 1/{smallest}, one over the smallest party's "
            "records: publishing one record whole would be within the budget."
        )
    for name, cfg in config.methods.items():
        batch = getattr(cfg, "batch", 0)
        joint = isinstance(
            cfg, NoisePlacementConfig
        )  # one batch over all parties, who share one sampling rate
        if method(name).private and not joint and batch > smallest:
            texts.append(
                f"{name}.batch={batch} is more than the {smallest} records of the smallest party: "
                "it takes all its records every time, without amplification by sampling."
            )
    texts += [
        f"{name}: only the sum over parties is seen, {_SUMS[config.run.secure_sum]}"
        for name, cfg in config.methods.items()
        if isinstance(cfg, NoisePlacementConfig) and cfg.noise_at == NoisePlacement.DISTRIBUTED
    ]
    texts += experiment.plan_warnings
    if config.run.noise_seed is not None:
        texts.append(
            f"noise_seed={config.run.noise_seed}: the noise can be subtracted by anyone with it. "
            "This is an experiment, not a release."
        )
    if (config.run.workers or 1) * config.run.num_cpus > (os.cpu_count() or 1):
        texts.append(
            f"workers={config.run.workers} with {config.run.num_cpus:g} CPUs each is more than "
            f"this machine's {os.cpu_count()}: they share them."
        )
    return texts


def _users(config: ExperimentConfig) -> list[str]:
    """Remarks about users: their source and their protection."""
    texts, run, scenario = list(config.found), config.run, config.scenario
    data, options = datasets.find(scenario.data, scenario.data_dir), scenario.options or {}
    if data.owners is not None:
        texts.append(f"the users of this run are those of {scenario.data}: {data.about}.")
    if options.get("flip"):
        texts.append(
            f"flip={options['flip']:g}: a public coin per user decides whether ink and paper "
            "are exchanged in all records: the fault that this scenario is about."
        )
        if INVERSION_ESTIMATE not in run.extensions:
            texts.append(
                f"flip={options['flip']:g} without extensions={INVERSION_ESTIMATE}: the share of "
                "inverted users is not estimated from what is released."
            )
    texts += user_partition.describe(scenario)
    if run.unit == Unit.USER:
        parties = scenario.parties
        texts.append(
            "unit=user: a party is a user. Its number of records and its participation in the run "
            "are treated as public."
        )
        if run.delta > 1 / parties:
            texts.append(
                f"delta={run.delta:g} is above 1/{parties}, one over the number of users: "
                "publishing all records of one user would be within the budget."
            )
    asking_all = [n for n in run.method if run.users_per_round and not takes_turns(n)]
    if asking_all:
        texts.append(
            f"users_per_round={run.users_per_round} changes nothing for {', '.join(asking_all)}: "
            "every party is asked."
        )
    return texts
