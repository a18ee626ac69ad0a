"""Altered requests and proposals, a party that is sent them, and checks on what comes back."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_runs as tiny
import torch
from flwr.app import Array, ConfigRecord, Context, Message, RecordDict

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
from fedsynth.privacy.secagg.protocol import STAGES

PLANTED = bytes([0x9B, 0x3D, 0x71, 0xC5, 0x2F, 0xE9, 0x53, 0xA7])  # in every private image
SECONDS = 60  # that one answer may take
_KINDS = ("release", "features", "visit", "warm", "train", "means", "cells", "", "x" * 300, *STAGES)
_NUMBERS = (0, -1, 1, 2**62, -(2**63), 0.5, -0.0, float("nan"), float("inf"), 1e308)
_TEXTS = ("", "x" * 2000, "../../../etc/passwd", "%s{0}", "\0", "seed", "-1", "NaN", "é\u202e")
_DTYPES = (torch.float64, torch.float16, torch.int64, torch.uint8, torch.bool, torch.bfloat16)


@dataclass(frozen=True)
class Asked:
    """One message of an honest server."""

    proposal: str
    party: int
    content: RecordDict


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


class Alterations:
    """Ways to alter a message, chosen at random."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def choose(self, options: Sequence[Any]) -> Any:
        """One of these."""
        return options[int(self.rng.integers(len(options)))]

    def altered(self, asked: Asked, others: Sequence[Asked]) -> Asked:
        """The message with one to three alterations."""
        for _ in range(int(self.rng.integers(1, 4))):
            way = self.choose(
                (
                    self._scalar,
                    self._array,
                    self._array,
                    self._array_values,
                    self._envelope,
                    self._envelope,
                    self._raw,
                    self._proposal,
                )
            )
            content = copy.deepcopy(asked.content)
            if way == self._proposal:
                asked = dataclasses.replace(asked, proposal=self._proposal(asked.proposal))
                continue
            with contextlib.suppress(KeyError, TypeError, ValueError, IndexError, AttributeError):
                way(content)
            asked = dataclasses.replace(asked, content=content)
        if self.rng.random() < 0.05:
            asked = dataclasses.replace(asked, proposal=self.choose(others).proposal)
        return asked

    def _scalar(self, content: RecordDict) -> None:
        values, names = content["scalars"], content["envelope"]["scalar_names"]
        name = self.choose([*values, "seed", "threshold", "slot", "features", "unknown"])
        if name in values and self.rng.random() < 0.3:
            del values[name]
            names.remove(name)
        else:
            values[name] = self.choose([*_NUMBERS, *_TEXTS, True])
            if name not in names:
                names.append(name)

    def _array(self, content: RecordDict) -> None:
        arrays, names = content["arrays"], content["envelope"]["array_names"]
        name = self.choose(list(arrays) or ["extra"])
        what = self.choose(("drop", "rename", "extra", "shape", "dtype", "grow", "empty", "swap"))
        if what == "extra" or name not in arrays:
            extra = self.choose(["extra", "theta", "weights", "images", "labels", "answered", name])
            arrays[extra] = encoded(torch.full((3,), 7.0))
            if extra not in names:
                names.append(extra)
            return
        value = decoded(arrays[name])
        if what == "drop":
            del arrays[name]
            names.remove(name)
            return
        if what == "rename":
            arrays["renamed"] = arrays.pop(name)
            names[names.index(name)] = "renamed"
            return
        if what == "shape":
            value = self.choose(
                [
                    value.reshape(-1),
                    value[None],
                    value.reshape(-1)[:1],
                    value.permute(*range(value.dim())[::-1]),
                ]
            )
        elif what == "dtype":
            value = value.to(self.choose(_DTYPES))
        elif what == "grow":
            value = torch.cat([value, value]) if value.dim() else value[None]
        elif what == "empty":
            value = value.reshape(-1)[:0]
        else:
            value = decoded(arrays[self.choose(list(arrays))])
        arrays[name] = encoded(value)

    def _array_values(self, content: RecordDict) -> None:
        arrays = content["arrays"]
        name = self.choose(list(arrays))
        value = decoded(arrays[name]).clone()
        flat = value.reshape(-1)
        number = self.choose([float("nan"), float("inf"), -1, 0, 1e38, 2**31, -(2**62), 1e-45])
        with contextlib.suppress(RuntimeError):
            if self.rng.random() < 0.5:
                flat[int(self.rng.integers(len(flat)))] = number
            else:
                flat.fill_(number)
        arrays[name] = encoded(value)

    def _envelope(self, content: RecordDict) -> None:
        envelope = content["envelope"]
        name = self.choose(("stage", "kind", "round", "round", "serial"))
        if name == "kind":
            envelope[name] = self.choose(_KINDS)
        else:
            envelope[name] = self.choose([-1, 0, 1, 2, 3, 7, 99, 10**9, 2**62, envelope[name] + 1])

    def _raw(self, content: RecordDict) -> None:
        """Content that `encode_request` never makes."""
        arrays, envelope = content["arrays"], content["envelope"]
        what = self.choose(
            ("missing", "kind", "cut", "dtype", "shape", "stype", "names", "type", "extra", "list")
        )
        if what == "missing":
            del content[self.choose(list(content))]
        elif what == "kind":
            content[self.choose(list(content))] = ConfigRecord({"a": 1})
        elif what == "names":
            envelope["array_names"] = self.choose([[], ["a", "a"], [1, 2], "text", [""]])
        elif what == "type":
            envelope[self.choose(("stage", "kind", "round"))] = self.choose(["1", 1.5, [1], b"1"])
        elif what == "extra":
            content["extra"] = ConfigRecord({"noise_seed": 1, "out": "/tmp"})
        elif what == "list":
            content["scalars"]["seed"] = [1, 2, 3]
        else:
            name = self.choose(list(arrays))
            old = arrays[name]
            dtype, shape, stype, data = old.dtype, tuple(old.shape), old.stype, old.data
            if what == "cut":
                data = data[: len(data) // 2]
            elif what == "dtype":
                dtype = self.choose(["object", "complex64", "float7", ""])
            elif what == "shape":
                shape = self.choose([(-1,), (2**40, 2**40), (0, 5), (1,) * 40, ()])
            else:
                stype = self.choose(["numpy.ndarray", "pickle", ""])
            arrays[name] = Array(dtype, shape, stype, data)

    def _proposal(self, text: str) -> str:
        if self.rng.random() < 0.25:
            seeded = text.replace("}", ', "noise_seed": 1}', 1)
            nan, marked = text.replace(":", ': NaN, "x":', 1), "\ufeff" + text
            broken = ["", "null", "[]", "{", "NaN", "/etc/passwd", "[" * 100_000, '{"a":' * 5000]
            broken += [text[: len(text) // 2], text + "}", text * 2, seeded, nan, marked]
            return str(self.choose(broken))
        try:
            fields = json.loads(text)
            part, key = self._leaf(fields)
            old = part[key]
            choices: list[Any] = [None, "", "x", -1, 0, 0.5, True, [], {}, [old], "../../x", -1e300]
            if not isinstance(old, int | float) or key in ("epsilon", "delta", "seed"):
                choices += [10**30, 1e308, float("inf"), float("nan")]  # sizes would only be slow
            if self.rng.random() < 0.1:
                del part[key]
            elif self.rng.random() < 0.1:
                part[self.choose(["noise_seed", "out", "data_dir", "plugins", "unknown"])] = old
            else:
                part[key] = self.choose(choices)
            return json.dumps(fields)
        except (ValueError, TypeError, KeyError, IndexError, RecursionError):
            return "{}"

    def _leaf(self, part: Any) -> tuple[Any, Any]:
        while True:
            key = self.choose(list(part)) if isinstance(part, dict) else 0
            if not (isinstance(part[key], dict | list) and part[key]) or self.rng.random() < 0.1:
                return part, key
            part = part[key]


def encoded(value: torch.Tensor) -> Array:
    """A tensor as messages carry it."""
    from fedsynth.engine.messages import _encode_arrays

    return _encode_arrays({"a": value.contiguous()})["a"]


def decoded(array: Array) -> torch.Tensor:
    """The tensor in a message."""
    from fedsynth.engine.messages import _decode_array

    return _decode_array("a", array)


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
