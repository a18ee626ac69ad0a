"""The result table as Markdown: every number of the summary, and what ± means."""

from __future__ import annotations

from fedsynth.cli.markdown_table import main, results_table
from fedsynth.experiment.evaluation_data import TEST_DATA
from fedsynth.report.summary import frame, summarise
from fedsynth.storage.metrics import Metric
from fedsynth.storage.run_directory import RunDirectory


def rows():
    metrics = [
        Metric(method, epsilon, seed, stage, "accuracy", 0.9 - stage / 10 + seed / 100)
        for method, epsilon in (("psg", 10.0), ("upper_bound", float("inf")))
        for seed in (0, 1)
        for stage in (1, 2)
    ]
    return summarise(frame(metrics))


def test_every_line_has_the_columns_of_the_head():
    head, rule, *body = results_table(rows(), TEST_DATA).split("\n\n")[0].splitlines()
    assert {line.count("|") for line in (head, rule, *body)} == {head.count("|")}
    assert "stage 2" in head
    assert len(body) == 2


def test_one_stage_has_no_column_of_forgetting():
    (row,) = summarise(frame([Metric("psg", 1.0, 0, 1, "accuracy", 0.5)]))
    head, rule, line = results_table([row], TEST_DATA).split("\n\n")[0].splitlines()
    assert head == "| method | budget ε | accuracy | ε PLD | ε RDP |"
    assert line.count("|") == rule.count("|") == head.count("|")
    assert "forgetting" in results_table(rows(), TEST_DATA)


def test_references_are_marked_and_the_spread_is_explained():
    text = results_table(rows(), TEST_DATA)
    assert "upper_bound (not private) | ∞" in text
    assert "| 0.805 ± 0.007 | 0.705 ± 0.007 |" in text
    assert text.endswith("over seeds.") or "over seeds" in text.splitlines()[-1]


def test_a_run_that_is_not_there_is_one_clear_message(tmp_path, capsys):
    assert main([str(tmp_path / "nothing")]) == 2
    assert "no run" in capsys.readouterr().err


def test_the_command_prints_the_table_of_a_run(tmp_path, capsys):
    run = RunDirectory.create(tmp_path / "run")
    run.write_config({"scenario": "x"})
    run.add_metrics([("psg", 1.0, 0, 1, "accuracy", 0.5)])
    assert main([str(run.path)]) == 0
    text = capsys.readouterr().out
    assert "| psg | 1 | 0.500 |" in text
    assert "hold-out" not in text
    run.write_config({"scenario": "x", "holdout": 5000})
    assert main([str(run.path)]) == 0
    assert "\n\naccuracy on a hold-out of the training data; " in capsys.readouterr().out


def test_runs_whose_epsilons_mean_something_else_are_named(tmp_path, capsys):
    runs = []
    for relation in ("add_remove", "replace_one"):
        run = RunDirectory.create(tmp_path / relation)
        run.write_config({"unit": "record", "relation": relation, "delta": 1e-5})
        meaning = "record", relation, 1e-5, "server"
        run.add_metrics([Metric("psg", 1.0, 0, 1, "epsilon_pld", 1.0, *meaning)])
        runs.append(str(run.path))
    assert main(runs) == 0
    out = capsys.readouterr().out
    assert "ε: delta=1e-05, unit record, neighbours: add or remove one, view server" in out
    assert "ε: delta=1e-05, unit record, neighbours: replace one, view server" in out
    assert out.count("differs from the first run in relation (replace_one, add_remove)") == 1
    assert "not converted, as there is no ledger" in out
