"""Honest messages, parties that are sent altered ones, and checks on what comes back."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import tiny_runs as tiny
import torch
from alterations import Asked
from flwr.app import Context, Message, RecordDict

from fedsynth.core.errors import Refusal
from fedsynth.data.records import Records
from fedsynth.engine.client_app import PARTY_CONFIG, make_client_app
from fedsynth.engine.flower_compat import LOCAL_RUN, identify_process, stamp
from fedsynth.engine.inprocess import InProcessGrid
from fedsynth.engine.local_grid import party_at
from fedsynth.engine.messages import ANSWER, FAILED, REFUSED
from fedsynth.experiment import client_session
from fedsynth.experiment.flower_apps import answer_on_node
from fedsynth.experiment.job import Job
from fedsynth.experiment.scenario import party_records
from fedsynth.experiment.simulated_parties import policy_of
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.ledger import SLACK, read_entries, total
from fedsynth.privacy.policy import SYSTEM, policy_text

PLANTED = bytes([0x9B, 0x3D, 0x71, 0xC5, 0x2F, 0xE9, 0x53, 0xA7])  # in every private image
SECONDS = 60  # that one answer may take


def honest_messages(job: Job, engine: Any) -> list[Asked]:
    """The messages of a whole run: the first two and the last one of each kind, stage and party."""
    found: dict[tuple[Any, ...], list[Asked]] = {}
    deliver = InProcessGrid.deliver

    def record(self: InProcessGrid, messages: Sequence[Message], timeout: Any) -> list[Message]:
        for message in messages:
            if message.metadata.message_type == ANSWER:
                party = party_at(message.metadata.dst_node_id)
                envelope = message.content["envelope"]
                kind = envelope["stage"], envelope["kind"], party
                asked = Asked(self.nodes.proposal, party, copy.deepcopy(message.content))
                found.setdefault(kind, []).append(asked)
        return deliver(self, messages, timeout)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InProcessGrid, "deliver", record)
        tiny.release(job, engine)
    return [asked for every in found.values() for asked in [*every[:2], *every[2:][-1:]]]


@dataclass(frozen=True)
class World:
    """Private records of one of two parties that are sent the same messages."""

    name: str
    alter: Callable[[Records], Records]


def planted(records: Records) -> Records:
    """The records, each with the planted numbers in its first pixels."""
    images = records.images.clone()
    rows = images.view(len(images), -1)
    marks = torch.tensor(list(PLANTED))[: rows.shape[1]]
    rows[:, : len(marks)] = (
        marks.to(images.dtype) if images.dtype == torch.uint8 else (marks / 255).to(images.dtype)
    )
    return Records(images, records.labels.clone())


def fewer(records: Records) -> Records:
    """Other images, without the first class and with half of the others."""
    kept = (records.labels != records.labels.min()) & (torch.arange(len(records.labels)) % 2 == 0)
    largest = 255 if records.images.dtype == torch.uint8 else 1
    return planted(Records(largest - records.images[kept], records.labels[kept]))


WORLDS = (World("planted", planted), World("fewer", fewer))


@dataclass
class Fuzzer:
    """Parties of two worlds, which get the same messages and must give alike replies.

    Attributes:
        seen: The number of replies by kind: "release", or the code of a refusal.
        internal: The exceptions behind refusals with the code "internal".
        faults: Everything that a party must not do.
    """

    folder: Path
    seen: Counter[str] = field(default_factory=Counter)
    internal: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    sent: int = 0

    def __post_init__(self) -> None:
        """Start the app."""
        identify_process()
        self._app = make_client_app(answer_on_node)
        self._world = WORLDS[0]

    @contextlib.contextmanager
    def worlds(self) -> Iterator[None]:
        """Parties read the records of the world that is asked."""

        def records_of(scenario: Any, party: int) -> Records:
            return self._world.alter(party_records(scenario, party))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(client_session, "party_records", records_of)
            client_session.forget_parties()
            yield
            client_session.forget_parties()

    def policies(self, job: Job, batch: object) -> dict[tuple[str, int], Path]:
        """Fresh folders with the policies of real parties, by world and party."""
        policy = dataclasses.replace(
            policy_of(job), simulation=False, noise=SYSTEM, trusted_aggregator=False, progress=None
        )
        found = {}
        for world in WORLDS:
            for party in range(job.scenario.parties):
                path = self.folder / str(batch) / f"{world.name}-{party}" / "party.yaml"
                path.parent.mkdir(parents=True)
                path.write_text(policy_text(policy))
                found[world.name, party] = path
        return found

    def send(self, asked: Asked, policies: dict[tuple[str, int], Path], about: str) -> None:
        """Send one message to the party in both worlds and judge the replies."""
        self.sent += 1
        outcomes = []
        for self._world in WORLDS:
            path = policies[self._world.name, asked.party]
            node_config = {"partition-id": asked.party, PARTY_CONFIG: str(path)}
            context = Context(LOCAL_RUN, 1, node_config, RecordDict(), {"proposal": asked.proposal})
            message = Message(copy.deepcopy(asked.content), 1, ANSWER)
            stamp(message)
            try:
                with _limit(SECONDS):
                    reply = self._app(message, context)
            except Exception as error:
                self.faults.append(f"{about}: {type(error).__name__} escaped: {error}")
                return
            outcomes.append(self._judged(reply, about, path))
        if outcomes[0] != outcomes[1]:
            self.faults.append(f"{about}: the reply depends on the records: {outcomes}")

    def _judged(self, reply: Message, about: str, path: Path) -> str:
        """The form of a reply, which must not depend on records."""
        if not reply.has_error():
            forms = []
            arrays = reply.content["arrays"]
            for name in arrays:
                forms.append((name, arrays[name].dtype, tuple(arrays[name].shape)))
                self._search(arrays[name].data, f"{about}: array {name}")
            scalars = dict(reply.content["scalars"])
            self._search(repr(scalars).encode(), f"{about}: scalars")
            self.seen["release"] += 1
            return repr(("release", forms, sorted(scalars)))
        code, _, text = (reply.error.reason or "").partition(": ")
        if code not in tuple(Refusal) or reply.error.code not in (REFUSED, FAILED):
            self.faults.append(f"{about}: an error without a code: {reply.error}")
        self.seen[code] += 1
        self._search(text.encode(), f"{about}: text")
        if str(path.parent) in text or "Traceback" in text or ".py" in text:
            self.faults.append(f"{about}: private text: {text}")
        return repr((code, re.sub(r"epsilon=[\d.e+-]+ of", "epsilon of", text)))

    def _search(self, data: bytes, about: str) -> None:
        numbers = torch.tensor(list(PLANTED)) / 255
        forms = [
            PLANTED,
            *(numbers.to(d).numpy().tobytes() for d in (torch.float32, torch.float64)),
        ]
        forms += [", ".join(map(str, PLANTED[:4])).encode()]
        if any(form in data for form in forms):
            self.faults.append(f"{about}: a planted value left")

    def check_spending(self, job: Job, policies: dict[tuple[str, int], Path], about: str) -> None:
        """No ledger holds more than the budget."""
        for path in policies.values():
            for ledger in path.parent.rglob("ledger*.jsonl"):
                spent = epsilon(
                    total(read_entries(ledger)),
                    job.budget.delta,
                    job.budget.accounting,
                    job.budget.relation,
                )
                if spent > job.budget.epsilon * (1 + SLACK):
                    self.faults.append(f"{about}: {spent} spent of {job.budget.epsilon}")


@contextlib.contextmanager
def _limit(seconds: int) -> Iterator[None]:
    """Raise after so many seconds."""

    def late(*_: object) -> None:
        raise TimeoutError(f"no answer within {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
