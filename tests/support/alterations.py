"""Random alterations of the messages and proposals of an honest server."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ConfigRecord, RecordDict

from fedsynth.privacy.secagg.protocol import STAGES

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
