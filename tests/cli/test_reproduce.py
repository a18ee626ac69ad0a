"""The command that reproduces tables: which commands it starts, and that it continues."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from fedsynth.api.evaluation import other_evaluation
from fedsynth.cli import reproduce
from fedsynth.cli.evaluate import evaluation_words
from fedsynth.cli.reproduce import Reproduction, main
from fedsynth.core.errors import UserError
from fedsynth.experiment.config import parse_overrides, resolve
from fedsynth.experiment.experiment import Experiment
from fedsynth.experiment.reevaluation import Reevaluation
from fedsynth.report.reproduction.coverage import read_results, table_folder
from fedsynth.report.reproduction.recipes import Preset, recipe
from fedsynth.storage.files import write_file
from fedsynth.storage.metrics import MetricsFile
from fedsynth.storage.run_directory import METRICS, REPORT, RunDirectory

MERF = ("dp_merf", 10.0, 0, 1)


class Commands:
    """In place of `fedsynth`: writes what a run and an evaluation leave."""

    def __init__(self, failing: Sequence[int] = ()) -> None:
        self.calls: list[tuple[str, ...]] = []
        self._failing = failing

    def __call__(self, words: Sequence[str]) -> int:
        self.calls.append(tuple(words))
        if words[0] == "run" and words[1] != "--resume":
            config = resolve(parse_overrides([word for word in words[1:] if "=" in word]))
            run = RunDirectory.create(Path(str(config.run.out)))
            run.write_config(config.as_dict())
        else:
            run = RunDirectory(Path(words[2] if words[0] == "run" else words[1]))
        if len(self.calls) in self._failing:
            return 2
        if words[0] == "evaluate":
            config = other_evaluation(run, parse_overrides(evaluation_words(words[2:])))
            folder = Reevaluation(run, Experiment.of(config, run.path)).folder
            rows = MetricsFile(folder / METRICS)
            (folder).mkdir(parents=True)
            rows.add([(*MERF, "accuracy_P_convnet", 0.81), (*MERF, "images", 60_000)])
        else:
            run.add_metrics([(*MERF, "accuracy_P_convnet", 0.85), (*MERF, "images", 60_000)])
            run.add_metrics([(*MERF, "seconds_release", 12.0)])
            write_file(run.path / REPORT, b"done")
        return 0


def reproduction(folder: Path, name: str = "psg.table1a") -> Reproduction:
    return Reproduction(recipe(name), Preset.PUBLISHED, folder / "results", folder / "runs")


def test_a_run_is_made_once_and_its_numbers_are_kept(tmp_path: Path) -> None:
    work, commands = reproduction(tmp_path), Commands()
    runs = [work.recipe.run("dp_merf_mnist")]
    assert work.execute(runs, commands) == []
    (found,) = read_results(table_folder(work.out, work.recipe))
    assert (found.ours, found.seconds, found.preset) == (0.85, 12.0, "published")
    assert found.command.startswith("fedsynth run scenario=classification preset=paper")
    assert str(tmp_path) not in found.command
    assert work.execute(runs, commands) == []
    assert len(commands.calls) == 1


def test_a_planned_epsilon_needs_no_run(tmp_path: Path) -> None:
    work, commands = reproduction(tmp_path, "dpdc.tableIV"), Commands()
    assert work.execute([work.recipe.run("dp_merf_epsilon")], commands) == []
    assert commands.calls == []
    (found,) = read_results(table_folder(work.out, work.recipe))
    assert found.ours == pytest.approx(11.6, abs=0.01)
    assert found.command.endswith(" --plan")
    assert (found.preset, found.reason, found.seconds) == ("published", "", 0.0)


def test_an_interrupted_run_is_resumed(tmp_path: Path) -> None:
    work, commands = reproduction(tmp_path), Commands(failing=[1])
    runs = [work.recipe.run("dp_merf_mnist")]
    assert work.execute(runs, commands) == ["dp_merf_mnist"]
    assert read_results(table_folder(work.out, work.recipe)) == []
    assert work.execute(runs, commands) == []
    assert commands.calls[1][:2] == ("run", "--resume")


def test_the_engine_is_passed_on_and_is_no_part_of_the_command(tmp_path: Path) -> None:
    work = dataclasses.replace(
        reproduction(tmp_path, "psg.table1b"), engine=("engine=inprocess", "workers=1")
    )
    commands = Commands(failing=[1])
    runs = [work.recipe.run("dp_merf_mnist_10")]
    assert work.execute(runs, commands) == ["dp_merf_mnist_10"]
    assert work.execute(runs, commands) == []
    assert commands.calls[1][:2] == ("run", "--resume")
    assert all({"engine=inprocess", "workers=1"} <= set(call) for call in commands.calls)
    (found,) = read_results(table_folder(work.out, work.recipe))
    assert "engine" not in found.command


def test_one_failure_does_not_end_the_others(tmp_path: Path) -> None:
    work, commands = reproduction(tmp_path), Commands(failing=[1])
    runs = [work.recipe.run("dp_merf_fashion"), work.recipe.run("dp_merf_mnist")]
    assert work.execute(runs, commands) == ["dp_merf_fashion"]
    assert len(read_results(table_folder(work.out, work.recipe))) == 1


def test_an_evaluation_makes_the_run_that_it_needs(tmp_path: Path) -> None:
    work, commands = reproduction(tmp_path, "psg.table1b"), Commands()
    assert work.execute([work.recipe.run("dp_merf_mnist_20")], commands) == []
    assert [call[0] for call in commands.calls] == ["run", "evaluate"]
    (found,) = read_results(table_folder(work.out, work.recipe))
    assert (found.ours, found.reason, found.key.spc) == (0.81, "", "20")
    assert "images_per_class=20" in found.command


def test_a_reduced_evaluation_reads_the_published_release_if_that_has_no_reduced_form(
    tmp_path: Path,
) -> None:
    work = dataclasses.replace(reproduction(tmp_path, "psg.table1b"), preset=Preset.REDUCED)
    commands = Commands()
    assert work.execute([work.recipe.run("dp_merf_mnist")], commands) == []
    made, judged = commands.calls
    assert any("published/dp_merf_mnist_10" in word for word in made)
    assert "max_images=20000" in judged
    (found,) = read_results(table_folder(work.out, work.recipe))
    assert found.reason == "each classifier once, on 20,000 images in batches of 16"
    assert (found.preset, found.key.spc) == ("reduced", "6000")


class GSWGAN(Commands):
    """A run of GS-WGAN that costs so much by the paper's count."""

    def __init__(self, counted: float) -> None:
        super().__init__()
        self.counted = counted

    def __call__(self, words: Sequence[str]) -> int:
        super().__call__(words)
        (out,) = (word.removeprefix("out=") for word in words if word.startswith("out="))
        job = ("gs_wgan", 571.0, 0, 1)
        RunDirectory(Path(out)).add_metrics(
            [(*job, "accuracy_G_cnn", 0.6), (*job, "epsilon_paper", self.counted)]
        )
        return 0


def test_numbers_stand_at_the_epsilon_that_the_paper_counts(tmp_path: Path) -> None:
    work = reproduction(tmp_path, "gs_wgan.tableA1")
    assert work.execute([work.recipe.run("gs_wgan")], GSWGAN(10.05)) == []
    (found,) = read_results(table_folder(work.out, work.recipe))
    assert (found.ours, found.key.epsilon, found.key.classifier) == (0.6, "10", "cnn")


def test_a_run_that_costs_more_by_the_papers_count_stands_nowhere(tmp_path: Path) -> None:
    work = reproduction(tmp_path, "gs_wgan.tableA1")
    with pytest.raises(UserError, match="costs epsilon 12, more than the printed 10"):
        work.execute([work.recipe.run("gs_wgan")], GSWGAN(12.0))
    assert read_results(table_folder(work.out, work.recipe)) == []


def test_a_reduced_form_leaves_out_evaluations_that_have_none() -> None:
    _, runs = reproduce._chosen(["psg.table2"], {"preset": "reduced"})
    names = [run.name for run in runs]
    assert {"dp_merf_mnist", "real_mnist", "psg_mnist_20"} <= set(names)
    _, runs = reproduce._chosen(["psg.table1b"], {"preset": "reduced"})
    assert "dp_merf_mnist_20" not in [run.name for run in runs]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["psg.tabel1a"], "unknown recipe 'psg.tabel1a'. Did you mean 'psg.table1a'?"),
        (["psg.table1a", "preset=full"], "unknown preset 'full'"),
        (["psg.table1a", "cells=psg_mnist"], "unknown run of psg.table1a 'psg_mnist'"),
        (
            ["dpdc.tableI", "cells=ndpdc_mnist,dp_merf_mnist", "preset=reduced"],
            "no reduced form in dpdc.tableI: dp_merf_mnist. preset=published runs",
        ),
        (["psg.table1a", "cell=x"], "unknown key 'cell'. Did you mean 'cells'?"),
        (["--plna"], "unknown option '--plna'"),
        (["preset=reduced"], "name one recipe"),
    ],
)
def test_mistakes_are_named(words: list[str], message: str, capsys) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_the_list_and_the_coverage_need_no_run(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(reproduce, "in_a_process", None)  # nothing may be started
    assert main(["--list", f"out={tmp_path}"]) == 0
    assert "psg.table1a" in capsys.readouterr().out
    assert main(["--coverage", f"out={tmp_path}"]) == 0
    assert (tmp_path / "coverage.csv").is_file()
    assert (tmp_path / "psg/table1a/README.md").is_file()
