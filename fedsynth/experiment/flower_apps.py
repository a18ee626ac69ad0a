"""The Flower apps of fedsynth: what a FAB names and what every engine runs.

`client_app` answers requests inside a party, `server_app` runs a job's stages at the server. The
sessions behind them are imported when the first request arrives, so that starting a node is quick.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from fedsynth.core.messages import Release, Request
from fedsynth.engine.apps import Ask, make_client_app, make_server_app
from fedsynth.engine.base import Engine, open_engine


def session_answer(job: str, party: int, stage: int, request: Request) -> Release:
    """Answer one request inside a party."""
    from fedsynth.experiment.session import party_answer

    return party_answer(job, party, stage, request)


def session_conversation(job: str, ask: Ask) -> None:
    """Run all stages of a job at the server."""
    from fedsynth.experiment.session import conversation

    conversation(job, ask)


@contextlib.contextmanager
def open_job_engine(name: str, **settings: Any) -> Iterator[Engine]:
    """An engine that runs jobs; arguments as for `engine.base.open_engine`."""
    handlers = {"answer": session_answer, "conversation": session_conversation}
    with open_engine(name, **{**handlers, **settings}) as engine:
        yield engine


client_app = make_client_app(session_answer)
server_app = make_server_app(session_conversation)
