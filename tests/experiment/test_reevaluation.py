"""Re-evaluation of releases on their own: stages, folders, files that are no synthetic set."""

from __future__ import annotations

import dataclasses

import pytest
import tiny_runs as tiny
import torch

from fedsynth.core.errors import UserError
from fedsynth.core.outcomes import ReleasedModel, SyntheticSet
from fedsynth.evaluation.config import EvaluationConfig
from fedsynth.experiment.config import parse_overrides, resolve
from fedsynth.experiment.experiment import Experiment
from fedsynth.experiment.reevaluation import Reevaluation, evaluate_file
from fedsynth.storage.releases import write_archive
from fedsynth.storage.run_directory import RunDirectory

TINY = EvaluationConfig("P", "mlp", nets=2, max_images=100)


def experiment(tmp_path, evaluation=TINY) -> Experiment:
    config = resolve(
        parse_overrides(["scenario=split_mnist", "data=shapes", "method=ldpdc", "epsilon=10"])
    )
    return Experiment.of(dataclasses.replace(config, evaluation=evaluation), tmp_path)


def test_stages_up_to_the_first_gap_are_evaluated(tmp_path) -> None:
    whole = experiment(tmp_path)
    run, job = RunDirectory(tmp_path), whole.jobs[0]
    images, labels = torch.zeros(2, 1, 28, 28), torch.tensor([5, 6])
    for stage in (1, 2, 4):
        run.releases.save(job.name, stage, SyntheticSet(images, labels))
    assert Reevaluation(run, whole).stages(job) == [1]
    assert Reevaluation(run, whole, last_stage_only=False).stages(job) == [0, 1]


def test_every_setting_has_a_folder_of_its_own(tmp_path) -> None:
    run = RunDirectory(tmp_path)
    changes = [{}, {"nets": 1}, {"width": 7}, {"images_per_class": 3}]
    folders = {
        Reevaluation(run, experiment(tmp_path, dataclasses.replace(TINY, **change))).folder
        for change in changes
    }
    assert len(folders) == len(changes)


def test_a_file_gives_one_result_per_classifier_and_repetition(tmp_path) -> None:
    scenario = tiny.SCENARIOS["together"]
    path = tmp_path / "set.npz"
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(20, 1, 28, 28, generator=generator)
    write_archive(path, SyntheticSet(images, torch.arange(20) % 10))
    results = evaluate_file(path, scenario, TINY)
    assert [result.classifier for result in results] == ["mlp", "mlp"]
    assert results[0].per_class != results[1].per_class  # networks of their own
    assert evaluate_file(path, scenario, TINY) == results
    fewer = evaluate_file(path, scenario, dataclasses.replace(TINY, images_per_class=1))
    assert fewer[0].images == 10


def test_a_model_is_not_evaluated_anew(tmp_path) -> None:
    path = tmp_path / "model.npz"
    write_archive(path, ReleasedModel({"weight": torch.zeros(3)}, 4))
    with pytest.raises(UserError, match="holds a model"):
        evaluate_file(path, tiny.SCENARIOS["together"], TINY)
