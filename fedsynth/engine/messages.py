"""Requests and releases as Flower messages, bit for bit, and the checks on what comes back.

A tensor travels as its raw bytes with its type and shape, so float32, float64, bfloat16, integer
and boolean tensors arrive with the very bits they left with, NaN payloads included. Names travel
in order, because a Flower transport may reorder the entries of a record. Every reply repeats the
question it answers; a reply from another party, to another question, or of another shape than a
release is refused with an error that names the party.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedsynth.core.errors import UserError
from fedsynth.core.messages import Arrays, Release, Request, Scalars

ANSWER = "query.answer"
WHO_ARE_YOU = "query.who"

REFUSED = 1001  # the party said no; the reason is meant for the curator
FAILED = 1002  # something broke inside the party; the reason is the exception's type, no more
LATE = 1003  # the party did not answer in its time; the grid says so in its place
LOST = 1004  # the process that hosts the party died again and again; the grid says so

_RAW = f"fedsynth.raw-{sys.byteorder}"
_DTYPES: dict[str, torch.dtype] = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
        *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool),
    )
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_ENVELOPE, _ARRAYS, _NUMBERS = "envelope", "arrays", "numbers"
_INT64 = 2**63


class PartyRefused(UserError):
    """A party said no and said why: its budget is spent, or the request makes no sense to it."""


class PartyFailed(Exception):
    """Something broke inside a party; what exactly is in the party's own log, not here."""


class PartyGone(UserError):
    """A party that does not answer any more; the others may be able to go on without it."""

    def __init__(self, text: str, party: int = -1) -> None:
        super().__init__(text)
        self.party = party


class PartyTimeout(PartyGone):
    """A party did not answer within the time it had."""


class PartyLost(PartyGone):
    """The process that hosts a party died again and again on the same request."""


class BadReply(UserError):
    """A reply that is not the release that was asked for."""


class BadRequest(UserError):
    """A request that does not have the form this version of the apps understands."""


@dataclass(frozen=True)
class RequestId:
    """Which question a message belongs to: repeated by the reply, compared by the curator."""

    stage: int
    kind: str
    round: int
    serial: int  # counts the questions of one conversation, so that no two are alike

    def __str__(self) -> str:
        return f"{self.kind!r} of stage {self.stage}, round {self.round} (no. {self.serial})"


def _encode_arrays(arrays: Arrays) -> ArrayRecord:
    record = ArrayRecord()
    for name, tensor in arrays.items():
        if not isinstance(tensor, torch.Tensor) or tensor.dtype not in _NAMES:
            what = tensor.dtype if isinstance(tensor, torch.Tensor) else type(tensor).__name__
            raise TypeError(f"array {name!r} is {what}; a message carries {', '.join(_DTYPES)}")
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        data = flat.view(torch.uint8).numpy().tobytes()
        record[name] = Array(_NAMES[tensor.dtype], tuple(tensor.shape), _RAW, data)
    return record


def _decode_array(name: str, array: Array) -> torch.Tensor:
    dtype = _DTYPES.get(array.dtype)
    if array.stype != _RAW or dtype is None:
        raise ValueError(f"array {name!r} is {array.dtype} as {array.stype}, expected {_RAW}")
    size = math.prod(array.shape) * dtype.itemsize
    if any(n < 0 for n in array.shape) or len(array.data) != size:
        raise ValueError(f"array {name!r} has {len(array.data)} bytes for shape {array.shape}")
    if size == 0:
        return torch.empty(array.shape, dtype=dtype)
    # A bytearray is the one copy that makes the tensor writable and its own.
    return torch.frombuffer(bytearray(array.data), dtype=dtype).reshape(array.shape)


def _encode_numbers(numbers: Scalars) -> ConfigRecord:
    for name, value in numbers.items():
        if type(value) not in (int, float, str, bool):
            raise TypeError(f"number {name!r} is {type(value).__name__}, not int, float, str, bool")
        if type(value) is int and not -_INT64 <= value < _INT64:
            raise TypeError(f"number {name!r} does not fit into 64 bits")
    return ConfigRecord(dict(numbers))


def _pack(
    question: RequestId, arrays: Arrays, numbers: Scalars, more: Mapping[str, Any]
) -> RecordDict:
    envelope = ConfigRecord(
        {
            "stage": question.stage,
            "kind": question.kind,
            "round": question.round,
            "serial": question.serial,
            "array_names": list(arrays),
            "number_names": list(numbers),
            **more,
        }
    )
    return RecordDict(
        {
            _ENVELOPE: envelope,
            _ARRAYS: _encode_arrays(arrays),
            _NUMBERS: _encode_numbers(numbers),
        }
    )


def _names(value: object) -> TypeGuard[Sequence[str]]:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _field(envelope: ConfigRecord, name: str, kind: type) -> Any:
    value = envelope.get(name)
    if type(value) is not kind:
        raise ValueError(f"field {name!r} is missing or not {kind.__name__}")
    return value


def _unpack(
    content: RecordDict,
) -> tuple[RequestId, ConfigRecord, dict[str, torch.Tensor], dict[str, int | float | str | bool]]:
    if set(content) != {_ENVELOPE, _ARRAYS, _NUMBERS}:
        raise ValueError(f"records {sorted(content)} instead of envelope, arrays and numbers")
    envelope, arrays, values = content[_ENVELOPE], content[_ARRAYS], content[_NUMBERS]
    if not (
        isinstance(envelope, ConfigRecord)
        and isinstance(arrays, ArrayRecord)
        and isinstance(values, ConfigRecord)
    ):
        raise ValueError("a record of the wrong type")
    question = RequestId(
        _field(envelope, "stage", int),
        _field(envelope, "kind", str),
        _field(envelope, "round", int),
        _field(envelope, "serial", int),
    )
    array_names, number_names = envelope.get("array_names"), envelope.get("number_names")
    if not _names(array_names) or sorted(array_names) != sorted(arrays):
        raise ValueError("arrays that do not match their list of names")
    if not _names(number_names) or sorted(number_names) != sorted(values):
        raise ValueError("numbers that do not match their list of names")
    numbers: dict[str, int | float | str | bool] = {}
    for name in number_names:
        value = values[name]
        if not isinstance(value, int | float | str):
            raise ValueError(f"number {name!r} is {type(value).__name__}")
        numbers[name] = value
    tensors = {name: _decode_array(name, arrays[name]) for name in array_names}
    return question, envelope, tensors, numbers


def encode_request(request: Request, question: RequestId) -> RecordDict:
    """The content of the message that asks; the same object may serve every party asked."""
    return _pack(question, request.arrays, request.numbers, {})


def decode_request(content: RecordDict) -> tuple[RequestId, Request]:
    """What the curator asked. Raises `BadRequest` on anything `encode_request` did not make."""
    try:
        question, _, arrays, numbers = _unpack(content)
    except ValueError as error:
        raise BadRequest(f"the request cannot be read: {error}") from None
    return question, Request(question.kind, question.round, arrays, numbers)


def encode_release(release: Release, question: RequestId) -> RecordDict:
    """The content of the reply: the release, and the question it answers."""
    more = {"party": release.party, "entries": list(release.entries)}
    return _pack(question, release.arrays, release.numbers, more)


def decode_release(content: RecordDict, party: int, question: RequestId) -> Release:
    """The release of `party` to `question`; raises `BadReply` if the content is anything else."""
    try:
        answered, envelope, arrays, numbers = _unpack(content)
        author = _field(envelope, "party", int)
        entries = envelope.get("entries")
        if not _names(entries):
            raise ValueError("field 'entries' is missing or not a list of texts")
    except ValueError as error:
        raise BadReply(f"party {party} sent something that is not a release: {error}") from None
    if author != party:
        raise BadReply(f"party {party} sent a release of party {author}")
    if answered != question:
        raise BadReply(f"party {party} was asked {question} and answered {answered}")
    return Release(party, arrays, tuple(entries), numbers)


def read_job(run_config: Mapping[str, object]) -> str:
    """The job text from the run's configuration: JSON in `job`, or the path of a file with it."""
    job = str(run_config.get("job", "")).strip()
    if job.startswith("{"):
        return job
    if not job:
        raise UserError("the run has no job; give --run-config 'job=\"/path/of/job.json\"'")
    try:
        return Path(job).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"job={job!r} cannot be read: {error.strerror}") from None
