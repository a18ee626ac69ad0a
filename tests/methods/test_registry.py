"""Tests that methods are found by their files and imported only if needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fedsynth import methods
from fedsynth.core.errors import UserError
from fedsynth.core.plugins import broken, modules_below
from fedsynth.methods import registry
from fedsynth.methods.method import Method
from fedsynth.methods.registry import all_methods, is_method, method, method_names, summaries

PLAN = """
import sys
from fedsynth.cli.run import main
code = main(["--plan", "method=ldpdc", "epsilon=10", "data=shapes", "options=", "accounting=rdp"])
print(*sorted(name for name in sys.modules if name.startswith("fedsynth.methods.")), sep="\\n")
sys.exit(code)
"""


def test_every_class_with_a_name_is_found_under_it():
    assert method_names() == tuple(all_methods())
    for name, found in all_methods().items():
        assert isinstance(found, Method)
        assert found.name == name
        assert method(name) is found
    assert not is_method("psgg")
    with pytest.raises(UserError, match=r"unknown method 'psgg'.*Did you mean 'psg'"):
        method("psgg")


def test_the_summaries_are_those_of_the_methods():
    assert summaries() == {name: found.summary for name, found in all_methods().items()}


def test_a_plan_imports_no_other_method():
    result = subprocess.run(
        [sys.executable, "-c", PLAN], capture_output=True, text=True, check=True, timeout=250
    )
    imported = {line for line in result.stdout.splitlines() if line.startswith("fedsynth.methods.")}
    modules = {source.module for source in registry._of_package().values()}
    assert imported & modules == {"fedsynth.methods.dpdc.ldpdc"}


def test_the_source_of_a_method_is_read_and_not_run(tmp_path, monkeypatch):
    (tmp_path / "family").mkdir()
    (tmp_path / "family" / "mine.py").write_text(
        "raise RuntimeError('imported')\n\n"
        "class Shared:\n    name = 'no_summary'\n\n"
        "class Mine:\n    name: str = 'mine'\n    summary = 'a' + 'b'\n"
    )
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
    registry._of_package.cache_clear()
    try:
        assert is_method("mine")
        assert not is_method("no_summary")
        assert set(method_names()) > {"mine", "psg"}
        with pytest.raises(UserError, match=r"mine\.py cannot be loaded: RuntimeError.*line 1"):
            method("mine")
        assert method("psg").name == "psg"
        assert "mine" not in summaries()
        assert str(tmp_path / "family" / "mine.py") in broken()
    finally:
        monkeypatch.undo()
        registry._of_package.cache_clear()


def test_modules_below_a_folder():
    folder = Path(methods.__file__).parent
    found = modules_below(folder, "fedsynth.methods")
    assert found["fedsynth.methods.psg.psg"] == folder / "psg" / "psg.py"
    assert not any(name.endswith("__init__") for name in found)
