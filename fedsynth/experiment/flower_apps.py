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
from fedsynth.engine.node_server import make_node_server_app
from fedsynth.engine.server_app import Ask, Compute, Observe, StageCallback, compute_here

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


def serve_on_nodes(
    job: str, ask: Ask, on_stage: StageCallback, compute: Compute = compute_here
) -> None:
    """Run all stages of a job at the server of real nodes; a failure is booked in the job's folder,
    because the SuperLink keeps a reason only for as long as it runs."""
    from fedsynth.experiment import node_states
    from fedsynth.experiment.job import Job

    parsed = Job.parse(job)
    node_states.failure_file(parsed).unlink(missing_ok=True)
    try:
        serve_job(job, ask, on_stage, compute)
    except Exception as error:
        node_states.write_failure(parsed, error)
        raise
    finally:
        node_states.states_of(job).write()


def observer_of(job: str) -> Observe:
    """The observer that writes what happens to the parties of a job into its folder."""
    from fedsynth.experiment.node_states import states_of

    return states_of(job).observe


client_app = make_client_app(answer_on_node)
server_app = make_node_server_app(serve_on_nodes, observer_of)
