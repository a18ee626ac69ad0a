"""The guides' examples of a method, a scenario and a data set, and plug-ins made of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_runs as tiny
import torch
import yaml

from fedsynth import methods
from fedsynth.cli.listing import print_topic
from fedsynth.cli.run import main
from fedsynth.core import plugins
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.data import datasets as sets
from fedsynth.data import registry as datasets
from fedsynth.experiment.job import Job, _parse, _plan
from fedsynth.methods import registry
from fedsynth.privacy.accounting.events import flatten
from fedsynth.privacy.ledger import read_entries, total
from fedsynth.storage.run_directory import RunDirectory

GUIDES = tiny.ROOT / "docs/guides"
CHEAP = [
    "engine=inprocess",
    "accounting=rdp",
    "evaluation.width=4",
    "evaluation.max_images=50",
    "noise_seed=1",
]
TWO_PARTIES = ["data=shapes", "parties=2", "options=", "epsilon=10", "--quiet"]


def example(guide: str, language: str) -> tuple[str, Path, str]:
    """The code in a guide, the path it names, and the command to run it."""
    text = (GUIDES / f"{guide}.md").read_text()
    code = re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)
    place = re.search(r"[Pp]ut this into\s+`([^`]+)`", text)
    command = re.search(r"`python -m fedsynth\.run\s+([^`]+)`", text)
    if not (code and place and command):
        pytest.fail(f"{guide}: no code, place or command")
    return code[1], Path(place[1]), command[1]


def forget() -> None:
    """Forget what a process keeps of methods, jobs and plug-ins."""
    for module in [name for name in sys.modules if name.startswith("fedsynth_plugin_")]:
        del sys.modules[module]
    plugins.forget()
    for cached in (registry._of_package, registry._instance, _parse, _plan):
        cached.cache_clear()


@pytest.fixture(autouse=True)
def work_dir(monkeypatch, tmp_path):
    """An empty working directory, and registries as they were at the end of the test."""
    monkeypatch.chdir(tmp_path)
    datasets.discover()
    monkeypatch.setattr(datasets, "_registry", dict(datasets._registry))
    modules = set(sys.modules)
    yield tmp_path
    monkeypatch.undo()
    for name in set(sys.modules) - modules:
        if name.startswith(("fedsynth.methods.", "fedsynth.data.datasets.")):
            del sys.modules[name]
    forget()


@pytest.fixture
def new_file(monkeypatch, tmp_path):
    """Puts a file where a package looks for its modules."""

    def put(package, name: str, code: str) -> None:
        folder = tmp_path / "dropped" / package.__name__
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(code)
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
        forget()

    return put


@pytest.fixture
def plugin(tmp_path) -> Path:
    """The guide's method in a file outside the package."""
    path = tmp_path / "elsewhere" / "mean_image.py"
    path.parent.mkdir()
    path.write_text(example("add_a_method", "python")[0])
    return path


# The guides' examples


def test_the_method(new_file, capsys):
    code, place, command = example("add_a_method", "python")
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
        outcome = run.releases.load(job, stage)
        assert isinstance(outcome, SyntheticSet)
        assert outcome.images.shape == (2, 1, 28, 28)
    assert torch.isfinite(outcome.images).all()


def test_the_method_keeps_the_contract(new_file, here, tmp_path):
    """As every method does in `methods/test_contract.py`."""
    code, place, _ = example("add_a_method", "python")
    new_file(methods, place.name, code)
    job = tiny.tiny_job(place.stem, tmp_path / "run", changes={"sampling_rate": 0.5})
    tiny.release(job, here)
    for stage in range(2):
        (party_plan,) = job.plan(stage).parties
        entries = read_entries(job.party_folder(party_plan.party) / "ledger.jsonl")
        assert flatten(total(entries)) == flatten(party_plan.event)
        classes = job.plan(stage).stage.classes
        assert party_plan.bytes_up == len(classes) * (4 * 28 * 28 + 8)


def test_the_scenario(capsys):
    """By its name from the folder of scenarios, and by its path from anywhere."""
    text, place, command = example("add_a_scenario", "yaml")
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


def test_the_data_set(new_file):
    code, place, command = example("add_a_data_set", "python")
    assert (tiny.ROOT / place.parent / "__init__.py") == Path(sets.__file__)
    new_file(sets, place.name, code)
    check_stripes(place.stem)
    assert f"data={place.stem}" in command
    words = [*command.split(), *CHEAP, "method=ldpdc", "epsilon=10", "out=run"]
    assert main([*words, "--quiet"]) == 0
    assert len(list(Path("run/releases").rglob("*.npz"))) == 2


def check_stripes(name: str) -> None:
    """The published constants of the guide's data set are those of its images."""
    assert name in datasets.names()
    for split in datasets.SPLITS:
        images, labels = datasets.load(name, split)
        assert images.shape[1:] == datasets.find(name).info.shape
        pixels = images.double() / 255
        assert abs(float(pixels.mean()) - datasets.find(name).info.mean[0]) < 0.02
        assert abs(float(pixels.std()) - datasets.find(name).info.std[0]) < 0.02
        assert len(labels) == sum(datasets.find(name).class_counts(split))


def test_images_of_ones_own(tmp_path):
    """README and guide name the page that says that `data=file:PATH` is all it takes."""
    import numpy as np

    for page in (tiny.ROOT / "README.md", GUIDES / "add_a_data_set.md"):
        assert "own_data.md)" in page.read_text()
    assert "`data=file:PATH` reads your records" in (GUIDES / "own_data.md").read_text()
    rng = np.random.default_rng(0)
    arrays = {}
    for split, n in (("train", 60), ("test", 20)):
        arrays[f"x_{split}"] = rng.integers(0, 256, (n, 16, 16), dtype=np.uint8)
        arrays[f"y_{split}"] = np.arange(n) % 2
    np.savez("my.npz", **arrays)
    words = ["data=file:my.npz", "parties=2", "options=", "method=ldpdc", "epsilon=10", "out=run"]
    assert main([*words, *CHEAP, "--quiet"]) == 0
    assert len(list(Path("run/releases").rglob("*.npz"))) == 2


# Plug-ins


def test_a_plugin_runs_on_every_engine_and_resumes(plugin, tmp_path, monkeypatch):
    words = ["plugin=elsewhere/mean_image.py", "method=mean_image", *TWO_PARTIES]
    assert main([*words, *CHEAP, "out=inprocess"]) == 0
    assert yaml.safe_load(Path("inprocess/config.yaml").read_text())["plugin"] == [str(plugin)]
    ray = [word for word in CHEAP if not word.startswith("engine=")]
    ray += ["engine=ray", "workers=1", "out=ray"]
    # In a process of its own, as the tests' Ray may hold all CPUs of this one's.
    done = subprocess.run(
        [sys.executable, "-m", "fedsynth.run", *words, *ray],
        env={**os.environ, "PYTHONPATH": str(tiny.ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    same = [tiny.outputs(out) for out in ("inprocess", "ray")]
    assert same[0] == same[1]
    for part in ("releases", "server", "metrics.csv"):
        path = Path("ray") / part
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    forget()
    monkeypatch.chdir("/")
    assert main(["--resume", str(tmp_path / "ray"), "engine=inprocess", "--quiet"]) == 0
    assert tiny.outputs(tmp_path / "ray") == same[0]


def test_help_on_a_method_of_a_plugin(plugin, capsys):
    assert print_topic(["mean_image", f"plugin={plugin}"]) == 0
    assert "mean_image.sampling_rate=1.0" in capsys.readouterr().out
    assert print_topic(["mean_image", "plugin=no_such_file.py"]) == 2
    assert "plugin=no_such_file.py cannot be loaded" in capsys.readouterr().err


def test_a_plugin_that_moved_is_named_on_resume(plugin, capsys):
    words = [f"plugin={plugin}", "method=mean_image", *TWO_PARTIES, *CHEAP, "out=run"]
    assert main(words) == 0
    before = tiny.outputs("run")
    forget()
    moved = plugin.rename("moved.py")
    assert main(["--resume", "run", "--quiet"]) == 2
    assert f"plugin={plugin} cannot be loaded: there is no such" in capsys.readouterr().err
    assert main(["--resume", "run", "plugin=moved.py", "--quiet"]) == 0
    assert tiny.outputs("run") == before
    assert moved.is_file()


def test_a_plugin_brings_data_sets_and_scenarios(tmp_path, capsys):
    folder = tmp_path / "elsewhere"
    (folder / "scenarios").mkdir(parents=True)
    (folder / "stripes.py").write_text(example("add_a_data_set", "python")[0])
    text = "about: stripes\ndata: stripes\nparties: 2\nmethod: [ldpdc]\nepsilon: [10]\n"
    (folder / "scenarios" / "striped.yaml").write_text(text)
    (folder / "alone.yaml").write_text(text + "plugin: stripes.py\n")
    assert main(["scenario=striped", f"plugin={folder}/stripes.py", *CHEAP, "out=run"]) == 0
    check_stripes("stripes")
    assert len(list(Path("run/releases").rglob("*.npz"))) == 2
    forget()
    datasets._registry.pop("stripes")
    assert main(["--plan", "scenario=elsewhere/alone.yaml"]) == 0
    assert "ldpdc" in capsys.readouterr().out


BROKEN = {
    "syntax": ("def broken(:\n", r"SyntaxError on line 1"),
    "import": ("import no_such_module\n", r"ModuleNotFoundError on line 1.*no_such_module"),
    "error": ("x = 1\nx / 0\n", r"ZeroDivisionError on line 2"),
    "exit": ("raise SystemExit(0)\n", r"SystemExit on line 1"),
    "taken": (
        "import fedsynth\n\n\nclass Mine(fedsynth.Method):\n"
        '    name = "psg"\n    summary = "another psg"\n',
        r"it defines a method 'psg', and so does .*psg\.py",
    ),
    "missing": (None, r"there is no such Python file"),
}


@pytest.mark.parametrize("code_and_reason", BROKEN.values(), ids=list(BROKEN))
def test_a_broken_plugin_is_named_and_harms_nothing_else(code_and_reason, tmp_path, capsys):
    code, reason = code_and_reason
    path = tmp_path / "broken.py"
    if code is not None:
        path.write_text(code)
    words = ["--plan", "method=ldpdc", *TWO_PARTIES, *CHEAP]
    assert main([f"plugin={path}", *words]) == 2
    said = capsys.readouterr().err
    assert re.fullmatch(rf"error: plugin={path} cannot be loaded: .*{reason}.*\n", said)
    assert main(["--list", f"plugin={path}"]) == 0
    listed = capsys.readouterr().out
    assert re.search(rf"^  plugin={path}: .*{reason}", listed, re.MULTILINE)
    assert re.search(r"^  psg ", listed, re.MULTILINE)
    assert main(words) == 0
    assert main(["--plan", "method=psg", *TWO_PARTIES, *CHEAP]) == 0


def test_two_plugins_with_a_method_of_the_same_name(plugin, tmp_path, capsys):
    shutil.copy(plugin, tmp_path / "copy.py")
    assert main([f"plugin={plugin},copy.py", "--plan", "method=mean_image", *TWO_PARTIES]) == 2
    said = capsys.readouterr().err
    assert (
        f"copy.py cannot be loaded: it defines a method 'mean_image', and so does {plugin}" in said
    )
    assert said.count("\n") == 1


def test_two_files_of_the_package_with_a_method_of_the_same_name(new_file, capsys):
    code = example("add_a_method", "python")[0]
    new_file(methods, "one.py", code)
    new_file(methods, "two.py", code)
    assert main(["--plan", "method=mean_image", *TWO_PARTIES]) == 2
    assert re.search(r"called 'mean_image': in .*one\.py and .*two\.py", capsys.readouterr().err)
    assert main(["--plan", "method=ldpdc", *TWO_PARTIES, *CHEAP]) == 0


def test_installed_plugins(plugin, tmp_path, monkeypatch, capsys):
    """One that works, in a package, and one that fails on import: entry points name both."""
    site = tmp_path / "site"
    (site / "good_package").mkdir(parents=True)
    (site / "good_package/__init__.py").write_text("")
    shutil.copy(plugin, site / "good_package")
    (site / "bad_module.py").write_text(BROKEN["error"][0] + plugin.read_text().replace(
        'name = "mean_image"', 'name = "bad_image"'))  # fmt: skip
    (site / "mine-1.dist-info").mkdir()
    (site / "mine-1.dist-info/METADATA").write_text("Name: mine\nVersion: 1\n")
    (site / "mine-1.dist-info/entry_points.txt").write_text(
        "[fedsynth.plugins]\nbad = bad_module\ngood = good_package\ngone = no_such_module\n"
    )
    monkeypatch.syspath_prepend(site)
    forget()
    assert main(["--plan", "method=ldpdc", *TWO_PARTIES, *CHEAP]) == 0
    assert not {"good_package.mean_image", "bad_module"} & set(sys.modules)
    assert main(["method=mean_image", *TWO_PARTIES, *CHEAP, "out=run"]) == 0
    assert "bad_module" not in sys.modules
    capsys.readouterr()
    assert main(["--plan", "method=bad_image", *TWO_PARTIES, *CHEAP]) == 2
    said = "error: plug-in bad (bad_module) cannot be loaded: ZeroDivisionError on line 2"
    assert capsys.readouterr().err.startswith(said)
    assert main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert re.search(r"^  mean_image ", listed, re.MULTILINE)
    assert re.search(r"^  plug-in bad \(bad_module\): ZeroDivisionError", listed, re.MULTILINE)
    assert re.search(r"^  plug-in gone .*: there is no module", listed, re.MULTILINE)


def test_what_a_plugin_adds_to_the_identity_of_a_job(plugin, tmp_path):
    """Nothing without one; else its content, wherever it lies: an edited file is another job."""

    def identity(*paths: Path) -> str:
        job = tiny.tiny_job("ldpdc", tmp_path / "run", plugins=tuple(map(str, paths)))
        assert Job.parse(job.text()) == job
        return job.identity

    assert "plugin" not in identity()
    copy = Path(shutil.copy(plugin, tmp_path / "copy.py"))
    with_plugin = identity(plugin)
    forget()
    assert identity(copy.absolute()) == with_plugin != identity()
    forget()
    copy.write_text(copy.read_text() + "\n# edited\n")
    assert identity(copy.absolute()) != with_plugin
