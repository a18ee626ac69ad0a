"""The seal of a run shows a changed, added or missing result file, and who sealed it."""

from __future__ import annotations

import json

import certified
import pytest

from fedsynth.core.errors import UserError
from fedsynth.experiment.run_seal import SEAL, seal_problems, seal_run, server_key
from fedsynth.privacy.certificate.canonical import rendered, sealed
from fedsynth.storage.run_directory import RunDirectory

OF_REPORT = ("report.html", "comparison.md", "figures/parties.png")


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    made = RunDirectory.create(tmp_path / "run")
    made.write_config({"unit": "record"})
    made.add_metrics([("psg", 1.0, 0, 1, "accuracy", 0.5)])
    made.write_text("releases/a/stage-1.npz", "content")
    for name in OF_REPORT:
        made.write_text(name, "0.5")
    seal_run(made, 3)
    return made


def test_a_sealed_run_holds(run: RunDirectory) -> None:
    assert seal_problems(run, {}) == []
    assert seal_problems(run, {server_key(run.path, 3).public: "server"}) == []


def test_a_changed_cell_is_found(run: RunDirectory) -> None:
    text = (run.path / "metrics.csv").read_text()
    (run.path / "metrics.csv").write_text(text.replace("0.5", "0.6"))
    assert seal_problems(run, {}) == ["metrics.csv was changed after the run."]


@pytest.mark.parametrize("name", OF_REPORT)
def test_a_changed_file_of_the_report_is_found(run: RunDirectory, name: str) -> None:
    (run.path / name).write_text("0.9")
    assert seal_problems(run, {}) == [f"{name} was changed after the run."]


def test_added_and_removed_files_are_found(run: RunDirectory) -> None:
    run.write_text("releases/a/stage-2.npz", "more")
    (run.path / "releases/a/stage-1.npz").unlink()
    assert seal_problems(run, {}) == [
        "releases/a/stage-1.npz was changed after the run.",
        "releases/a/stage-2.npz was added after the run.",
    ]


def test_a_seal_by_another_key_is_found_by_who_knows_the_servers(run: RunDirectory) -> None:
    body = json.loads((run.path / SEAL).read_bytes())["body"]
    run.write_bytes(SEAL, rendered(sealed(body, certified.forger())))
    assert seal_problems(run, {}) == []
    (text,) = seal_problems(run, {server_key(run.path, 3).public: "server"})
    assert "not the server's key" in text


def test_a_damaged_or_missing_seal_is_found(run: RunDirectory) -> None:
    run.write_bytes(SEAL, (run.path / SEAL).read_bytes().replace(b"fedsynth run", b"fedsynth fun"))
    (text,) = seal_problems(run, {})
    assert "signature" in text
    run.write_bytes(SEAL, rendered(sealed({"form": "another"}, certified.forger())))
    assert len(seal_problems(run, {})) == 1
    (run.path / SEAL).unlink()
    with pytest.raises(UserError, match="never sealed"):
        seal_problems(run, {})
