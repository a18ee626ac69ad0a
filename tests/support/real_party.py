"""A party as a real node runs it: Flower's messages go in, Flower's messages come out."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tiny_runs as tiny
from flwr.app import Context, Message, RecordDict

from fedsynth.core.errors import Refusal
from fedsynth.core.messages import Release, Request
from fedsynth.core.types import Budget
from fedsynth.engine.client_app import PARTY_CONFIG, make_client_app
from fedsynth.engine.flower_compat import LOCAL_RUN, identify_process, stamp
from fedsynth.engine.messages import (
    ANSWER,
    FAILED,
    REFUSED,
    RequestId,
    decode_release,
    encode_request,
)
from fedsynth.experiment.flower_apps import answer_on_node
from fedsynth.experiment.proposal import proposal_text
from fedsynth.privacy.ledger import Entry, read_entries

POLICY = """\
data: {name: shapes, partition: iid, parties: 3, holdout: 1600}
lifetime: {epsilon: 4, delta: 1.0e-3}
methods: [private]
kinds: [image]
job_epsilon: 2
accounting: [pld, rdp]
"""


def proposal(
    name: str = "dp_merf", settings: Mapping[str, Any] | None = None, **changes: Any
) -> dict[str, Any]:
    """An honest proposal that `POLICY` allows, at the most epsilon of a job, with changes."""
    job = tiny.tiny_job(name, Path("unused"), "together", settings)
    budget = Budget(2.0, 1e-3, accounting="rdp")
    return {**json.loads(proposal_text(dataclasses.replace(job, budget=budget))), **changes}


@dataclass
class Reply:
    """The reply to one request: a release, or a refusal with its text."""

    release: Release | None
    refusal: Refusal | None = None
    text: str = ""


@dataclass
class RealParty:
    """A party with a policy and noise from the operating system, in a folder of its own."""

    folder: Path
    policy: str = POLICY
    party: int = 0
    sent: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Write the policy and start the app."""
        identify_process()
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "party.yaml"
        if not path.exists():  # another process may be reading it
            path.write_text(self.policy)
        self._app = make_client_app(answer_on_node)

    def ask(self, proposal: str | Mapping[str, Any], request: Request, stage: int = 0) -> Reply:
        """Send a message with this proposal and request, and read the reply as the server does."""
        request_id = RequestId(stage, request.kind, request.round, len(self.sent))
        return self.send(proposal, encode_request(request, request_id), request_id)

    def send(
        self, proposal: str | Mapping[str, Any], content: RecordDict, request_id: RequestId
    ) -> Reply:
        """Send any content."""
        text = proposal if isinstance(proposal, str) else json.dumps(proposal)
        node_config = {"partition-id": self.party, PARTY_CONFIG: str(self.folder / "party.yaml")}
        context = Context(LOCAL_RUN, 1, node_config, RecordDict(), {"proposal": text})
        message = Message(content, 1, ANSWER)
        stamp(message)
        reply = self._app(message, context)
        self.sent.append(reply)
        if not reply.has_error():
            return Reply(decode_release(reply.content, self.party, request_id))
        code, _, words = (reply.error.reason or "").partition(": ")
        assert reply.error.code == (FAILED if code == Refusal.INTERNAL and not words else REFUSED)
        return Reply(None, Refusal(code), words)

    @property
    def charged(self) -> list[Entry]:
        """All charges in the party's ledger."""
        return read_entries(self.folder / "ledger.jsonl")
