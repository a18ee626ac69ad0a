"""Keyword arguments as keys: nesting, lists, numbers of numpy, and the words for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedsynth.api.keys import overrides_of, words_of
from fedsynth.core.enums import Relation
from fedsynth.core.errors import UserError
from fedsynth.experiment.config import parse_overrides


def test_dotted_and_nested_keys_are_the_same() -> None:
    assert overrides_of({"psg.spc": 5}) == overrides_of({"psg": {"spc": 5}}) == {"psg": {"spc": 5}}
    both = overrides_of({"psg.spc": 5, "psg": {"runs": 2}})
    assert both == {"psg": {"spc": 5, "runs": 2}}


@pytest.mark.parametrize(
    "keys",
    [{"psg.spc": 5, "psg": {"spc": 6}}, {"psg": 3, "psg.spc": 5}, {"psg.": 1}, {".spc": 1}],
)
def test_contradictions_are_refused(keys: dict) -> None:
    with pytest.raises(UserError):
        overrides_of(keys)


def test_values_become_plain() -> None:
    keys = {"epsilon": np.float64(1), "seed": np.arange(2), "out": Path("a"), "method": ("x", "y")}
    made = overrides_of({**keys, "relation": Relation.REPLACE_ONE})
    assert made["epsilon"] == 1.0
    assert type(made["epsilon"]) is float
    assert made["seed"] == [0, 1]
    assert type(made["seed"][0]) is int
    assert made["out"] == "a"
    assert made["method"] == ["x", "y"]
    assert type(made["relation"]) is str


def test_the_words_give_the_same_keys() -> None:
    overrides = {"scenario": "a", "epsilon": [1, 10], "grey": True, "psg": {"spc": 5}}
    assert parse_overrides(words_of(overrides)) == {**overrides, "epsilon": [1.0, 10.0]}
    assert words_of({"noise_seed": None}) == ["noise_seed=null"]
    options = {"options": {"order": [1, 0]}}
    assert parse_overrides(words_of(options)) == {"options": {"order": [1.0, 0.0]}}
