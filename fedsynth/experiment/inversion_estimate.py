"""What released images tell of a fault of users, read by a rehearsal on public data."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedsynth.core.outcomes import ReleasedModel
from fedsynth.core.randomness import key
from fedsynth.engine.base import Engine
from fedsynth.evaluation.inversion_detector import Inversion, look, share_between
from fedsynth.experiment import user_partition as population
from fedsynth.experiment.evaluate import released_so_far
from fedsynth.experiment.job import Job
from fedsynth.experiment.scenario import scenario_stages
from fedsynth.experiment.scenario_config import dataset_info

REHEARSALS = {"upright": 0.0, "inverted": 1.0}  # and how many of the volunteers are flipped


def asked(job: Job) -> bool:
    """Whether there is a fault to be found in this job."""
    return population.in_question(job.scenario)


def symptoms(engine: Engine, job: Job, stage: int) -> dict[str, float]:
    """Metrics of a job whose users may have inverted images: how many have, as the images released
    up to `stage` tell, and beside it the truth, which only the simulation knows. Nothing where a
    model was released."""
    released = released_so_far(job, stage)
    if isinstance(released, ReleasedModel):
        return {}
    found = look(released, dataset_info(job.scenario))
    heard = population.heard(job.scenario)
    affected = population.flipped(job.scenario) & heard
    rows = {
        "inverted_share": found.by_edges,
        "inverted_share_brightness": found.by_brightness,
        "inverted_told": found.told,
        "affected_share_true": float(affected.sum() / heard.sum()),
        "affected_users_true": float(affected.sum()),
        "users_heard_true": float(heard.sum()),
    }
    share, ends = _rehearsed(engine, job, found)
    rows |= {f"rehearsal_edge_{name}": edge for name, edge in ends.items()}
    if share is not None:
        rows["inverted_share_rehearsed"] = share
    guess = share if share is not None else found.by_edges if found.sees else None
    if guess is not None and heard.all():  # else only the simulation knows how many users speak
        rows["affected_users"] = guess * float(np.sum(heard))
    return rows


def _rehearsed(engine: Engine, job: Job, found: Inversion) -> tuple[float | None, dict[str, float]]:
    """The share of inverted users by two rehearsals, and the edges these ended with."""
    if not job.method_impl.private or len(scenario_stages(job.scenario)) > 1:
        return None, {}
    ends = {}
    for name, flip in REHEARSALS.items():
        scenario = population.rehearsal(job.scenario, flip)
        if scenario is None:
            return None, {}
        ends[name] = _edge(engine, job, replace(job, scenario=scenario), name)
    return share_between(found.edge, ends["upright"], ends["inverted"]), ends


def _edge(engine: Engine, job: Job, twin: Job, name: str) -> float:
    """What the same conversation comes to when volunteers have it: as many parties, as much noise,
    the same public randomness, and noise of its own. Nothing of it is kept but this number."""
    folder = Path(job.out) / "curator" / job.name / f"rehearsal-{name}"
    noise = None if job.noise_seed is None else key(job.noise_seed, "rehearsal", name) % 2**31
    twin = replace(twin, out=str(folder), noise_seed=noise)
    engine.run(twin.text(), twin.scenario.parties, sticky=twin.method_impl.keeps_state)
    released = released_so_far(twin, 0)
    if isinstance(released, ReleasedModel):
        raise ValueError("a rehearsal ended in a model, the release did not")
    edge = look(released, dataset_info(twin.scenario)).edge
    shutil.rmtree(folder, ignore_errors=True)
    return edge
