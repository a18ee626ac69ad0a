"""The command `fedsynth`: its commands, its start-up time, its help, what it refuses."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner
from tiny_runs import ROOT

import fedsynth
from fedsynth.cli.main import SHELLS, app, with_scenario


def fresh(*words: str, code: str = "") -> subprocess.CompletedProcess[str]:
    """The command, or some code, in a fresh process."""
    start = [sys.executable, "-c", code] if code else [sys.executable, "-m", "fedsynth", *words]
    return subprocess.run(start, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


def test_every_command_has_a_summary_and_help():
    assert set(app.commands) >= {"run", "plan", "resume", "list", "help", "study", "verify"}
    for name, command in app.commands.items():
        assert command.get_short_help_str(200).endswith("."), name
        result = CliRunner().invoke(app, [name, "--help"])
        assert result.exit_code == 0, result.output
        assert f"fedsynth {name}" in result.output or f" {name} " in result.output


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["run", "--help"], ["help"]])
def test_help_and_version_import_neither_torch_nor_flower(words):
    code = f"""
import sys
from fedsynth.cli.main import app
try:
    app.main({words!r}, prog_name="fedsynth")
except SystemExit as leave:
    assert not leave.code
heavy = {{"torch", "flwr", "ray", "pandas", "numpy", "opacus", "sklearn"}} & set(sys.modules)
assert not heavy, heavy
"""
    done = fresh(code=code)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_lists_are_read_from_the_sources_without_torch():
    """Torch takes most of a second; the methods' own modules would import it."""
    code = """
import sys
from fedsynth.cli.listing import print_catalogue
assert print_catalogue([]) == 0
heavy = {"torch", "flwr", "ray", "pandas", "opacus", "sklearn", "scipy"} & set(sys.modules)
assert not heavy, heavy
"""
    done = fresh(code=code)
    assert done.returncode == 0, done.stderr
    for kind in ("split_mnist", "gs_wgan", "mnist_writers", "dirichlet"):
        assert f"  {kind} " in done.stdout


def test_the_package_imports_quickly_and_without_torch():
    done = fresh(
        code="import fedsynth, sys; assert 'torch' not in sys.modules; fedsynth.__version__"
    )
    assert done.returncode == 0, done.stderr


def test_version():
    assert fresh("--version").stdout.split()[-1] == fedsynth.__version__


def test_an_unknown_command_names_the_nearest():
    result = CliRunner().invoke(app, ["pln"])
    assert result.exit_code == 2
    assert "Did you mean 'plan'?" in result.output
    assert len(result.output) < 300


def test_old_command_lines_are_still_read(monkeypatch):
    calls = []
    monkeypatch.setattr("fedsynth.cli.run.main", lambda words: calls.append(words) or 0)
    for words in (["scenario=split_mnist", "epsilon=1"], ["--list"], ["--resume", "runs/x"]):
        assert CliRunner().invoke(app, words).exit_code == 0
    assert calls == [["scenario=split_mnist", "epsilon=1"], ["--list"], ["--resume", "runs/x"]]


def test_plan_and_resume_are_options_of_run(monkeypatch):
    calls = []
    monkeypatch.setattr("fedsynth.cli.run.main", lambda words: calls.append(words) or 0)
    CliRunner().invoke(app, ["plan", "split_mnist", "epsilon=1"])
    CliRunner().invoke(app, ["resume", "runs/x", "workers=1"])
    assert calls == [
        ["--plan", "scenario=split_mnist", "epsilon=1"],
        ["--resume", "runs/x", "workers=1"],
    ]
    assert CliRunner().invoke(app, ["resume"]).exit_code == 2


def test_a_scenario_may_be_named_without_its_key():
    assert with_scenario(["split_mnist", "seed=1"]) == ["scenario=split_mnist", "seed=1"]
    assert with_scenario(["seed=1"]) == ["seed=1"]
    assert with_scenario(["--quiet", "x=1"]) == ["--quiet", "x=1"]
    assert with_scenario([]) == []


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_scripts_name_the_command(shell):
    result = CliRunner().invoke(app, ["completion", shell])
    assert result.exit_code == 0
    assert "_FEDSYNTH_COMPLETE" in result.output


def test_a_failure_keeps_its_exit_code():
    done = fresh("run", "no_such_scenario")
    assert done.returncode == 2
    assert "no_such_scenario" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_public_names_exist_and_are_listed():
    for name in fedsynth.__all__:
        assert getattr(fedsynth, name) is not None
    assert sorted(dir(fedsynth)) == sorted(fedsynth.__all__)
    with pytest.raises(AttributeError, match="nothing_of_that_name"):
        fedsynth.nothing_of_that_name  # noqa: B018


def test_commands_are_click_commands():
    assert all(isinstance(command, click.Command) for command in app.commands.values())
