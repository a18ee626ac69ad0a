"""The apps of real nodes: code is imported only if the node itself was started with it."""

from __future__ import annotations

import json

import pytest

from fedsynth.core.errors import UserError
from fedsynth.core.messages import Request
from fedsynth.experiment import flower_apps
from fedsynth.experiment.flower_apps import NODE_PLUGINS, answer_on_node


@pytest.fixture
def answered(monkeypatch):
    calls = []
    monkeypatch.setattr(flower_apps, "answer_request", lambda *arguments: calls.append(arguments))
    return calls


def test_a_message_cannot_make_a_node_import_a_file(answered, monkeypatch, tmp_path):
    job = json.dumps({"plugins": [str(tmp_path / "code.py")]})
    monkeypatch.delenv(NODE_PLUGINS, raising=False)
    with pytest.raises(UserError, match="not started with"):
        answer_on_node(job, 0, 0, Request())
    monkeypatch.setenv(NODE_PLUGINS, str(tmp_path / "other.py"))
    with pytest.raises(UserError, match="not started with"):
        answer_on_node(job, 0, 0, Request())
    assert not answered


def test_a_plugin_that_the_node_was_started_with_is_allowed(answered, monkeypatch, tmp_path):
    job = json.dumps({"plugins": [str(tmp_path / "code.py")]})
    monkeypatch.setenv(NODE_PLUGINS, str(tmp_path / "code.py"))
    answer_on_node(job, 0, 0, Request())
    answer_on_node(json.dumps({}), 1, 0, Request())
    assert [arguments[1] for arguments in answered] == [0, 1]
