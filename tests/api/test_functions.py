"""The functions of the API on one tiny run, and the errors of a caller."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import ROOT

import fedsynth
from fedsynth.api.run_result import RunResult
from fedsynth.cli.run import main
from fedsynth.core.errors import UserError
from fedsynth.storage.metrics import MetricsFile

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

KEYS: dict[str, Any] = {
    "data": "shapes",
    "parties": 2,
    "holdout": 1600,
    "method": "ldpdc",
    "epsilon": 10,
    "delta": 1e-3,
    "engine": "inprocess",
    "noise_seed": 3,
    "ldpdc.spc": 2,
    "evaluation": {"width": 4, "nets": 1, "max_images": 50},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """A finished tiny run."""
    return fedsynth.run("split_mnist", out=tmp_path_factory.mktemp("api") / "run", **KEYS)


def test_a_run_is_that_of_the_command_line(run: RunResult, tmp_path: Path) -> None:
    nested = {**KEYS, **{f"evaluation.{k}": v for k, v in KEYS["evaluation"].items()}}
    nested.pop("evaluation")
    words = [f"{key}={value}" for key, value in nested.items()]
    assert main(["scenario=split_mnist", *words, f"out={tmp_path / 'cli'}", "--quiet"]) == 0
    for name in ("metrics.csv", "ledger.jsonl"):
        assert (run.path / name).read_bytes() == (tmp_path / "cli" / name).read_bytes()


def test_remarks_are_warnings_that_name_the_line_of_the_caller(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="noise_seed=3") as given:
        fedsynth.run("split_mnist", out=tmp_path / "run", **KEYS)
    assert Path(given[0].filename) == Path(__file__)


def test_resuming_a_finished_run_changes_nothing(run: RunResult) -> None:
    before = (run.path / "metrics.csv").read_bytes()
    assert fedsynth.resume(run.path, engine="inprocess").finished
    assert (run.path / "metrics.csv").read_bytes() == before
    with pytest.raises(UserError, match="cannot be changed"):
        fedsynth.resume(run.path, epsilon=3)


def test_the_plan_has_a_row_per_party_and_view_and_fits_the_run(run: RunResult) -> None:
    plan = fedsynth.plan("split_mnist", **KEYS)
    assert plan["party"].tolist() == [0, 1]
    assert plan["stage"].tolist() == [1, 2]
    assert plan["records"].sum() == 400
    metrics = run.metrics.set_index(["metric", "stage"])["value"]
    for row in plan.itertuples():
        assert row.epsilon_pld == pytest.approx(metrics["epsilon_pld", row.stage])


def test_a_run_and_its_release_are_evaluated_anew(run: RunResult) -> None:
    other = fedsynth.evaluate(run, classifier="mlp", engine="inprocess")
    assert "accuracy_P_mlp" in set(other["metric"])
    assert set(other["stage"]) == {2}
    keys = {"classifier": "mlp", "nets": 1, "max_images": 50}
    rows = fedsynth.evaluate(run.releases["ldpdc"], **keys)  # its data are those of the run
    assert "accuracy_P_mlp" in set(rows["metric"])
    path = run.releases["ldpdc"].path
    with pytest.raises(UserError, match="data=NAME"):
        fedsynth.evaluate(path, **keys)
    with pytest.raises(UserError, match="not a key"):
        fedsynth.evaluate(run, clasifier="mlp")


def test_load_opens_runs_and_releases(run: RunResult, tmp_path: Path) -> None:
    loaded = fedsynth.load(run.path)
    assert isinstance(loaded, RunResult)
    assert len(loaded.metrics) == len(MetricsFile(run.path / "metrics.csv").read()) + len(
        MetricsFile(run.path / "timings.csv").read()
    )
    assert not fedsynth.load(run.releases["ldpdc"].path).is_model
    for use in (fedsynth.load, fedsynth.resume, fedsynth.evaluate):
        with pytest.raises(UserError, match="path=5 is not a path"):
            use(5)  # type: ignore[arg-type]
    for wrong in (tmp_path, tmp_path / "none", run.path / "config.yaml"):
        with pytest.raises(UserError):
            fedsynth.load(wrong)


def test_a_notebook_shows_what_a_release_promises(run: RunResult, tmp_path: Path) -> None:
    page = run.releases["ldpdc"]._repr_html_()
    for words in ("server 10", "delta=0.001", "unit record", "relation add_remove"):
        assert words in page
    keys = {**KEYS, "method": "gradient_matching", "gradient_matching": {"runs": 1, "outer": 1}}
    keys.pop("ldpdc.spc")
    reference = fedsynth.run("split_mnist", out=tmp_path / "run", **keys)
    assert "inf" in reference.releases["gradient_matching"]._repr_html_()
    file = run.releases["ldpdc"].path
    (tmp_path / file.name).write_bytes(file.read_bytes())
    assert "no certificate" in fedsynth.load(tmp_path / file.name)._repr_html_()


@pytest.mark.parametrize(
    ("scenario", "keys", "message"),
    [
        ("split_mnst", {}, "Did you mean 'split_mnist'"),
        ("split_mnist", {"metod": "psg"}, "unknown key 'metod'"),
        ("split_mnist", {"method": "psgg"}, "unknown method"),
        ("split_mnist", {"epsilon": 0}, "epsilon"),
        ("split_mnist", {"psg": {"scp": 1}}, "Did you mean 'spc'"),
        ("split_mnist", {"psg.spc": 1, "psg": {"spc": 2}}, "given twice"),
    ],
)
def test_wrong_keys_are_refused_before_anything_is_written(
    scenario: str, keys: dict, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        fedsynth.plan(scenario, **keys)
    with pytest.raises(UserError, match=message):
        fedsynth.run(scenario, out=tmp_path / "run", **keys)
    assert not list(tmp_path.iterdir())


def test_run_can_be_called_after_its_module_is_imported() -> None:
    """`fedsynth.run` is the function, and the module of `python -m fedsynth.run` as well."""
    code = """
import fedsynth, sys
assert not {"torch", "pandas", "numpy"} & set(sys.modules)
first = fedsynth.run
import fedsynth.run as module
assert module.main and first is not module
for call in (first, fedsynth.run, module):
    try:
        call("no such scenario")
    except fedsynth.UserError as error:
        assert "unknown scenario" in str(error)
    else:
        raise SystemExit("not refused")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
