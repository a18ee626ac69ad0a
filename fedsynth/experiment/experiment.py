"""An experiment: all jobs of a run with their plans, computed once from its configuration."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from fedsynth.core.plan import Plan
from fedsynth.core.types import Stage
from fedsynth.experiment.config import ExperimentConfig, budget
from fedsynth.experiment.job import Job
from fedsynth.experiment.run_device import run_device
from fedsynth.experiment.scenario import scenario_stages
from fedsynth.methods.registry import method


@dataclass(frozen=True)
class Experiment:
    """The jobs of a run: every method at every budget and seed.

    Attributes:
        config: The checked configuration.
        jobs: All jobs. Those whose stages build on each other come first, as they take longest.
        stages: The public facts of the stages, which all jobs share.
    """

    config: ExperimentConfig
    jobs: tuple[Job, ...]
    stages: tuple[Stage, ...]

    @classmethod
    def of(cls, config: ExperimentConfig, out: Path | str = "") -> Experiment:
        """Compute the jobs and plans of a run. Reads no records and writes nothing.

        Args:
            config: The configuration of the run.
            out: The run directory; empty for an experiment that is only planned.

        Raises:
            UserError: A job cannot be planned.
        """
        run = config.run
        jobs = [
            Job(
                name,
                dataclasses.asdict(settings),
                budget(config, name, epsilon),
                seed,
                config.scenario,
                config.evaluation,
                str(out),
                run.noise_seed,
                run_device(run),
                run.secure_sum,
                run.plugin,
            )
            for seed in run.seed
            for name, settings in config.methods.items()
            for epsilon in (run.epsilon if method(name).private else run.epsilon[:1])
        ]
        jobs.sort(key=lambda job: not job.method_impl.inherits(job.config))
        experiment = cls(config, tuple(jobs), scenario_stages(config.scenario))
        for job in jobs:
            experiment.plans(job)
        return experiment

    def plans(self, job: Job) -> tuple[Plan, ...]:
        """The plan of every stage of a job."""
        return job.plans

    @property
    def first_seed_jobs(self) -> tuple[Job, ...]:
        """The jobs of the first seed; those of other seeds have the same plans."""
        return tuple(job for job in self.jobs if job.seed == self.config.run.seed[0])

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The facts that the plans treat as public, each once."""
        plans = (plan for job in self.first_seed_jobs for plan in self.plans(job))
        return tuple(dict.fromkeys(text for plan in plans for text in plan.assumes))

    @property
    def plan_warnings(self) -> tuple[str, ...]:
        """The warnings of the methods about their own plans, each once."""
        plans = (plan for job in self.first_seed_jobs for plan in self.plans(job))
        return tuple(dict.fromkeys(text for plan in plans for text in plan.warnings))
