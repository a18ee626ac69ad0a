"""What is allowed in a run and still deserves a word."""

from __future__ import annotations

import os

from fedsynth.config import Config
from fedsynth.methods import method
from fedsynth.scenario import tasks

_SUMS = {
    "ideal": "by an ideal sum: the simulation itself adds up, as a trusted third party would. That "
    "shows the result and not the protection; secure_sum=secagg has both.",
    "secagg": "by SecAgg+ between the parties; who runs the curator must follow the protocol.",
}


def warnings(config: Config) -> list[str]:
    """A sentence for each."""
    said = [
        f"{name} is left out: it cannot release data={config.world.data}."
        for name in config.left_out
    ]
    smallest = min(f.records for task in tasks(config.world) for f in task.parties)
    if config.run.delta > 1 / smallest:
        said.append(
            f"delta={config.run.delta:g} is above 1/{smallest}, one over the smallest party's "
            "records: publishing one record whole would be within the budget."
        )
    for name, cfg in config.methods.items():
        batch = getattr(cfg, "batch", 0)
        joint = hasattr(cfg, "at")  # one batch over all parties, who share one sampling rate
        if method(name).private and not joint and batch > smallest:
            said.append(
                f"{name}.batch={batch} is more than the {smallest} records of the smallest party: "
                "it takes all its records every time, without amplification by sampling."
            )
    said += [
        f"{name}: only the sum over parties is seen, {_SUMS[config.run.secure_sum]}"
        for name, cfg in config.methods.items()
        if getattr(cfg, "at", "") == "distributed"
    ]
    if config.run.noise_seed is not None:
        said.append(
            f"noise_seed={config.run.noise_seed}: whoever knows it can take the noise off. "
            "This is an experiment, not a release."
        )
    if (config.run.workers or 1) * config.run.num_cpus > (os.cpu_count() or 1):
        said.append(
            f"workers={config.run.workers} with {config.run.num_cpus:g} CPUs each is more than "
            f"this machine's {os.cpu_count()}: they will take turns."
        )
    return said
