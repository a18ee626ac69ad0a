"""The fake method as apps for real nodes: the server writes the answers to a file."""

from __future__ import annotations

import json
from pathlib import Path

import fakes

from fedsynth.core.messages import Request
from fedsynth.engine.client_app import make_client_app
from fedsynth.engine.messages import PartyFailed
from fedsynth.engine.server_app import Ask, make_server_app


def serve(job: str, ask: Ask, *_: object) -> None:
    """One round of both parties, and one that breaks something in one of them."""
    heard = fakes.plain(ask([1, 0], 2, Request()))
    error = ""
    try:
        ask([0], 2, Request(kind="reveal"))
    except PartyFailed as failure:
        error = str(failure)
    Path(json.loads(job)["out"]).write_text(json.dumps([heard, error]))


client_app = make_client_app(fakes.answer)
server_app = make_server_app(serve)
