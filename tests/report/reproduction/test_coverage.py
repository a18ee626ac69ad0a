"""Coverage: which number belongs to which printed cell, what counts as published, and files."""

from __future__ import annotations

import dataclasses

import pytest

from fedsynth.report.paper_comparison.matching import Measured
from fedsynth.report.reproduction import coverage as module
from fedsynth.report.reproduction.coverage import (
    NO_RECIPE,
    Coverage,
    coverage,
    match,
    read_results,
    recipe_coverage,
    results_of,
    table_folder,
    write_results,
)
from fedsynth.report.reproduction.recipes import Preset, Status, recipe

TABLE = recipe("psg.table1b")
FACTS = {"draws": 3, "command": "fedsynth run x", "commit": "abc", "seconds": 1.5}


def measured(value: float = 0.95, **changes) -> Measured:
    number = Measured(
        "mnist", "upper_bound", float("inf"), "", "convnet", "P", "accuracy", value, 0.01, 10.0
    )
    return dataclasses.replace(number, **changes)


def ten_per_class():
    return TABLE.run("real_mnist_10").cells.select(TABLE.rows)[0]


@pytest.mark.parametrize(
    "change",
    [{"classifier": "mlp"}, {"protocol": "D"}, {"metric": "fid"}, {"epsilon": 10.0}],
)
def test_a_number_of_another_kind_is_not_taken_for_the_cell(change: dict) -> None:
    row = ten_per_class()
    assert match(row, [measured()]) == measured()
    assert match(row, [measured(**change)]) is None


def test_a_cell_without_epsilon_takes_a_run_of_any() -> None:
    row = dataclasses.replace(ten_per_class(), epsilon=None)
    assert match(row, [measured(epsilon=3.0)]) is not None


def results(preset: Preset = Preset.PUBLISHED, **changes):
    run = TABLE.run("real_mnist_10")
    run = dataclasses.replace(run, why="less of it", **changes)
    return results_of(TABLE, run, preset, [measured()], FACTS)


def test_only_a_run_that_differs_in_nothing_is_published() -> None:
    def status(found) -> tuple[Status, str]:
        standing = {c.row: c for c in recipe_coverage(TABLE, found)}[ten_per_class()]
        return standing.status, standing.reason

    assert status(results()) == (Status.PUBLISHED, "")
    assert status(results(notes="a remark")) == (Status.PUBLISHED, "a remark")
    assert status(results(differs="another noise")) == (Status.REDUCED, "another noise")
    assert status(results(Preset.REDUCED)) == (Status.REDUCED, "less of it")
    run = TABLE.run("real_mnist_10")
    few = results_of(TABLE, run, Preset.PUBLISHED, [measured(spc=7.0)], FACTS)
    assert status(few) == (Status.REDUCED, "7 images per class in place of 10")


def test_a_result_of_a_run_that_the_recipe_no_longer_has_is_not_published() -> None:
    former = [dataclasses.replace(each, run="real_mnist_of_before") for each in results()]
    standing = {c.row: c for c in recipe_coverage(TABLE, former)}[ten_per_class()]
    assert standing.status == Status.REDUCED
    assert standing.reason == (
        "run real_mnist_of_before follows a reading of the paper that its recipe no longer has"
    )


def test_a_reduced_result_never_replaces_a_published_one(tmp_path) -> None:
    published, reduced = results(), results(Preset.REDUCED)
    write_results(tmp_path, reduced)
    assert read_results(tmp_path) == reduced
    write_results(tmp_path, published)
    assert read_results(tmp_path) == published
    write_results(tmp_path, reduced)
    assert read_results(tmp_path) == published


@pytest.mark.parametrize(
    ("ours", "printed", "deviation", "near"),
    [
        (0.93, 0.95, None, True),
        (0.929, 0.95, None, False),
        (0.90, 0.95, 0.05, True),
        (9.7, 9.86, None, True),
        (9.6, 9.86, None, False),
    ],
)
def test_near_is_two_points_or_the_printed_spread(ours, printed, deviation, near) -> None:
    row = dataclasses.replace(ten_per_class(), value=printed, deviation=deviation)
    result = dataclasses.replace(results()[0], ours=ours)
    assert Coverage(row, Status.PUBLISHED, "", result).within is near


def test_every_printed_cell_stands_once_and_has_a_reason(tmp_path) -> None:
    write_results(table_folder(tmp_path, TABLE), results())
    cells = coverage(tmp_path)
    assert len(cells) == len(module.paper_numbers()) == 1056
    assert len({module.CellKey.of(cell.row) for cell in cells}) == len(
        {module.CellKey.of(row) for row in module.paper_numbers()}
    )
    assert [cell for cell in cells if cell.result] == [
        cell for cell in cells if cell.row == ten_per_class()
    ]
    assert all(cell.reason for cell in cells if cell.result is None)
    assert any(cell.reason == NO_RECIPE for cell in cells)


def test_a_cell_that_its_run_did_not_yield_does_not_wait_for_it() -> None:
    table = recipe("gs_wgan.tableA1")
    run = table.run("real_trees")
    number = measured(
        classifier="random_forest", protocol="G", metric="accuracy", epsilon=float("inf"), spc=None
    )
    found = results_of(table, run, Preset.PUBLISHED, [number], FACTS)
    missing = [
        cell for cell in recipe_coverage(table, found) if cell.row in run.cells.select(table.rows)
    ]
    reasons = {cell.row.classifier: (cell.waits_for, cell.reason) for cell in missing}
    assert reasons["xgboost"][0] == ""
    assert "xgboost is not installed" in reasons["xgboost"][1]
    assert reasons["random_forest"][1] == run.notes


A1 = recipe("gs_wgan.tableA1")


def of_all_classifiers(runs=("real_quick", "real_trees", "real_slow", "real_gbm", "real_svc")):
    """A result of value .1, .2, ... for each classifier on real images."""
    found = []
    for name in runs:
        run = A1.run(name)
        for row in run.cells.select(A1.rows):
            number = measured((len(found) + 1) / 10, classifier=row.classifier, protocol="G")
            found += results_of(A1, run, Preset.PUBLISHED, [number], FACTS)
    return found


def average_of(found) -> Coverage:
    (cell,) = (
        cell
        for cell in recipe_coverage(A1, found)
        if (cell.row.classifier, cell.row.method) == ("average", "upper_bound")
    )
    return cell


def test_an_average_is_that_of_the_rows_and_as_published_as_its_weakest() -> None:
    found = of_all_classifiers()
    assert len(found) == 13
    cell = average_of(found)
    assert cell.result is not None
    assert cell.result.ours == pytest.approx(0.7)  # of .1 to 1.3
    assert cell.status == Status.PUBLISHED
    assert cell.reason == A1.run("real_quick").notes
    weaker = dataclasses.replace(found[3], preset=str(Preset.REDUCED), reason="on fewer images")
    cell = average_of([*found[:3], weaker, *found[4:]])
    assert cell.status == Status.REDUCED
    assert cell.reason.startswith("on fewer images; ")


def test_no_average_while_a_classifier_is_missing_and_none_from_a_run() -> None:
    row = next(row for row in A1.rows if row.classifier == "average")
    run = A1.run("real_quick")
    every = dataclasses.replace(run, cells=dataclasses.replace(run.cells, values={}))
    number = measured(0.9, classifier="average", protocol="G", epsilon=row.epsilon)
    assert results_of(A1, every, Preset.PUBLISHED, [number], FACTS) == []
    cell = average_of(of_all_classifiers()[1:])
    assert cell.status == Status.NOT_RUN
    assert cell.reason == "an average needs the numbers of all classifiers"
