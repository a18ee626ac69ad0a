"""The apps of real nodes: the policy is that of the node's own configuration."""

from __future__ import annotations

import pytest

from fedsynth.core.errors import Refusal, Refused
from fedsynth.core.messages import Request
from fedsynth.engine.client_app import Node
from fedsynth.experiment import flower_apps
from fedsynth.experiment.flower_apps import PARTY_VARIABLE, answer_on_node


def test_the_policy_is_that_of_the_node_or_else_of_its_environment(monkeypatch):
    asked: list[Node] = []
    monkeypatch.setattr(flower_apps, "answer_request", lambda _, node, *__: asked.append(node))
    monkeypatch.setenv(PARTY_VARIABLE, "environment.yaml")
    answer_on_node("{}", Node(3, "node.yaml"), 0, Request())
    answer_on_node("{}", Node(4), 0, Request())
    assert asked == [Node(3, "node.yaml"), Node(4, "environment.yaml")]


def test_a_node_without_a_policy_answers_nothing(monkeypatch):
    monkeypatch.delenv(PARTY_VARIABLE, raising=False)
    with pytest.raises(Refused, match="this node has no policy") as caught:
        answer_on_node("{}", Node(0), 0, Request())
    assert caught.value.code is Refusal.POLICY
