"""Real SuperLink and SuperNode processes: the same bits, the same silence about errors."""

from __future__ import annotations

import json
import sys

import fakes
import psutil
import pytest

from fedsynth.cli.nodes import main, rehearse
from fedsynth.core.errors import UserError
from fedsynth.core.messages import Request


def test_real_nodes_give_the_same_bits(local_stage, tmp_path):
    """One SuperLink, two SuperNodes, `flwr run`: as in one process; and nothing is left behind."""
    out, job = tmp_path / "out.json", tmp_path / "job.json"
    job.write_text(json.dumps({"seed": 1, "out": str(out)}))
    before = set(psutil.Process().children(recursive=True))
    rehearse(job, 2, proposal=job.read_text(), timeout=200, apps="nodes_apps")
    heard, error = json.loads(out.read_text())
    expected: list = []
    local_stage.play(lambda ask: expected.extend(ask([1, 0], 2, Request())), parties=2)
    assert heard == fakes.plain(expected)
    assert error == "party 0 failed: internal; see its log"
    assert set(psutil.Process().children(recursive=True)) <= before


def test_the_app_folder_names_the_real_apps(tmp_path, monkeypatch):
    """The folder for `flwr run` leads to the apps, and holds nothing else."""
    assert main(["app", str(tmp_path / "app")]) == 0
    files = sorted(p.name for p in (tmp_path / "app").rglob("*") if p.is_file())
    assert files == ["__init__.py", "pyproject.toml"]
    monkeypatch.syspath_prepend(tmp_path / "app")
    monkeypatch.delitem(sys.modules, "fedsynthapp", raising=False)
    import fedsynthapp

    from fedsynth.experiment import flower_apps as apps

    assert fedsynthapp.client_app is apps.client_app
    assert fedsynthapp.server_app is apps.server_app


def test_a_failed_run_is_an_error_with_flowers_words(tmp_path):
    """Not a silent end: `flwr run` itself would leave with 0."""
    app = tmp_path / "broken_apps.py"
    app.write_text("client_app = server_app = None\n")
    sys.path.insert(0, str(tmp_path))
    try:
        with pytest.raises(UserError, match="finished:failed"):
            rehearse(tmp_path / "job.json", 0, proposal="{}", apps="broken_apps")
    finally:
        sys.path.remove(str(tmp_path))
