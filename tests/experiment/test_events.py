import json
import time

import torch

from fedsynth.core.messages import Release, Request
from fedsynth.experiment.events import ROUND, peak_memory, recorded, send_event
from fedsynth.storage.message_log import MessageReader


def test_an_event_holds_its_start_its_seconds_its_process_and_memory(tmp_path):
    (tmp_path / "m").mkdir()
    send_event(tmp_path / "m", "answer", time.time() - 2.0, party=3)
    (event,) = MessageReader(tmp_path / "m").new()
    assert event["kind"] == "answer"
    assert event["party"] == 3
    assert 2.0 <= event["seconds"] < 3.0
    assert abs(event["start"] + event["seconds"] - time.time()) < 1.0
    assert 10**7 < event["memory"] <= peak_memory()
    json.dumps(event)


def test_each_round_is_an_event_with_the_bytes_of_its_arrays(tmp_path):
    def ask(parties, stage, request, missing=None):
        assert stage == 1
        return [Release(party, {"x": torch.zeros(10)}, ()) for party in parties][:2]

    (tmp_path / "m").mkdir()
    asked = recorded(ask, tmp_path / "m", "psg-eps1-seed0")
    request = Request("step", 7, {"y": torch.zeros(3, dtype=torch.int64)})
    assert len(asked([4, 5, 6], 1, request)) == 2
    assert len(asked([4, 5], 1, {4: request, 5: request}, {})) == 2
    assert asked([], 1, request) == []
    first, second = MessageReader(tmp_path / "m").new()
    assert (first["kind"], first["job"], first["stage"]) == (ROUND, "psg-eps1-seed0", 2)
    assert (first["round"], first["request"], first["parties"], first["answers"]) == (
        7,
        "step",
        3,
        2,
    )
    assert (first["bytes_down"], first["bytes_up"]) == (3 * 24, 2 * 40)
    assert (second["bytes_down"], second["parties"]) == (2 * 24, 2)
