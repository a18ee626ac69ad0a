"""Ray's dashboard and timeline: what is refused, and what a run leaves."""

from __future__ import annotations

import json
import operator
from pathlib import Path

import fakes
import pytest

from fedsynth.core.errors import UserError
from fedsynth.engine import ray_tools
from fedsynth.engine.factory import open_engine
from fedsynth.engine.ray_tools import TIMELINE_FILE, check_ray_tools


@pytest.mark.parametrize(
    ("tools", "engine", "address", "message"),
    [
        (["timelines"], "ray", None, r"unknown tool of Ray 'timelines'.*Did you mean 'timeline'"),
        (["timeline"], "inprocess", None, r"ray_tools=timeline is for engine=ray only"),
        (["dashboard"], "ray", "auto", r"has a dashboard of its own.*Allowed.*: timeline"),
        (["dashboard"], "ray", None, r"not installed: pip install 'fedsynth\[ray-dashboard\]'"),
    ],
)
def test_tools_that_do_not_fit_are_refused(monkeypatch, tools, engine, address, message):
    monkeypatch.setattr(ray_tools, "_DASHBOARD_PACKAGE", "a_package_that_nobody_has")
    with pytest.raises(UserError, match=message):
        check_ray_tools(tools, engine, address)


def test_tools_that_fit_are_taken(monkeypatch):
    monkeypatch.setattr(ray_tools, "_DASHBOARD_PACKAGE", "json")
    check_ray_tools(["dashboard", "timeline"], "ray", None)
    check_ray_tools(["timeline"], "ray", "auto")
    check_ray_tools([], "inprocess", None)


def test_the_timeline_holds_what_the_workers_did(tmp_path: Path):
    notes: list[str] = []
    shared = {"workers": 1, "num_cpus": 0}  # beside an engine that this process may have
    settings = {**shared, "tools": ["timeline"], "folder": tmp_path, "note": notes.append}
    serve = lambda *_: None  # noqa: E731
    with open_engine("ray", answer=fakes.answer, serve=serve, **settings) as engine:
        assert engine.submit(operator.add, 2, 3).result() == 5
    events = json.loads((tmp_path / TIMELINE_FILE).read_text(encoding="utf-8"))
    assert {"compute", "task:execute"} <= {event["name"] for event in events}
    assert any(TIMELINE_FILE in note for note in notes)


def test_an_error_waits_for_no_timeline(tmp_path: Path, monkeypatch):
    """Its own message and a quick end matter more."""
    monkeypatch.setattr("fedsynth.engine.factory.write_timeline", lambda _: pytest.fail("written"))
    shared = {"workers": 1, "num_cpus": 0}
    settings = {**shared, "tools": ["timeline"], "folder": tmp_path}
    serve = lambda *_: None  # noqa: E731
    with (
        pytest.raises(KeyboardInterrupt),
        open_engine("ray", answer=fakes.answer, serve=serve, **settings),
    ):
        raise KeyboardInterrupt
