"""A run starts in a folder of its own, and goes on with the configuration it was started with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from fedsynth.api import launch
from fedsynth.core.errors import UserError
from fedsynth.experiment.config import ExperimentConfig, parse_overrides, resolve
from fedsynth.storage.run_directory import CONFIG, RunDirectory


def config(*words: str) -> ExperimentConfig:
    job = ["scenario=split_mnist", "data=shapes", "method=ldpdc", "epsilon=1"]
    return resolve(parse_overrides([*job, *words]))


@pytest.fixture
def started(tmp_path: Path) -> Path:
    """The folder of a run that was started on two workers and has no release yet."""
    run = RunDirectory.create(tmp_path / "run")
    values = config("workers=2", "seed=3").as_dict()
    (run.path / CONFIG).write_text(yaml.safe_dump(values))
    return run.path


def test_a_run_goes_on_as_it_was_started(started):
    found = launch.load_started_config(started, {"workers": 1})
    assert found.run.workers == 1
    assert list(found.run.seed) == [3]
    assert found.run.out == str(started)
    assert found.scenario == config().scenario


def test_a_run_of_a_cluster_goes_on_without_it(started):
    values = config("engine=ray", "address=lost:6379").as_dict()
    (started / CONFIG).write_text(yaml.safe_dump(values))
    assert launch.load_started_config(started, {}).run.address == "lost:6379"
    found = launch.load_started_config(started, {"engine": "inprocess"}).run
    assert (found.engine, found.address) == ("inprocess", None)


@pytest.mark.parametrize(
    ("key", "message"),
    [("epsilon", "epsilon= cannot be changed on --resume"), ("worker", "Did you mean 'workers'")],
)
def test_a_key_that_changes_results_is_refused(started, key, message):
    with pytest.raises(UserError, match=message):
        launch.load_started_config(started, {key: 2})


@launch.one_thread()
def fails_on_one_thread() -> None:
    raise ValueError(f"stopped on {torch.get_num_threads()}")


def test_threads_are_restored_even_after_an_error():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(ValueError, match="stopped on 1"):
            fails_on_one_thread()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_workers_are_told_absolute_paths_and_the_configuration_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    relative = config("data_dir=images")
    experiment = launch.experiment_in(relative, Path("run"))
    assert {job.scenario.data_dir for job in experiment.jobs} == {str(tmp_path / "images")}
    assert {job.out for job in experiment.jobs} == {str(tmp_path / "run")}
    assert experiment.config is relative


@pytest.mark.parametrize("out", ["runs/one", "ABSOLUTE", "../beside"])
def test_relative_data_are_found_from_another_directory(tmp_path, monkeypatch, out):
    """By a report or --resume, wherever the run lies; the folder that was given stays one."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    images, labels = np.zeros((40, 8, 8), np.uint8), np.arange(40) % 2
    np.savez("own.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    out = out.replace("ABSOLUTE", str(tmp_path / "elsewhere"))
    words = ["scenario=split_mnist", "data=file:own.npz", "parties=2", "partition=iid"]
    words += ["options={}", "stages=together", "method=psg", "epsilon=1", "accounting=rdp"]
    own = resolve(parse_overrides([*words, "delta=1e-3", f"out={out}"]))
    run, experiment = launch.propose(own, [], note=print)
    folder = run.path.absolute()
    monkeypatch.chdir(tmp_path)
    again = launch.experiment_in(launch.load_started_config(folder, {}), folder)
    assert again.jobs[0].scenario.data == f"file:{home / 'own.npz'}"
    assert [job.key for job in again.jobs] == [job.key for job in experiment.jobs]


def test_no_folder_is_taken_twice(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one = config("preset=smoke")
    first = launch._fresh_folder(one)
    assert first == Path("runs/split_mnist-smoke-1")
    first.mkdir(parents=True)
    assert launch._fresh_folder(one) == Path("runs/split_mnist-smoke-2")
