"""The device of a run: which words fit together, and that a missing GPU is refused at the start."""

from __future__ import annotations

import pytest
import tiny_runs as tiny
import torch

from fedsynth.core.errors import UserError
from fedsynth.core.settings import build
from fedsynth.experiment.job import Job
from fedsynth.experiment.run_config import RunConfig
from fedsynth.experiment.run_device import require_device, run_device


def run(**words: object) -> RunConfig:
    """A run with these words."""
    config: RunConfig = build(RunConfig, words)
    return config


@pytest.mark.parametrize(
    ("words", "device"),
    [
        ({}, "cpu"),
        ({"num_gpus": 0.5}, "cuda"),
        ({"device": "cuda", "num_gpus": 1.0}, "cuda"),
        ({"device": "cuda:1", "engine": "inprocess"}, "cuda:1"),
        ({"device": "cpu", "engine": "inprocess"}, "cpu"),
    ],
)
def test_one_word_holds_for_parties_server_and_evaluation(words, device: str) -> None:
    assert run_device(run(**words)) == device


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"device": "gpu"}, "device='gpu' is no device"),
        ({"device": "cpu", "num_gpus": 1.0}, "device=cpu and num_gpus=1: .*do not use"),
        ({"device": "cuda"}, "device=cuda needs num_gpus above 0: engine=ray hides"),
        ({"device": "cuda:1", "num_gpus": 1.0}, "engine=ray chooses the GPU of each worker"),
    ],
)
def test_words_that_do_not_fit_are_refused(words, message: str) -> None:
    with pytest.raises(UserError, match=message):
        run_device(run(**words))


def test_a_missing_gpu_is_refused_before_anything_is_computed(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="device=cuda: "):
        require_device(run(device="cuda", engine="inprocess"))
    require_device(
        run(device="cuda", num_gpus=1.0, address="head:6379")
    )  # its workers may have one
    require_device(run())


def test_a_job_for_a_gpu_is_another_job_and_does_not_run_on_the_cpu(monkeypatch, tmp_path) -> None:
    """Its results have other last bits, so it draws other noise; which GPU makes no difference."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    job = tiny.tiny_job("dp_merf", tmp_path)
    first, second = (Job.parse(job.text().replace('"cpu"', f'"cuda:{i}"')) for i in (0, 1))
    assert first.device == "cuda:0"
    assert job.identity != first.identity == second.identity
    with pytest.raises(UserError, match="device=cuda:0: "):
        first.torch_device  # noqa: B018
    assert first.server_device == torch.device("cpu")
