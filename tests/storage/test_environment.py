"""The record of versions, machine and command, without names of persons and places."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import torch

from fedsynth.storage.environment import command_line, git_commit, package_version
from fedsynth.storage.run_directory import RunDirectory


def test_the_environment_names_versions_and_no_places(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    words = [
        "scenario=/home/ann/secret/my.yaml",
        f"out={tmp_path}/run",
        "data_dir=~/mnist",
        "psg.spc=20",
    ]
    run.write_environment(words)
    text = (run.path / "environment.json").read_text()
    found = run.read_environment()
    assert found["packages"]["torch"] == torch.__version__
    assert found["command"] == (
        "python -m fedsynth.run scenario=my.yaml out=run data_dir=mnist psg.spc=20"
    )
    for secret in ("/home", str(tmp_path), str(Path.home()), str(Path(__file__).parents[2])):
        assert secret not in text


def test_a_command_line_can_be_pasted() -> None:
    assert command_line(["out=a b", "x=$HOME"]) == "python -m fedsynth.run 'out=a b' 'x=$HOME'"


def test_the_commit_of_a_checkout_is_named() -> None:
    if not (Path(__file__).parents[2] / ".git").exists():
        assert git_commit() is None
    else:
        commit = git_commit()
        assert commit is not None
        assert len(commit["commit"]) == 40


def test_a_package_may_come_from_a_distribution_of_another_name(monkeypatch) -> None:
    def only_xgboost_cpu(name: str) -> str:
        if name != "xgboost-cpu":
            raise metadata.PackageNotFoundError(name)
        return "3.2.0"

    monkeypatch.setattr(metadata, "version", only_xgboost_cpu)
    monkeypatch.setattr(metadata, "packages_distributions", lambda: {"xgboost": ["xgboost-cpu"]})
    assert package_version("xgboost") == "3.2.0"
    assert package_version("no-such-package") is None
