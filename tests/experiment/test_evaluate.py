"""A stage is evaluated on all that was released up to it, and measured against all real records."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import tiny_runs as tiny
import torch
from tiny_outcomes import model, synthetic

from fedsynth.core.outcomes import ReleasedModel, SyntheticSet
from fedsynth.engine.base import Engine
from fedsynth.evaluation.types import EvalResult
from fedsynth.experiment import evaluate
from fedsynth.experiment.job import Job
from fedsynth.experiment.scenario import party_records, scenario_stages
from fedsynth.storage.run_directory import RunDirectory

ONE_DISK = cast(Engine, SimpleNamespace(one_disk=True))
OTHER_DISKS = cast(Engine, SimpleNamespace(one_disk=False))


@pytest.fixture
def job(tmp_path) -> Job:
    """A job of two stages without a release; the parties hold five classes each."""
    RunDirectory.create(tmp_path / "run")
    return tiny.tiny_job("dp_merf", tmp_path / "run")


def stored(job: Job, *outcomes: SyntheticSet | ReleasedModel) -> Job:
    for stage, outcome in enumerate(outcomes, start=1):
        RunDirectory(Path(job.out)).releases.save(job.name, stage, outcome)
    return job


def test_sets_of_all_stages_are_joined_in_their_order(job):
    stored(job, synthetic(4), synthetic(6), synthetic(8))
    found = evaluate.released_so_far(job, 1)
    assert isinstance(found, SyntheticSet)
    assert len(found.labels) == 10
    stages = [RunDirectory(Path(job.out)).releases.load(job.name, stage) for stage in (1, 2)]
    assert torch.equal(found.images, torch.cat([each.images for each in stages]))


def test_of_models_the_last_one_is_evaluated(job):
    first, last = model(), model()
    stored(job, first, last)
    found = evaluate.released_so_far(job, 1)
    assert isinstance(found, ReleasedModel)
    assert torch.equal(found.state["body.0.weight"], last.state["body.0.weight"])


def test_releases_travel_only_to_workers_that_cannot_read_them(job):
    stored(job, synthetic(4))
    assert evaluate.releases_for_workers(ONE_DISK, job, 0) == ()
    (sent,) = evaluate.releases_for_workers(OTHER_DISKS, job, 0)
    assert torch.equal(sent.labels, evaluate.released_so_far(job, 0).labels)


def test_classifiers_are_counted_by_kind_and_repetition(job):
    several = replace(job, evaluation=replace(job.evaluation, classifier=("mlp", "lenet"), nets=3))
    assert evaluate.number_of_classifiers(several, is_model=False) == 6
    assert evaluate.number_of_classifiers(several, is_model=True) == 1


def test_the_reference_is_all_records_of_the_classes_seen_however_they_are_split(job):
    first, last = scenario_stages(job.scenario)
    half, whole = evaluate.real_records(job, first), evaluate.real_records(job, last)
    assert set(half.labels.tolist()) == set(first.classes)
    parties = [party_records(job.scenario, party) for party in (0, 1)]
    counts = Counter(label for each in parties for label in each.labels.tolist())
    assert Counter(whole.labels.tolist()) == counts
    other = replace(job, scenario=tiny.SCENARIOS["together"])
    again = evaluate.real_records(other, scenario_stages(other.scenario)[0])
    assert torch.equal(again.images, whole.images)
    assert torch.equal(again.labels, whole.labels)


def test_a_model_holds_no_images_to_compare(job):
    with pytest.raises(ValueError, match="no images"):
        evaluate.evaluate_images(job.text(), 0, model())


def test_each_number_is_another_classifier_and_the_same_one_again(job):
    several = replace(job, evaluation=replace(job.evaluation, nets=2))
    stage = scenario_stages(job.scenario)[0]
    released = evaluate.real_records(several, stage)

    def score(number: int) -> EvalResult:
        return evaluate.evaluate_classifier(several.text(), 0, number, released)

    first, second, again = score(0), score(1), score(0)
    assert first == again
    assert first != second
