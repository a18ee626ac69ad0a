"""Recipes: each is readable, names printed cells that exist, and its commands can be run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from fedsynth.cli.reproduce import planned_epsilons
from fedsynth.core.errors import UserError
from fedsynth.core.plan import SERVER_VIEW
from fedsynth.evaluation import classical_classifiers
from fedsynth.experiment.affordability import check_affordable
from fedsynth.experiment.config import parse_overrides, resolve
from fedsynth.experiment.experiment import Experiment
from fedsynth.report.paper_comparison.numbers import paper_numbers
from fedsynth.report.report_data import published_event
from fedsynth.report.reproduction import recipes
from fedsynth.report.reproduction.recipes import (
    Cells,
    Preset,
    RecipeRun,
    all_recipes,
    recipe,
    recipe_names,
)

RUNS = [(each.name, run.name) for each in all_recipes() for run in each.runs]


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_is_of_a_printed_table_and_every_part_of_it_names_cells(name: str) -> None:
    rows = recipe(name).rows
    assert rows
    for part in (*recipe(name).runs, *recipe(name).left_out):
        assert part.cells.select(rows), part


@pytest.mark.parametrize("name", recipe_names())
def test_no_printed_cell_belongs_to_two_runs(name: str) -> None:
    owners = Counter(
        id(row) for run in recipe(name).runs for row in run.cells.select(recipe(name).rows)
    )
    assert max(owners.values(), default=1) == 1


def test_every_table_has_one_recipe_at_most() -> None:
    tables = [(each.source, each.table) for each in all_recipes()]
    assert len(set(tables)) == len(tables)
    assert set(tables) <= {(row.source, row.table) for row in paper_numbers()}


@pytest.mark.parametrize(("name", "run"), RUNS)
def test_commands_resolve_in_both_forms(name: str, run: str, monkeypatch) -> None:
    monkeypatch.setattr(classical_classifiers, "has_xgboost", lambda: True)  # an extra
    chosen = recipe(name).run(run)
    if chosen.of:
        base, _, other = chosen.of.rpartition("/")
        assert recipe(base or name).run(other).words
        assert chosen.evaluate
        assert not chosen.words
        return
    published = resolve(parse_overrides(chosen.words_of(Preset.PUBLISHED)))
    assert published.run.preset == "paper"
    assert published.scenario.data == published_data(chosen)
    if chosen.reduced:
        assert chosen.why
        reduced = resolve(parse_overrides(chosen.words_of(Preset.REDUCED)))
        assert reduced.as_dict() != published.as_dict()


def published_data(run: RecipeRun) -> str:
    """The data set of a run's words."""
    return next(word.partition("=")[2] for word in run.words if word.startswith("data="))


@pytest.mark.parametrize(("name", "run"), RUNS)
def test_a_run_has_the_epsilons_of_its_cells(name: str, run: str) -> None:
    chosen = recipe(name).run(run)
    words = dict(word.split("=", 1) for word in (*chosen.words, *chosen.evaluate))
    if "epsilon" not in words:
        return
    given = {float(text) for text in words["epsilon"].split(",")}
    if chosen.printed_epsilon is not None:
        assert chosen.printed_epsilon < min(given), "the paper counts less than the budget"
        given = {chosen.printed_epsilon}
    printed = {row.epsilon for row in chosen.cells.select(recipe(name).rows)} - {None}
    assert printed <= given


@pytest.mark.parametrize(
    ("name", "run"), [(n, r) for n, r in RUNS if recipe(n).run(r).printed_epsilon is not None]
)
def test_the_paper_counts_the_printed_epsilon(name: str, run: str) -> None:
    """The run would be refused at its end otherwise, and its budget covers the other count."""
    chosen = recipe(name).run(run)
    config = resolve(parse_overrides(chosen.words_of(Preset.PUBLISHED)))
    (job,) = Experiment.of(config, Path("run")).jobs
    share = job.plans[0].parties[0]
    counted = job.paper_epsilon(published_event(share, SERVER_VIEW))
    assert counted == pytest.approx(chosen.printed_epsilon, rel=0.01)
    assert counted < job.paper_epsilon(share.event) <= job.budget.epsilon


NOISED = [
    (name, run)
    for name, run in RUNS
    if any(".noise=" in word and "none" not in word for word in recipe(name).run(run).words)
]


@pytest.mark.parametrize(("name", "run"), NOISED)
def test_a_printed_noise_keeps_to_its_budget(name: str, run: str) -> None:
    """A plan above its budget is refused, so such a run could never be made."""
    config = resolve(parse_overrides(recipe(name).run(run).words_of(Preset.PUBLISHED)))
    check_affordable(Experiment.of(config, Path("run")))


PLANNED = [(name, run) for name, run in RUNS if recipe(name).run(run).plan_only]


@pytest.mark.parametrize(("name", "run"), PLANNED)
def test_the_printed_noise_costs_the_printed_epsilon(name: str, run: str) -> None:
    """By the paper's count; 1 is printed for the .98 of DP-MERF's noise of 5."""
    chosen = recipe(name).run(run)
    (number,) = planned_epsilons(chosen.words)
    (row,) = chosen.cells.select(recipe(name).rows)
    assert number.metric == row.metric == "epsilon"
    assert number.value == pytest.approx(row.value, rel=0.021)
    assert any(".noise=" in word for word in chosen.words), "not calibrated to the printed epsilon"


@pytest.mark.parametrize(("name", "run"), RUNS)
def test_a_classifier_that_stands_in_for_another_is_told(name: str, run: str) -> None:
    """Its cells never count as produced at the published setting."""
    chosen = recipe(name).run(run)
    if chosen.printed_classifier:
        classifiers = {row.classifier for row in chosen.cells.select(recipe(name).rows)}
        assert classifiers == {chosen.printed_classifier}
        assert chosen.differs


def test_words_of_the_reduced_form_replace_those_of_the_published_one() -> None:
    run = RecipeRun("r", Cells({}), ("a=1", "seed=0,1", "b=2"), ("seed=0", "c=3"))
    assert run.words_of(Preset.PUBLISHED) == ("a=1", "seed=0,1", "b=2")
    assert run.words_of(Preset.REDUCED) == ("a=1", "b=2", "seed=0", "c=3")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cels: {}", "unknown key 'cels'.*'cells'"),
        ("cells: {dta: mnist}", "unknown column of cells 'dta'.*'data'"),
        ("cells: 3", "cells=3 must hold columns"),
    ],
)
def test_a_wrong_recipe_is_named(tmp_path, monkeypatch, text: str, message: str) -> None:
    (tmp_path / "x.table9.yaml").write_text(
        f"source: s\ntable: 9\ntitle: t\nruns:\n  one:\n    {text}\n"
    )
    monkeypatch.setattr(recipes, "FOLDER", tmp_path)
    recipe.cache_clear()
    with pytest.raises(UserError, match=message):
        recipe("x.table9")
    recipe.cache_clear()


def test_an_unknown_recipe_is_answered_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"unknown recipe 'psg.table1'.*Did you mean 'psg.table1"):
        recipe("psg.table1")
