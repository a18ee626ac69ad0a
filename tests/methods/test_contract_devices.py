"""Every method on a pretended GPU: one device per operation, and nobody waits in an inner loop."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import tiny_runs as tiny
from contract_cases import PLAIN, Case
from pretend_device import pretended_gpu

from fedsynth.storage.run_directory import RunDirectory

LEAVES = {  # the only places that wait for the GPU, and how often they run
    "privacy.grid:place_all": "a sum, once per mechanism: its noise is added as whole numbers",
    "privacy.mechanisms.votes:VoteCounts.count": "votes, once per question: likewise",
    "privacy.guard:Guard.release": "a release, once",
    "methods.psg.joint:PSGJoint.serve.real_gradient": "a request to parties, once",
    "methods.pate.datalens.generator:StudentGenerator.query": "a request to parties, once",
    "methods.gs_wgan.gs_wgan:GSWGAN.serve": "a request to parties, once",
    "core.messages:_content_hash": "a request to parties, once per array",
    "engine.messages:_encode_arrays": "a request to parties, once per array",
    "methods.common.generator_release:state_vector": "a generator, once per release or request",
    "storage.state_file:_blocks": "a checkpoint, at most every few seconds or once per turn",
    "methods.common.generator_training:draw": "the synthetic set, once per thousand images",
    "methods.common.optimised_images:OptimisedImages.result": "the synthetic set, once",
    "methods.pate.datalens.generator:StudentGenerator.sample": "the synthetic set, by parts",
    "methods.dp_gan.dp_gan:PerClassGenerators.forward": "the synthetic set, once per class",
    "methods.dpmix:DPMix.synthesize": "the synthetic set, once",
    "methods.marginals.mst:_measured": "noised counts, once per mechanism",
    "methods.gs_wgan.generator:GeneratorTrainer._drawn": "the synthetic set, by parts",
    "methods.sketch_teach.synthesis:SetSynthesizer._label": "the synthetic set, once",
    "methods.sketch_teach.class_model:ClassModelEstimator._send": "an answer, once per question",
    "methods.sketch_teach.linear_teacher:FeatureMap.fit": "an eigenvalue problem, once per stage",
    "methods.sketch_teach.linear_teacher:first_head": "a linear system, once per stage",
    "methods.sketch_teach.sketch_teach:rows_and_indices": "features to cache, once per party",
}
SCENARIOS = ("in_turn", "table")
FEWER = {"dp_gan": {"epochs": 1, "batch": 32}, "gs_wgan": {"steps": 2}}  # steps, of slow ones


@pytest.mark.parametrize("case", [c for c in PLAIN if c.scenario in SCENARIOS], ids=str)
def test_a_method_keeps_to_the_gpu(case: Case, here, tmp_path: Path) -> None:
    fewer = dataclasses.replace(case, changes=FEWER.get(case.name, {}))
    job = dataclasses.replace(fewer.job(tmp_path / "run"), device="cuda")
    with pretended_gpu() as gpu:
        tiny.release(job, here)
    assert gpu.operations or case.name == "upper_bound"  # which computes nothing
    assert gpu.places() <= set(LEAVES)
    assert RunDirectory(Path(job.out)).releases.exists(job.name, 1)
