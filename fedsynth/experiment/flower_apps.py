"""The Flower apps of fedsynth: the ones that a FAB names and that every engine runs.

`client_app` answers requests inside a party, `server_app` runs a job's stages at the server. The
sessions behind them are imported with the first request, so that starting a node is quick.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from fedsynth.core.messages import Release, Request
from fedsynth.engine.base import Engine
from fedsynth.engine.client_app import Node, make_client_app
from fedsynth.engine.factory import open_engine
from fedsynth.engine.server_app import Ask, Compute, StageCallback, compute_here, make_server_app

PARTY_VARIABLE = "FEDSYNTH_PARTY"
"""The environment variable of a real node with the path of its `party.yaml`."""


def answer_request(proposal: str, node: Node, stage: int, request: Request) -> Release:
    """Answer one request inside a party; see `client_session`."""
    from fedsynth.experiment import client_session

    return client_session.answer_request(proposal, node, stage, request)


def serve_job(job: str, ask: Ask, on_stage: StageCallback, compute: Compute = compute_here) -> None:
    """Run all stages of a job at the server; see `server_session`."""
    from fedsynth.experiment import server_session

    server_session.serve_job(job, ask, on_stage, compute)


@contextlib.contextmanager
def open_job_engine(name: str, **settings: Any) -> Iterator[Engine]:
    """An engine that runs jobs; arguments as for `engine.factory.open_engine`."""
    handlers = {"answer": answer_request, "serve": serve_job}
    with open_engine(name, **{**handlers, **settings}) as engine:
        yield engine


def answer_on_node(proposal: str, node: Node, stage: int, request: Request) -> Release:
    """Answer one request on a real node, by the policy that its own configuration names:
    `--node-config 'party-config="PATH"'`, or else the environment variable FEDSYNTH_PARTY."""
    path = node.party_config or os.environ.get(PARTY_VARIABLE, "")
    return answer_request(proposal, Node(node.party, path), stage, request)


client_app = make_client_app(answer_on_node)
server_app = make_server_app(serve_job)
