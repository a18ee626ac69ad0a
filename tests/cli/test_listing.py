"""Lists and help topics: every entry has its line, every mistake its nearest name."""

from __future__ import annotations

import pytest

from fedsynth.cli.listing import CATALOGUE, catalogue, print_catalogue, print_topic, topic
from fedsynth.core.errors import UserError
from fedsynth.methods.registry import all_methods


@pytest.mark.parametrize("kind", CATALOGUE)
def test_a_list_shows_one_kind_only(kind, capsys):
    assert print_catalogue([kind]) == 0
    text = capsys.readouterr().out
    titles = [title for title, _ in CATALOGUE.values() if title in text]
    assert titles == [CATALOGUE[kind][0]]
    assert text.strip() in catalogue()


def test_an_unknown_kind_is_refused(capsys):
    assert print_catalogue(["method"]) == 2
    assert "'methods'" in capsys.readouterr().err


@pytest.mark.parametrize("name", all_methods())
def test_the_topic_of_a_method_has_all_its_keys(name):
    text = topic(name)
    assert text.startswith(f"{name}: ")
    for key in all_methods()[name].Config.__dataclass_fields__:
        assert f"{name}.{key}=" in text


@pytest.mark.parametrize("name", ["epsilon", "parties", "evaluation.width", "psg.spc"])
def test_the_topic_of_a_key_is_its_line(name):
    assert topic(name).strip().startswith(f"{name}=")


def test_an_unknown_topic_names_the_nearest(capsys):
    with pytest.raises(UserError, match="Did you mean 'epsilon'"):
        topic("epsilno")
    with pytest.raises(UserError, match=r"Did you mean 'psg\.spc'"):
        topic("psg.spcc")
    assert print_topic(["no such thing at all"]) == 2
    assert len(capsys.readouterr().err) < 400
