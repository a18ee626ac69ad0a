"""The states of parties on real nodes, as the server writes and `status` reads them."""

from __future__ import annotations

import pytest
import tiny_runs as tiny

from fedsynth.core.errors import UserError
from fedsynth.engine.server_app import ANSWERED, GONE, JOINED, REFUSING
from fedsynth.experiment import flower_apps, node_states
from fedsynth.experiment.node_states import PartyStates, read_failure, read_states, states_of


def test_the_last_event_and_the_number_of_answers_are_kept(tmp_path):
    job = tiny.tiny_job("psg", tmp_path)
    assert read_states(job) == {}
    states = PartyStates(job)
    states.observe(1, JOINED, "node 7")
    states.observe(0, ANSWERED, "'release' of stage 0")
    states.observe(0, ANSWERED, "'statement' of stage 0")
    states.observe(1, REFUSING, "party 1 refused (budget): too much")
    states.write()
    found = read_states(job)
    assert (found[0].event, found[0].answers) == (ANSWERED, 2)
    assert (found[1].event, found[1].answers) == (REFUSING, 0)
    assert "budget" in found[1].details


def test_bad_news_is_on_disk_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(node_states, "PAUSE", 1e9)
    job = tiny.tiny_job("psg", tmp_path)
    states = PartyStates(job)
    states.observe(2, GONE, "party 2 is gone")
    assert read_states(job)[2].event == GONE


def test_a_failed_job_is_booked_and_a_new_try_clears_it(tmp_path, monkeypatch):
    """`flwr run` itself ends with 0; the reason must outlive the SuperLink."""
    job = tiny.tiny_job("psg", tmp_path)

    def fail(*_: object) -> None:
        states_of(job.text()).observe(0, ANSWERED, "x")
        raise UserError("party 1 refused (budget): too much")

    monkeypatch.setattr(flower_apps, "serve_job", fail)
    with pytest.raises(UserError, match="budget"):
        flower_apps.serve_on_nodes(job.text(), None, None)
    assert read_failure(job) == "party 1 refused (budget): too much"
    assert read_states(job)[0].answers == 1
    monkeypatch.setattr(flower_apps, "serve_job", lambda *_: None)
    flower_apps.serve_on_nodes(job.text(), None, None)
    assert read_failure(job) == ""
