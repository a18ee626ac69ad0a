"""Plug-in files are imported once, by their path; what is wrong with one is said in one line."""

from __future__ import annotations

import dataclasses
import sys
import typing

import pytest

from fedsynth.core import plugins
from fedsynth.core.errors import UserError

CODE = """
from __future__ import annotations
from dataclasses import dataclass
imports = globals().get("imports", 0) + 1

@dataclass(frozen=True)
class Config:
    size: int = 3
"""


@pytest.fixture(autouse=True)
def forgotten():
    """No plug-in of another test, and none left."""
    plugins.forget()
    yield
    plugins.forget()


def test_a_file_is_imported_once_and_its_types_resolve(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    plugin = plugins.load_file("mine.py")
    assert plugins.load_file(str(tmp_path / "mine.py")) is plugin
    assert plugins.plugins()[0] is plugin
    (name,) = plugin.modules
    module = sys.modules[name]
    assert module.imports == 1
    assert typing.get_type_hints(module.Config) == {"size": int}
    assert dataclasses.replace(module.Config(), size=4).size == 4
    assert plugins.scenario_folders()[0] == tmp_path / "scenarios"


def test_files_of_the_same_name_are_two_modules(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(CODE)
    one, other = (plugins.load_file(str(tmp_path / folder / "mine.py")) for folder in "ab")
    assert set(one.modules).isdisjoint(other.modules)
    assert one.digest == other.digest != ""


def test_a_mended_file_is_broken_no_longer(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("1 / 0")
    with pytest.raises(UserError, match="ZeroDivisionError on line 1"):
        plugins.load_file(str(path))
    assert list(plugins.broken()) == [f"plugin={path}"]
    path.write_text(CODE)
    plugins.load_file(str(path))
    assert not plugins.broken()


@pytest.mark.parametrize("name", ["gone.py", "folder", "notes.txt"])
def test_what_is_no_python_file_is_refused(tmp_path, name):
    (tmp_path / "folder").mkdir()
    (tmp_path / "notes.txt").write_text("x = 1")
    with pytest.raises(UserError, match=rf"{name} cannot be loaded: there is no such Python file"):
        plugins.load_file(str(tmp_path / name))


def test_paths_start_from_a_folder_unless_they_are_absolute(tmp_path):
    assert plugins.absolute("x/mine.py", tmp_path) == tmp_path / "x/mine.py"
    assert plugins.absolute(str(tmp_path / "mine.py"), tmp_path / "x") == tmp_path / "mine.py"


def test_an_error_is_one_line_with_its_place_in_the_plugin(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def fail():\n    raise ValueError('two\\nlines')\n\nfail()\n")
    with pytest.raises(UserError) as caught:
        plugins.load_file(str(path))
    assert str(caught.value).endswith("ValueError on line 2 of mine.py: two lines.")
