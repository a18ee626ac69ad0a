"""`emnist_users` selects a source of federated EMNIST, and reports each one that is missing."""

from __future__ import annotations

import importlib.util

import pytest
from femnist_files import write_leaf, write_tff

from fedsynth.core.errors import UserError
from fedsynth.data.datasets import emnist_users, mnist_writers
from fedsynth.data.fetch import registries


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*_):
        raise registries.Unavailable("no network")

    monkeypatch.setattr(registries, "qmnist_labels", refuse)
    _install(monkeypatch, False)
    mnist_writers._unavailable.cache_clear()
    yield
    mnist_writers._unavailable.cache_clear()


def _install(monkeypatch, installed):
    """Make flwr_datasets appear to be installed or not, whatever this environment has."""
    found = importlib.util.find_spec

    def find(name, *rest):
        if name == "flwr_datasets":
            return found("json") if installed else None
        return found(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", find)


@pytest.mark.usefixtures("no_network")
def test_auto_takes_flower_datasets_only_where_their_files_are(tmp_path, monkeypatch):
    _install(monkeypatch, True)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "hub"))
    name, tried = emnist_users.find("auto", tmp_path)
    assert name == "mnist_virtual"
    assert f"no {tmp_path / 'hub' / 'flwrlabs___femnist'} (source=flower downloads it" in tried[2]
    assert emnist_users.find("flower", tmp_path) == ("femnist_flower", ())
    (tmp_path / "hub" / "flwrlabs___femnist").mkdir(parents=True)
    assert emnist_users.find("auto", tmp_path)[0] == "femnist_flower"


@pytest.mark.usefixtures("no_network")
def test_auto_takes_the_first_available_source_and_reports_the_others(tmp_path, monkeypatch):
    name, tried = emnist_users.find("auto", tmp_path)
    assert name == "mnist_virtual"
    assert [line.partition(":")[0] for line in tried] == ["leaf", "tff", "flower", "writers"]
    assert "no network" in tried[-1]
    write_tff(tmp_path, monkeypatch)
    name, tried = emnist_users.find("auto", tmp_path)
    assert (name, len(tried)) == ("femnist_tff", 1)
    write_leaf(tmp_path)
    assert emnist_users.find("auto", tmp_path) == ("femnist_leaf", ())


@pytest.mark.usefixtures("no_network")
def test_a_named_source_is_never_replaced(tmp_path):
    for source in ("leaf", "tff", "flower", "writers"):
        with pytest.raises(UserError) as error:
            emnist_users.find(source, tmp_path)
        assert f"source={source} cannot be had. Tried:" in str(error.value)
        assert str(error.value).count("\n  - ") == 1
        assert "What to do: " in str(error.value)
    with pytest.raises(UserError, match=r"unknown source 'leav'. Did you mean 'leaf'"):
        emnist_users.find("leav", tmp_path)
