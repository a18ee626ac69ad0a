"""Scenario files: which one a name means, and which texts are refused."""

from __future__ import annotations

import pytest

from fedsynth.core.errors import UserError
from fedsynth.experiment.scenario_files import read_yaml, scenario_file, scenario_files


def test_the_working_directory_goes_before_the_package(tmp_path, monkeypatch):
    packaged = scenario_files()["split_mnist"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenarios").mkdir()
    own = tmp_path / "scenarios" / "split_mnist.yaml"
    own.write_text("about: mine\n")
    assert scenario_file("split_mnist").resolve() == own
    own.unlink()
    assert scenario_file("split_mnist").name == packaged.name


def test_a_path_is_taken_as_it_is_and_an_unknown_name_is_explained(tmp_path):
    path = tmp_path / "other.yaml"
    with pytest.raises(UserError, match="no such file"):
        scenario_file(str(path))
    path.touch()
    assert scenario_file(str(path)) == path
    with pytest.raises(UserError, match="split_mnist"):
        scenario_file("split_mnits")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: 1\na: 2\n", "the key 'a' is given twice"),
        ("a:\n  b: 1\n  b: 1\n", "the key 'b' is given twice"),
        ("a: [1\n", "is not valid YAML"),
        ("- 1\n", "must hold keys and values"),
        ("a: !!python/object:os.system {}\n", "is not valid YAML"),
    ],
)
def test_texts_that_are_no_scenario_are_refused(tmp_path, text, error):
    path = tmp_path / "scenario.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=error):
        read_yaml(path)


def test_an_empty_file_is_an_empty_mapping_and_keys_become_text(tmp_path):
    path = tmp_path / "scenario.yaml"
    path.write_text("")
    assert read_yaml(path) == {}
    path.write_text("1: one\n")
    assert read_yaml(path) == {"1": "one"}
    with pytest.raises(UserError, match="cannot be read"):
        read_yaml(tmp_path / "missing.yaml")
