"""The command as a user meets it: what it prints, what it leaves behind, what it refuses."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from tiny_runs import ROOT, TINY, outputs

from fedsynth.cli import run
from fedsynth.cli.run import main
from fedsynth.data import registry as datasets
from fedsynth.data.fetch import registries as clients
from fedsynth.experiment.scenario_files import scenario_files
from fedsynth.methods.registry import all_methods
from fedsynth.privacy.ledger import read_entries
from fedsynth.storage.metrics import Metric


@pytest.fixture(autouse=True)
def at_home(tmp_path, monkeypatch):
    """A folder of its own to work in; scenarios come with the package."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDSYNTH_DATA", raising=False)


@pytest.fixture
def no_data(monkeypatch, tmp_path_factory):
    """An empty data directory, and nowhere to get data from."""

    def unreachable(*_: object) -> None:
        raise clients.Unavailable("there is no network in this test")

    monkeypatch.setenv("FEDSYNTH_DATA", str(tmp_path_factory.mktemp("empty")))
    for way in ("torchvision_mirrors", "npm", "apt"):
        monkeypatch.setattr(clients, way, unreachable)


def run_command(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "fedsynth.run", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


# What there is, and what it would cost


def test_help_explains_every_key(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert "python -m fedsynth.run scenario=split_mnist" in text
    for name, some in all_methods().items():
        assert some.summary.split()[0] in text
        for key in some.Config.__dataclass_fields__:
            assert f"{name}.{key}=" in text
    keys = [line for line in text.splitlines() if re.match(r"  [a-z_.]+=", line)]
    assert len(keys) > 40
    undocumented = [line for line in keys if not re.match(r"\s+\S+\s+\S", line)]
    assert not undocumented
    assert max(map(len, text.splitlines())) <= 100


def test_the_list_has_a_line_for_everything(capsys):
    assert main(["--list"]) == 0
    text = capsys.readouterr().out
    for name in (*all_methods(), *scenario_files(), *datasets.names(), "dirichlet", "iid"):
        assert re.search(rf"^  {name}\s+\S", text, re.MULTILINE), name


@pytest.mark.usefixtures("no_data")
def test_the_plan_reads_no_data_and_leaves_nothing(capsys, tmp_path):
    words = ["scenario=split_mnist", "preset=paper", "method=ldpdc,upper_bound", "epsilon=10"]
    words += ["evaluation.width=4", "evaluation.max_images=50"]
    assert main(["--plan", *words]) == 0
    text = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")[1:]] for line in text.splitlines()]
    rows = [row for row in rows if row[:1] == ["ldpdc"]]
    assert len(rows) == 5
    published = datasets.find("mnist").class_counts()
    for row, pair in zip(rows, [(5, 6), (1, 2), (0, 8), (9, 3), (4, 7)], strict=True):
        assert f"{sum(published[c] for c in pair):,}" in row
        assert f"{50 / min(published[c] for c in pair):.5f}" in row
        assert row[1] == "10"
        assert 9.99 < float(row[11]) <= 10  # the paper's preset counts as its authors do
        assert float(row[9]) < float(row[11])
    assert text.count(" inf ") >= 5
    for heading in ("noise", "PLD", "RDP", "paper", "up", "down", "time", "delta", "public"):
        assert heading in text
    assert not list(tmp_path.iterdir())


# A whole run

GRID = ["method=ldpdc,dp_sgd,upper_bound", "epsilon=1,10", "seed=0,1"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run to the end, on a grid of methods, budgets and seeds."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert main([*TINY, *GRID, f"out={folder}", "--quiet"]) == 0
    return folder


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_lists_make_a_grid(finished):
    jobs = {(row["method"], row["epsilon"], row["seed"]) for row in rows_of(finished)}
    private = {(m, e, s) for m in ("ldpdc", "dp_sgd") for e in ("1.0", "10.0") for s in "01"}
    assert jobs == private | {("upper_bound", "inf", s) for s in "01"}


def test_the_metrics_are_tidy(finished):
    rows = rows_of(finished)
    assert list(rows[0]) == list(Metric._fields)
    for row in rows:  # every row says what its epsilon means
        assert (row["unit"], row["delta"], row["view"]) == ("record", "0.001", "server")
        assert row["relation"] == "add_remove"
    accuracy = [row for row in rows if row["metric"] == "accuracy"]
    assert len(accuracy) == 10 * 2
    assert all(0 <= float(row["value"]) <= 1 for row in accuracy)
    spent = {row["method"]: float(row["value"]) for row in rows if row["metric"] == "epsilon_pld"}
    assert spent["upper_bound"] == float("inf")
    for row in rows:
        if row["metric"] == "epsilon_pld":
            assert float(row["value"]) <= float(row["epsilon"]) * (1 + 1e-6)
    assert {"forgetting", "average_accuracy"} <= {row["metric"] for row in rows}


def test_the_configuration_is_whole_and_the_environment_named(finished):
    config = yaml.safe_load((finished / "config.yaml").read_text())
    assert config["method"] == ["ldpdc", "dp_sgd", "upper_bound"]
    assert config["ldpdc"] == {"spc": 2, "group": 50, "noise": None}
    assert config["parties"] == 2
    environment = json.loads((finished / "environment.json").read_text())
    assert {"command", "python", "packages", "cpus"} <= set(environment)
    assert environment["command"].startswith("python -m fedsynth.run data=shapes")


def test_the_ledger_verifies_and_covers_every_party(finished, tmp_path):
    lines = (finished / "ledger.jsonl").read_text().splitlines(keepends=True)
    chains: dict[tuple[str, int], list[str]] = {}
    for line in lines:
        entry = json.loads(line)
        chains.setdefault((entry["job"], entry["party"]), []).append(line)
    assert len(chains) == 10 * 2
    for (job, party), chain in chains.items():
        copy = tmp_path / f"{job}-{party}.jsonl"
        copy.write_text("".join(chain))
        assert len(read_entries(copy)) == len(chain)


def test_releases_open_without_pickle_and_have_pictures(finished):
    sets = sorted(finished.glob("releases/ldpdc-*/stage-*.npz"))
    models = sorted(finished.glob("releases/dp_sgd-*/model-*.npz"))
    assert len(sets) == len(models) == 8
    for path in sets:
        with np.load(path, allow_pickle=False) as archive:
            assert archive["images"].shape == (10, 1, 28, 28)
            assert archive["labels"].tolist() == sorted(archive["labels"].tolist())
        assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    with np.load(models[0], allow_pickle=False) as archive:
        assert all(np.isfinite(archive[name]).all() for name in archive.files)
    assert not (finished / "disclosed").exists(), "the reference's raw records were kept"
    assert not list(finished.rglob("noise.key"))
    assert not list(finished.rglob("*.checkpoint*"))
    assert not list(finished.rglob(".*"))


def test_the_report_needs_no_network(finished):
    page = (finished / "report.html").read_text()
    for target in re.findall(r"""(?:src|href)\s*=\s*["']([^"']*)""", page):
        if not target.startswith(("data:", "#")):
            assert not Path(target).is_absolute()
            assert (finished / target).is_file(), target
    assert not re.search(r"@import|url\((?!['\"]?data:)", page)
    for name in ("ldpdc", "dp_sgd", "upper_bound", "class-incremental", "noise_seed"):
        assert name in page
    assert list((finished / "figures").glob("*.png"))
    assert (finished / "log.txt").read_text()


def test_a_finished_run_is_not_overwritten_and_resumes_to_itself(finished, capsys):
    before = {p: p.read_bytes() for p in finished.rglob("*") if p.is_file()}
    assert main([*TINY, *GRID, f"out={finished}"]) == 2
    assert f"--resume {finished}" in capsys.readouterr().err
    assert main(["--resume", str(finished), "--quiet"]) == 0
    unchanged = ("log.txt", "report.html")  # these tell the time
    for path, content in before.items():
        assert path.name in unchanged or path.read_bytes() == content, path
    assert "report:" in capsys.readouterr().out


def test_the_same_run_from_a_shell_on_ray_is_the_same(finished, tmp_path):
    """Another process, other workers, the default run directory: the same bytes."""
    words = [word for word in TINY if not word.startswith("engine=")]
    done = run_command(*words, *GRID, "engine=ray", "workers=2")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert re.search(r"^report: (runs/split_mnist-laptop-1/report\.html)$", done.stdout, re.M)
    mine = tmp_path / "runs" / "split_mnist-laptop-1"
    assert outputs(mine) == outputs(finished)


def test_flowers_own_simulation_gives_the_same(tmp_path):
    """Slow, and the reference the grids of this project are held against."""
    words = [word for word in TINY if not word.startswith("engine=")]
    words += ["method=ldpdc", "epsilon=10", "accounting=rdp"]
    assert main([*words, "engine=inprocess", "out=here", "--quiet"]) == 0
    done = run_command(*words, "engine=flower", "workers=2", "out=there")
    assert done.returncode == 0, done.stderr
    assert outputs(tmp_path / "here") == outputs(tmp_path / "there")


# What is refused


def refused(words: list[str], capsys, tmp_path: Path) -> str:
    """The one message; nothing else may have happened."""
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert re.match(r"(note: .*\n)*error: ", said.err)
    assert said.err.count("error: ") == 1
    assert "Traceback" not in said.err
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")} == before
    return said.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--plam"], r"unknown option '--plam'\. Did you mean '--plan'\?"),
        (["--resume"], r"--resume needs the run directory"),
        (["--resume", "nowhere"], r"nowhere does not exist: there is no run there"),
        (["--resume", "."], r"is not a run directory"),
        (["metod=psg"], r"unknown key 'metod'\. Did you mean 'method'"),
        (["method=pgs"], r"unknown method 'pgs'\. Did you mean 'psg'"),
        (["scenario=spilt_mnist"], r"unknown scenario 'spilt_mnist'\. Did you mean 'split_mnist'"),
        (["data=mnits"], r"unknown data set 'mnits'\. Did you mean 'mnist'"),
        (["preset=tiny"], r"preset='tiny' is unknown.*Allowed: smoke, laptop, paper"),
        (["psg.spc=many"], r"psg\.spc='many' is not a whole number"),
        (["epsilon=0"], r"epsilon=0\.0 must be above 0"),
        (["delta=2"], r"delta=2\.0 must be below 1"),
        (["parties=20"], r"10 classes cannot be cut into 20 equal blocks"),
        (["partition=shards", "options=", "parties=9000"], r"leaves party \d+ without records"),
        (
            ["method=ldpdc", "epsilon=1e9", "accounting=rdp"],
            r"epsilon=1e\+09 must be at most 10,000",
        ),
        (["method=ldpdc", "num_gpus=100"], r"num_gpus: 100 GPUs are needed"),
        (["method=ldpdc", "address=auto"], r"address='auto' is for engine=ray only"),
        (
            ["method=ldpdc", "out=/dev/null/run"],
            r"cannot write /dev/null/run: a file is where a dir",
        ),
    ],
)
def test_bad_input_is_one_message_and_leaves_nothing(words, message, capsys, tmp_path):
    if not words[0].startswith("--"):
        given = {word.partition("=")[0] for word in words}
        words = [*(word for word in TINY if word.partition("=")[0] not in given), *words]
    assert re.search(message, refused(words, capsys, tmp_path))


def test_a_scenario_with_a_typo_is_named(capsys, tmp_path):
    Path("mine.yaml").write_text("data: shapes\nparites: 3\nmethod: [psg]\n")
    said = refused(["scenario=mine.yaml"], capsys, tmp_path)
    assert re.search(r"mine\.yaml: unknown key 'parites'\. Did you mean 'parties'", said)


@pytest.mark.usefixtures("no_data")
def test_without_network_and_data_it_says_what_was_tried(capsys, tmp_path):
    said = refused(["method=ldpdc", "engine=inprocess"], capsys, tmp_path)
    assert "the data set mnist cannot be had. Tried:" in said
    assert "data=shapes" in said


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize("damaged", ["train-images-idx3-ubyte", "t10k-labels-idx1-ubyte.gz"])
def test_a_truncated_file_is_named_and_left_alone(damaged, capsys, tmp_path):
    folder = tmp_path / "mine" / "mnist"
    folder.mkdir(parents=True)
    whole = gzip.compress(b"\0" * 100) if damaged.endswith(".gz") else b"\0" * 100
    (folder / damaged).write_bytes(whole[:20])
    (folder / ".lock").touch()
    words = ["method=ldpdc", "engine=inprocess", f"data_dir={folder.parent}"]
    said = refused(words, capsys, tmp_path)
    assert damaged in said
    assert "Delete it and run again" in said


def test_a_foreign_directory_is_not_written_to(capsys, tmp_path):
    Path("photos").mkdir()
    Path("photos/cat.png").write_bytes(b"cat")
    said = refused([*TINY, "method=ldpdc", "out=photos"], capsys, tmp_path)
    assert "out=photos is not empty and is not a run directory" in said


def test_the_plan_of_a_run_that_is_there_is_printed_and_nothing_is_done(finished, capsys):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    assert main(["--resume", str(finished), "--plan"]) == 0
    text = capsys.readouterr().out
    assert len(re.findall(r"│ ldpdc +│", text)) == 4  # two budgets, two stages
    assert before == {path: path.stat().st_mtime_ns for path in finished.rglob("*")}


def test_only_what_changes_no_result_may_be_given_on_resume(finished, capsys, tmp_path):
    said = refused(["--resume", str(finished), "epsilon=3"], capsys, tmp_path)
    assert "epsilon= cannot be changed on --resume" in said
    said = refused(["--resume", str(finished), "worker=3"], capsys, tmp_path)
    assert "Did you mean 'workers'?" in said


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129), ("SIGINT", 130)])
def test_a_signal_that_ends_a_run_is_in_the_exit_code(name, code, capsys, monkeypatch):
    def be_asked(*_: object) -> int:
        os.kill(os.getpid(), getattr(signal, name))
        time.sleep(60)
        return 0

    handlers = {number: signal.getsignal(number) for number in (*run.STOPS, signal.SIGINT)}
    monkeypatch.setattr(run, "_run", be_asked)
    for number in run.STOPS:  # this process may have been started to ignore one
        signal.signal(number, signal.SIG_DFL)
    try:
        assert main([]) == code
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert capsys.readouterr().err == "interrupted.\n"
