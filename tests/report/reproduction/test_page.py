"""Pages of reproduced tables: counts, differences, commands and the file of all cells."""

from __future__ import annotations

import csv

from fedsynth.report.paper_comparison.matching import Measured
from fedsynth.report.reproduction.coverage import results_of, table_folder, write_results
from fedsynth.report.reproduction.page import COLUMNS, MISSES, write_coverage, write_table
from fedsynth.report.reproduction.recipes import Preset, recipe

TABLE = recipe("psg.table1b")


def fill(out, value: float) -> None:
    number = Measured(
        "mnist", "upper_bound", float("inf"), "", "convnet", "P", "accuracy", value, None, 10.0
    )
    facts = {"draws": 1, "command": "fedsynth run here", "commit": "abc", "seconds": 60.0}
    found = results_of(TABLE, TABLE.run("real_mnist_10"), Preset.PUBLISHED, [number], facts)
    write_results(table_folder(out, TABLE), found)


def test_a_table_shows_both_numbers_their_difference_and_the_command(tmp_path) -> None:
    fill(tmp_path, 0.95)
    text = write_table(tmp_path, TABLE).read_text()
    assert "| 0.936 | 0.950 | +0.014 | published |" in text
    assert "`fedsynth run here` at abc, 60 s" in text
    assert "Of 30 printed cells 1 were produced at the published setting" in text
    assert "real_mnist_20" in text.split("have not been made")[0]


def test_a_miss_is_marked(tmp_path) -> None:
    fill(tmp_path, 0.80)
    text = write_table(tmp_path, TABLE).read_text()
    assert "-0.136 (farther than the printed spread and two points)" in text


def test_experiments_on_misses_are_linked_where_there_are_any(tmp_path) -> None:
    assert MISSES not in write_coverage(tmp_path).read_text()
    (tmp_path / MISSES).write_text("# Why numbers differ")
    assert f"[Why numbers differ]({MISSES})" in write_coverage(tmp_path).read_text()


def test_all_cells_are_in_one_file(tmp_path) -> None:
    fill(tmp_path, 0.95)
    page = write_coverage(tmp_path).read_text()
    assert "[1b](psg/table1b/README.md)" in page
    with (tmp_path / "coverage.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == 1056
    (done,) = [row for row in rows if row["ours"]]
    assert (done["printed"], done["ours"], done["within"]) == ("0.936", "0.95", "True")
    assert all(row["reason"] or row["status"] == "published" for row in rows)
