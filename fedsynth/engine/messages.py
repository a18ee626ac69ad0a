"""Requests and releases as Flower messages, bit for bit, and the checks on what comes back.

A tensor travels as its raw bytes with its type and shape, so float32, float64, bfloat16, integer
and boolean tensors arrive with the very bits they left with, NaN payloads included. Names travel
in order, because a Flower transport may reorder the entries of a record. Every reply repeats the
request it answers; a reply from another party, to another request, or of another form than a
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

from fedsynth.core.errors import Refusal, Refused, UserError
from fedsynth.core.messages import Arrays, Release, Request, Scalars

ANSWER = "query.answer"
PARTY_OF_NODE = "query.party"

REFUSED = 1001  # the party refused; the reason is a `Refusal` and a text written for the server
FAILED = 1002  # an error inside the party; the reason is `Refusal.INTERNAL` and nothing else
LATE = 1003  # the party did not answer in time; reported by the grid
LOST = 1004  # the party's process died repeatedly; reported by the grid

_RAW = f"fedsynth.raw-{sys.byteorder}"
_DTYPES: dict[str, torch.dtype] = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
        *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool),
    )
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_ENVELOPE, _ARRAYS, _SCALARS = "envelope", "arrays", "scalars"
_INT64 = 2**63
MAX_PROPOSAL = 200_000  # characters


class PartyRefused(UserError):
    """A party refused, with a reason: its budget is spent, or the request is not valid."""

    def __init__(self, text: str, code: Refusal = Refusal.INTERNAL) -> None:
        super().__init__(text)
        self.code = code


class PartyFailed(Exception):
    """An error inside a party; its details are in the party's own log only."""


class PartyGone(UserError):
    """A party does not answer any more; a method may be able to continue without it."""

    def __init__(self, text: str, party: int = -1) -> None:
        super().__init__(text)
        self.party = party


class PartyTimeout(PartyGone):
    """A party did not answer within the time it had."""


class PartyLost(PartyGone):
    """The process of a party died repeatedly on the same request."""


class BadReply(UserError):
    """A reply is not the requested release."""


class BadRequest(Refused):
    """A request does not have the form of this version of the apps."""


@dataclass(frozen=True)
class RequestId:
    """The identity of a request; its reply repeats it, and the server compares the two."""

    stage: int
    kind: str
    round: int
    serial: int  # counts the requests of one run of a job, so that no two are equal

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


def _encode_scalars(scalars: Scalars) -> ConfigRecord:
    for name, value in scalars.items():
        if type(value) not in (int, float, str, bool):
            raise TypeError(f"scalar {name!r} is {type(value).__name__}, not int, float, str, bool")
        if type(value) is int and not -_INT64 <= value < _INT64:
            raise TypeError(f"scalar {name!r} does not fit into 64 bits")
    return ConfigRecord(dict(scalars))


def _pack(
    request_id: RequestId, arrays: Arrays, scalars: Scalars, more: Mapping[str, Any]
) -> RecordDict:
    envelope = ConfigRecord(
        {
            "stage": request_id.stage,
            "kind": request_id.kind,
            "round": request_id.round,
            "serial": request_id.serial,
            "array_names": list(arrays),
            "scalar_names": list(scalars),
            **more,
        }
    )
    return RecordDict(
        {
            _ENVELOPE: envelope,
            _ARRAYS: _encode_arrays(arrays),
            _SCALARS: _encode_scalars(scalars),
        }
    )


def _is_list_of_texts(value: object) -> TypeGuard[Sequence[str]]:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _field(envelope: ConfigRecord, name: str, kind: type) -> Any:
    value = envelope.get(name)
    if type(value) is not kind:
        raise ValueError(f"field {name!r} is missing or not {kind.__name__}")
    return value


def _unpack(
    content: RecordDict,
) -> tuple[RequestId, ConfigRecord, dict[str, torch.Tensor], dict[str, int | float | str | bool]]:
    if set(content) != {_ENVELOPE, _ARRAYS, _SCALARS}:
        raise ValueError(f"records {sorted(content)} instead of envelope, arrays and scalars")
    envelope, arrays, values = content[_ENVELOPE], content[_ARRAYS], content[_SCALARS]
    if not (
        isinstance(envelope, ConfigRecord)
        and isinstance(arrays, ArrayRecord)
        and isinstance(values, ConfigRecord)
    ):
        raise ValueError("a record of the wrong type")
    request_id = RequestId(
        _field(envelope, "stage", int),
        _field(envelope, "kind", str),
        _field(envelope, "round", int),
        _field(envelope, "serial", int),
    )
    array_names, scalar_names = envelope.get("array_names"), envelope.get("scalar_names")
    if not _is_list_of_texts(array_names) or sorted(array_names) != sorted(arrays):
        raise ValueError("arrays that do not match their list of names")
    if not _is_list_of_texts(scalar_names) or sorted(scalar_names) != sorted(values):
        raise ValueError("scalars that do not match their list of names")
    scalars: dict[str, int | float | str | bool] = {}
    for name in scalar_names:
        value = values[name]
        if not isinstance(value, int | float | str):
            raise ValueError(f"scalar {name!r} is {type(value).__name__}")
        scalars[name] = value
    tensors = {name: _decode_array(name, arrays[name]) for name in array_names}
    return request_id, envelope, tensors, scalars


def encode_request(request: Request, request_id: RequestId) -> RecordDict:
    """Return the content of a request message; one object may be sent to many parties."""
    return _pack(request_id, request.arrays, request.scalars, {})


def decode_request(content: RecordDict) -> tuple[RequestId, Request]:
    """Read a request; raises `BadRequest` for content that `encode_request` did not make."""
    try:
        request_id, _, arrays, scalars = _unpack(content)
    except ValueError as error:
        raise BadRequest(Refusal.REQUEST, f"the request cannot be read: {error}") from None
    return request_id, Request(request_id.kind, request_id.round, arrays, scalars)


def encode_release(release: Release, request_id: RequestId) -> RecordDict:
    """Return the content of a reply: the release, and the identity of its request."""
    more = {"party": release.party, "entries": list(release.entries)}
    return _pack(request_id, release.arrays, release.scalars, more)


def decode_release(content: RecordDict, party: int, request_id: RequestId) -> Release:
    """Read the release of a party; raises `BadReply` if it does not answer this request."""
    try:
        answered, envelope, arrays, scalars = _unpack(content)
        author = _field(envelope, "party", int)
        entries = envelope.get("entries")
        if not _is_list_of_texts(entries):
            raise ValueError("field 'entries' is missing or not a list of texts")
    except ValueError as error:
        raise BadReply(f"party {party} sent something that is not a release: {error}") from None
    if author != party:
        raise BadReply(f"party {party} sent a release of party {author}")
    if answered != request_id:
        raise BadReply(f"party {party} was asked {request_id} and answered {answered}")
    return Release(party, arrays, tuple(entries), scalars)


def read_proposal(run_config: Mapping[str, object]) -> str:
    """Return the text of the server's proposal in a run's configuration.

    It is never the name of a file: a party that opened it would tell the server whether it exists.

    Raises:
        Refused: There is none, or it is too long to be one.
    """
    text = run_config.get("proposal", "")
    if not isinstance(text, str) or not text:
        raise Refused(Refusal.REQUEST, "the run has no proposal: run-config proposal=JSON.")
    if len(text) > MAX_PROPOSAL:
        raise Refused(Refusal.REQUEST, f"a proposal has {MAX_PROPOSAL:,} characters at most.")
    return text


def read_job(run_config: Mapping[str, object]) -> str:
    """Return the server's job text in its run's configuration: JSON in `job`, or a file's path."""
    job = str(run_config.get("job", "")).strip()
    if job.startswith("{"):
        return job
    if not job:
        raise UserError("the run has no job; give --run-config 'job=\"/path/of/job.json\"'")
    try:
        return Path(job).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"job={job!r} cannot be read: {error.strerror}") from None
