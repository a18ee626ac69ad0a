"""The README's examples of a method, a scenario and a data set, taken from its text and run."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import tiny_runs as tiny
import torch

from fedsynth import methods
from fedsynth.cli.run import main
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.data import datasets as sets
from fedsynth.data import registry as datasets
from fedsynth.experiment.job import _parse, _plan
from fedsynth.methods import registry
from fedsynth.privacy.accounting.events import flatten
from fedsynth.privacy.ledger import read_entries, total
from fedsynth.storage.run_directory import RunDirectory

README = (tiny.ROOT / "README.md").read_text()
CHEAP = [
    "engine=inprocess",
    "accounting=rdp",
    "evaluation.width=4",
    "evaluation.max_images=50",
    "noise_seed=1",
]


def example(heading: str, language: str) -> tuple[str, Path, str]:
    """The code under a heading, the file it is said to belong into, and the command to run it."""
    section = README.split(f"### {heading}\n")[1].split("\n### ")[0].split("\n## ")[0]
    code = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)
    place = re.search(r"[Pp]ut this into\s+`([^`]+)`", section)
    command = re.search(r"`python -m fedsynth\.run\s+([^`]+)`", section)
    if not (code and place and command):
        pytest.fail(f"README, {heading}: no code, place or command")
    return code[1], Path(place[1]), command[1]


@pytest.fixture
def new_file(monkeypatch, tmp_path):
    """Puts files where a package finds its members, and takes them away again."""
    monkeypatch.chdir(tmp_path)
    caches = (registry._of_package, _parse, _plan)
    modules = set(sys.modules)

    def put(package, name: str, code: str) -> None:
        folder = tmp_path / "dropped" / package.__name__
        folder.mkdir(parents=True)
        (folder / name).write_text(code)
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
        for cached in caches:
            cached.cache_clear()

    monkeypatch.setattr(datasets, "_registry", dict(datasets._registry))
    yield put
    monkeypatch.undo()
    for name in set(sys.modules) - modules:
        if name.startswith(("fedsynth.methods.", "fedsynth.data.sets.")):
            del sys.modules[name]
    for cached in caches:
        cached.cache_clear()


def test_the_method(new_file, capsys):
    code, place, command = example("Add a method", "python")
    assert (tiny.ROOT / place.parent / "__init__.py") == Path(methods.__file__)
    new_file(methods, place.name, code)
    name = place.stem
    assert main(["--list"]) == 0
    assert f"  {name} " in capsys.readouterr().out
    words = [*command.split(), "data=shapes", *CHEAP, "epsilon=10", "out=run"]
    assert main([*words, "--quiet"]) == 0
    run = RunDirectory(Path("run"))
    job = f"{name}-eps10-seed0"
    for stage in range(1, 6):
        outcome = run.load_release(job, stage)
        assert isinstance(outcome, SyntheticSet)
        assert outcome.images.shape == (2, 1, 28, 28)
    assert torch.isfinite(outcome.images).all()


def test_the_method_keeps_the_contract(new_file, here, tmp_path):
    """As every method does in `methods/test_contract.py`."""
    code, place, _ = example("Add a method", "python")
    new_file(methods, place.name, code)
    job = tiny.tiny_job(place.stem, tmp_path / "run", changes={"rate": 0.5})
    tiny.release(job, here)
    for stage in range(2):
        (share,) = job.plan(stage).parties
        entries = read_entries(job.party_folder(share.party) / "ledger.jsonl")
        assert flatten(total(entries)) == flatten(share.event)
        assert share.bytes_up == len(job.plan(stage).stage.classes) * (4 * 28 * 28 + 8)


def test_the_scenario(new_file, capsys, tmp_path):
    """By its name from the folder of scenarios, and by its path from anywhere."""
    text, place, command = example("Add a scenario", "yaml")
    assert place.parent == Path("scenarios")
    place.parent.mkdir()
    place.write_text(text)
    assert command == f"scenario={place.stem}"
    assert main(["--list"]) == 0
    assert f"  {place.stem} " in capsys.readouterr().out
    Path("elsewhere.yaml").write_text(text)
    words = [*CHEAP, "data=shapes", "preset=smoke", "--quiet"]
    assert main([command, *words, "out=a"]) == 0
    assert len(list(Path("a/releases").rglob("*.npz"))) == 1
    assert main(["--plan", "scenario=elsewhere.yaml", *words]) == 0
    planned = capsys.readouterr().out
    assert len(re.findall("│ ldpdc ", planned)) == len(re.findall("│ upper_bound ", planned)) == 4


def test_the_data_set(new_file, capsys):
    code, place, command = example("Add a data set", "python")
    assert (tiny.ROOT / place.parent / "__init__.py") == Path(sets.__file__)
    new_file(sets, place.name, code)
    datasets.discover()
    name = place.stem
    assert name in datasets.names()
    for split in datasets.SPLITS:
        images, labels = datasets.load(name, split)
        assert images.shape[1:] == datasets.find(name).info.shape
        pixels = images.double() / 255
        assert abs(float(pixels.mean()) - datasets.find(name).info.mean[0]) < 0.02
        assert abs(float(pixels.std()) - datasets.find(name).info.std[0]) < 0.02
        assert len(labels) == sum(datasets.find(name).class_counts(split))
    assert f"data={name}" in command
    words = [*command.split(), *CHEAP, "method=ldpdc", "epsilon=10", "out=run"]
    assert main([*words, "--quiet"]) == 0
    assert len(list(Path("run/releases").rglob("*.npz"))) == 2


def test_images_of_ones_own(tmp_path, monkeypatch):
    """The README says `data=file:my.npz` is all it takes."""
    import numpy as np

    assert "data=file:my.npz" in README
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    arrays = {}
    for split, n in (("train", 60), ("test", 20)):
        arrays[f"x_{split}"] = rng.integers(0, 256, (n, 16, 16), dtype=np.uint8)
        arrays[f"y_{split}"] = np.arange(n) % 2
    np.savez("my.npz", **arrays)
    words = ["data=file:my.npz", "parties=2", "options=", "method=ldpdc", "epsilon=10", "out=run"]
    assert main([*words, *CHEAP, "--quiet"]) == 0
    assert len(list(Path("run/releases").rglob("*.npz"))) == 2
