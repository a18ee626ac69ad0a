"""A stage extension for scenarios whose users may have inverted images (`flip`).

It estimates from the released images how many users have, calibrated on rehearsals with public
data, and reports the true number beside it, which only the simulation has. Where participation is
hidden, the true numbers would undo that: they are written for experiments only (`noise_seed`).
"""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np

from fedsynth.core.outcomes import ReleasedModel
from fedsynth.core.randomness import key
from fedsynth.engine.base import Engine
from fedsynth.evaluation.inversion_detector import Inversion, detect_inversion, interpolate_share
from fedsynth.experiment import user_partition
from fedsynth.experiment.evaluate import released_so_far
from fedsynth.experiment.job import Job
from fedsynth.experiment.party_extracts import remove_parties
from fedsynth.experiment.scenario import scenario_stages
from fedsynth.experiment.scenario_config import dataset_info
from fedsynth.experiment.simulated_parties import run_job

REHEARSALS = {"upright": 0.0, "inverted": 1.0}  # with the share of inverted volunteers


class InversionEstimate:
    """The stage extension `inversion_estimate`."""

    name = "inversion_estimate"

    def applies(self, job: Job) -> bool:
        """True if users of this job may have inverted images."""
        return user_partition.inversion_possible(job.scenario)

    def metrics(self, engine: Engine, job: Job, stage: int) -> dict[str, float]:
        """The estimated number of inverted users, and the truth; none for a released model."""
        released = released_so_far(job, stage)
        if isinstance(released, ReleasedModel):
            return {}
        estimate = detect_inversion(released, dataset_info(job.scenario))
        contributing = user_partition.contributing_parties(job.scenario)
        affected = user_partition.inverted_parties(job.scenario) & contributing
        rows = {
            "inverted_share": estimate.share_by_edges,
            "inverted_share_brightness": estimate.share_by_brightness,
            "inverted_told": estimate.decided,
        }
        if contributing.all() or job.noise_seed is not None:
            rows |= {
                "affected_share_true": float(affected.sum() / contributing.sum()),
                "affected_users_true": float(affected.sum()),
                "users_heard_true": float(contributing.sum()),
            }
        share, edges = _rehearsed(engine, job, estimate)
        rows |= {f"rehearsal_edge_{name}": edge for name, edge in edges.items()}
        if share is not None:
            rows["inverted_share_rehearsed"] = share
        guess = (
            share if share is not None else estimate.share_by_edges if estimate.reliable else None
        )
        if guess is not None and contributing.all():  # else their number is not public
            rows["affected_users"] = guess * float(np.sum(contributing))
        return rows


EXTENSION = InversionEstimate()


def _rehearsed(
    engine: Engine, job: Job, estimate: Inversion
) -> tuple[float | None, dict[str, float]]:
    """The share of inverted users by two rehearsals, and the edges of their images."""
    if not job.method_impl.private or len(scenario_stages(job.scenario)) > 1:
        return None, {}
    edges = {}
    for name, flip in REHEARSALS.items():
        scenario = user_partition.reference_scenario(job.scenario, flip)
        if scenario is None:
            return None, {}
        edges[name] = _rehearsal_edge(engine, replace(job, scenario=scenario), name)
    return interpolate_share(estimate.edge, edges["upright"], edges["inverted"]), edges


def _rehearsal_edge(engine: Engine, job: Job, name: str) -> float:
    """The edge of the images that the same job releases with volunteers in place of users.

    It has as many parties, as much noise and the same public randomness, and noise of its own.
    Only this number is kept of it."""
    folder = job.server_folder() / f"rehearsal-{name}"
    noise = None if job.noise_seed is None else key(job.noise_seed, "rehearsal", name) % 2**31
    rehearsal = replace(job, out=str(folder), noise_seed=noise)
    sticky = rehearsal.method_impl.keeps_state
    run_job(engine, rehearsal, sticky=sticky)
    released = released_so_far(rehearsal, 0)
    if isinstance(released, ReleasedModel):
        raise ValueError("a rehearsal ended in a model, the release did not")
    edge = detect_inversion(released, dataset_info(rehearsal.scenario)).edge
    remove_parties(rehearsal, engine)
    shutil.rmtree(folder, ignore_errors=True)
    return edge
