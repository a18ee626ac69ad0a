"""Messages: every bit arrives, and what is not a release is refused by name."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.errors import UserError
from fedsynth.core.messages import Release, Request
from fedsynth.engine.messages import (
    BadReply,
    BadRequest,
    RequestId,
    decode_release,
    decode_request,
    encode_release,
    encode_request,
    read_job,
)

QUESTION = RequestId(stage=1, kind="release", round=7, serial=3)
DTYPES = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
)


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """Any bits at all, in any shape, some of them not contiguous."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    count = torch.Size(shape).numel()
    if dtype == torch.bool:
        values = draw(st.lists(st.booleans(), min_size=count, max_size=count))
        tensor = torch.tensor(values, dtype=torch.bool)
    else:
        size = count * dtype.itemsize
        data = bytearray(draw(st.binary(min_size=size, max_size=size)))
        tensor = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
    tensor = tensor.reshape(shape)
    return tensor.transpose(0, -1) if len(shape) > 1 and draw(st.booleans()) else tensor


SCALARS = st.dictionaries(
    st.text(max_size=5),
    st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text() | st.booleans(),
    max_size=4,
)
ARRAYS = st.dictionaries(st.text(max_size=5), tensors(), max_size=4)


def through_the_wire(content: RecordDict) -> RecordDict:
    """As Flower sends it: every record as bytes, plus what Ray does to it."""
    out = RecordDict()
    for name in sorted(content):
        record = content[name]
        if isinstance(record, ConfigRecord):
            out[name] = ConfigRecord.inflate(record.deflate())
        else:
            out[name] = ArrayRecord({k: record[k] for k in sorted(record)})
    return pickle.loads(pickle.dumps(out))


def bits(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor, by the slow road."""
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist())


def assert_same(a: dict, b: dict) -> None:
    """The same names in the same order, with the same bits."""
    assert list(a) == list(b)
    for x, y in zip(a.values(), b.values(), strict=True):
        assert (x.dtype, x.shape, bits(x)) == (y.dtype, y.shape, bits(y))


@given(ARRAYS, SCALARS, st.lists(st.text(max_size=8), max_size=3))
@settings(max_examples=60, deadline=None)
def test_requests_and_releases_arrive_bit_for_bit(arrays, scalars, entries):
    """Names in order, types, shapes, NaN payloads, entries: all as they were."""
    request = Request("release", 7, arrays, scalars)
    question, got = decode_request(through_the_wire(encode_request(request, QUESTION)))
    assert question == QUESTION
    assert (got.kind, got.round) == ("release", 7)
    assert_same(arrays, got.arrays)
    release = Release(4, arrays, tuple(entries), scalars)
    back = decode_release(through_the_wire(encode_release(release, QUESTION)), 4, QUESTION)
    assert_same(arrays, back.arrays)
    assert back.entries == tuple(entries)
    for scalars_back in (got.scalars, back.scalars):
        assert [(k, type(v), v) for k, v in scalars_back.items()] == [
            (k, type(v), v) for k, v in scalars.items()
        ]


def test_what_arrives_is_a_copy_that_may_be_changed():
    """Neither side can reach into the other's tensors, even without a wire."""
    original = torch.zeros(3)
    content = encode_request(Request(arrays={"x": original}), QUESTION)
    _, first = decode_request(content)
    first.arrays["x"].add_(1)
    _, second = decode_request(content)
    assert second.arrays["x"].sum() == 0
    assert original.sum() == 0


@pytest.mark.parametrize(
    ("arrays", "scalars", "match"),
    [
        ({"x": [1, 2]}, {}, "'x' is list"),
        ({"x": torch.zeros(1, dtype=torch.complex64)}, {}, "complex64"),
        ({}, {"n": 2**63}, "64 bits"),
        ({}, {"n": None}, "NoneType"),
    ],
)
def test_what_a_message_cannot_carry_is_named(arrays, scalars, match):
    """The sender learns which value it was."""
    with pytest.raises(TypeError, match=match):
        encode_request(Request(arrays=arrays, scalars=scalars), QUESTION)


def _set(record: str, key: str, value: object) -> Callable[[RecordDict], None]:
    def change(content: RecordDict) -> None:
        content[record][key] = value

    return change


def _drop(record: str, key: str | None = None) -> Callable[[RecordDict], None]:
    def change(content: RecordDict) -> None:
        if key is None:
            del content[record]
        else:
            del content[record][key]

    return change


SPOILED = {
    "another party": (_set("envelope", "party", 5), "release of party 5"),
    "another round": (_set("envelope", "round", 6), "answered"),
    "another stage": (_set("envelope", "stage", 0), "answered"),
    "another kind": (_set("envelope", "kind", "vote"), "answered"),
    "an old answer": (_set("envelope", "serial", 2), "answered"),
    "no party": (_drop("envelope", "party"), "'party'"),
    "no entries": (_drop("envelope", "entries"), "'entries'"),
    "entries that are no texts": (_set("envelope", "entries", [1]), "'entries'"),
    "a truth value as a round": (_set("envelope", "round", True), "'round'"),
    "no envelope": (_drop("envelope"), "records"),
    "no arrays": (_drop("arrays"), "records"),
    "an array too few": (_drop("arrays", "x"), "arrays"),
    "a scalar too many": (_set("scalars", "more", 1), "scalars"),
    "a scalar that is a list": (_set("scalars", "n", [1]), "scalar 'n'"),
    "bytes missing": (
        lambda c: c["arrays"].__setitem__(
            "x", Array("float32", (3,), c["arrays"]["x"].stype, b"12")
        ),
        "2 bytes",
    ),
    "an unknown type": (
        lambda c: c["arrays"].__setitem__(
            "x", Array("object", (1,), c["arrays"]["x"].stype, b"12345678")
        ),
        "object",
    ),
    "a negative shape": (
        lambda c: c["arrays"].__setitem__(
            "x", Array("float32", (-1, -3), c["arrays"]["x"].stype, bytes(12))
        ),
        "12 bytes",
    ),
    "another encoding": (
        lambda c: c["arrays"].__setitem__("x", Array("float32", (3,), "numpy.ndarray", bytes(12))),
        "numpy.ndarray",
    ),
    "another record": (lambda c: c.__setitem__("more", ConfigRecord()), "records"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_spoiled_replies_are_refused_and_say_whose_they_are(name):
    """Each check on a reply, one spoiled reply each."""
    spoil, match = SPOILED[name]
    content = encode_release(Release(4, {"x": torch.zeros(3)}, ("e",), {"n": 1}), QUESTION)
    spoil(content)
    with pytest.raises(BadReply, match=match) as caught:
        decode_release(content, 4, QUESTION)
    assert "party 4" in str(caught.value)


def test_spoiled_requests_are_refused():
    """A party answers nothing it cannot read in full."""
    content = encode_request(Request(), QUESTION)
    del content["envelope"]["kind"]
    with pytest.raises(BadRequest, match="'kind'"):
        decode_request(content)


def test_jobs_are_read_from_text_or_file(tmp_path):
    """On real nodes a job is a file each of them has."""
    file = tmp_path / "job.json"
    file.write_text('{"a": 1}')
    assert read_job({"job": '{"b": 2}'}) == '{"b": 2}'
    assert read_job({"job": str(file)}) == '{"a": 1}'
    with pytest.raises(UserError, match="has no job"):
        read_job({})
    with pytest.raises(UserError, match="cannot be read"):
        read_job({"job": str(tmp_path / "missing")})
