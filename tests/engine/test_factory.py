"""Opening an engine: which one a name means, what is refused, and that it always ends."""

from __future__ import annotations

import fakes
import pytest

from fedsynth.core.errors import UserError
from fedsynth.engine.factory import open_engine
from fedsynth.engine.inprocess import InProcessEngine


def opened(name: str = "inprocess", **settings):
    """An engine with the fake parties, to be entered."""
    return open_engine(name, answer=fakes.answer, serve=lambda *_: None, **settings)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("inproces", {}, r"unknown engine 'inproces'.*Did you mean 'inprocess'\?"),
        ("ray", {"workers": 0}, r"workers=0: it must be 1 or more"),
        ("ray", {"num_cpus": -1}, r"num_cpus=-1: it must be 0 or more"),
        ("ray", {"num_gpus": float("nan")}, r"num_gpus=nan: it must be 0 or more"),
        ("inprocess", {"timeout": 0}, r"timeout=0: it must be more than 0 seconds"),
        ("flower", {"address": "auto"}, r"address='auto' is for engine=ray only, not flower"),
    ],
)
def test_a_setting_out_of_its_range_is_refused(name, settings, message):
    """Before Ray or Flower are started, which takes seconds."""
    with pytest.raises(UserError, match=message), opened(name, **settings):
        pytest.fail("an engine was opened")


def test_gpus_that_are_not_there_are_refused_at_once(monkeypatch):
    """Ray would wait for them without end."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    with pytest.raises(UserError, match="this machine"), opened("ray", workers=2, num_gpus=1):
        pytest.fail("an engine was opened")
    with opened(workers=2, num_gpus=1) as engine:  # one process, whatever `workers` says
        assert isinstance(engine, InProcessEngine)


def test_an_engine_is_closed_however_its_block_ends(monkeypatch):
    closed = []

    def close(self: InProcessEngine) -> None:
        closed.append(self)

    monkeypatch.setattr(InProcessEngine, "close", close)
    with opened() as engine:
        pass
    with pytest.raises(ZeroDivisionError), opened() as failed:
        _ = 1 / 0
    assert closed == [engine, failed]
