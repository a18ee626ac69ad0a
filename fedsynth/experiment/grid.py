"""The grid of a run: every method at every budget and seed, and what each is planned to cost."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from fedsynth.core.plan import Plan
from fedsynth.experiment.config import ExperimentConfig, budget
from fedsynth.experiment.job import Job
from fedsynth.experiment.scenario import scenario_stages
from fedsynth.methods.registry import method


def make_jobs(config: ExperimentConfig, out: Path | str) -> list[Job]:
    """All jobs; those whose stages wait for each other come first, as they take longest."""
    jobs = [
        Job(
            name,
            dataclasses.asdict(settings),
            budget(config, name, eps),
            seed,
            config.scenario,
            config.evaluation,
            str(out),
            config.run.noise_seed,
            config.run.num_gpus > 0,
            config.run.secure_sum,
            config.run.plugin,
        )
        for seed in config.run.seed
        for name, settings in config.methods.items()
        for eps in (config.run.epsilon if method(name).private else config.run.epsilon[:1])
    ]
    return sorted(jobs, key=lambda job: not job.method_impl.inherits(job.config))


def plans(job: Job) -> list[Plan]:
    """The plan of every stage."""
    return [job.plan(stage) for stage in range(len(scenario_stages(job.scenario)))]
