"""Secure sums over parties: the messages of the protocol's stages.

`ideal`: the simulation adds up, as a trusted third party would; the method receives the sum alone,
but this process holds more. `secagg`: the parties mask their releases (`secagg.client`), and the
server learns the sum alone. Both give the same numbers to the bit, because whole numbers are added.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import torch

from fedsynth.core.messages import Arrays, Release, Request, Scalars
from fedsynth.core.randomness import numpy_generator
from fedsynth.privacy.secagg.certification import Certification
from fedsynth.privacy.secagg.masking import OutOfTurn

SETUP, SHARE, COLLECT, UNMASK = (
    f"sum: {stage}" for stage in ("setup", "share keys", "collect", "unmask")
)
STAGES = (SETUP, SHARE, COLLECT, UNMASK)
_INNER = "asked/"  # before the names of the question's own arrays and scalars
_KINDS = ("first key", "second key")
_SIGNATURE = "signature"

AskEach = Callable[[Mapping[int, Request]], list[Release]]  # releases of the parties left


def added(answers: Sequence[Release]) -> dict[str, torch.Tensor]:
    """The sum of whole numbers, one answer after the other."""
    sums = {name: value.clone() for name, value in answers[0].arrays.items()}
    for answer in answers[1:]:
        for name in sums:
            sums[name] += answer.arrays[name]
    return sums


def secure_sum(
    ask: AskEach, parties: Sequence[int], question: Request, at_least: int, key: tuple[object, ...]
) -> tuple[dict[str, torch.Tensor], tuple[int, ...]]:
    """Run the four stages at the server.

    Args:
        ask: Sends one request per party and returns the releases of the parties that answer.
        parties: The parties.
        question: The request whose releases are added up.
        at_least: The fewest parties in a sum.
        key: The key of the public randomness of the neighbour graph.

    Returns:
        The sum and the parties in it; no arrays if fewer than `at_least` answered.
    """
    from fedsynth.privacy.secagg.server import NeighbourGraph, unmasked

    digest, session = question.digest(), os.urandom(16).hex()
    near = NeighbourGraph.choose(
        parties, at_least, numpy_generator(*key, "neighbours", question.round)
    )

    def stage(
        kind: str, arrays: Mapping[int, Arrays], more: Scalars | None = None
    ) -> list[Release]:
        scalars = {"session": session, "question": digest, **(more or {})}
        return ask({p: Request(kind, question.round, own, scalars) for p, own in arrays.items()})

    answers = stage(SETUP, {p: {} for p in parties}, {"threshold": near.threshold})
    public = {a.party: (_bytes(a.arrays[_KINDS[0]]), _bytes(a.arrays[_KINDS[1]])) for a in answers}
    signed = {a.party: a.arrays[_SIGNATURE] for a in answers if _SIGNATURE in a.arrays}
    to_share = {
        p: {
            f"{kind} {q}": _tensor(public[q][which])
            for q in near.of[p]
            if q in public
            for which, kind in enumerate(_KINDS)
        }
        | {f"{_SIGNATURE} {q}": signed[q] for q in near.of[p] if q in signed}
        for p in public
    }
    answers = stage(SHARE, to_share)
    shared = {a.party: a for a in answers}
    asked = {_INNER + name: value for name, value in question.arrays.items()}
    inner = {_INNER + name: value for name, value in question.scalars.items()}
    to_collect = {
        p: {
            **asked,
            **{
                f"from {q}": shared[q].arrays[f"to {p}"]
                for q in near.of[p]
                if q in shared and q != p
            },
        }
        for p in shared
    }
    asked_scalars = {_INNER: question.kind, **inner}
    masked = {a.party: a.arrays for a in stage(COLLECT, to_collect, asked_scalars)}
    if len(masked) < at_least:
        return {}, tuple(masked)
    answered = torch.tensor(sorted(masked))
    given = {
        a.party: {
            int(name.split()[1]): (name.startswith("seed"), _bytes(value))
            for name, value in a.arrays.items()
        }
        for a in stage(UNMASK, {p: {"answered": answered} for p in masked})
    }
    dropped = [p for p in shared if p not in masked]
    return unmasked(masked, given, dropped, public, near), tuple(masked)


def answer_in_stage(
    folder: Path,
    party: int,
    at_least: int,
    request: Request,
    answer: Callable[[Request], Release],
    *,
    parties: Collection[int],
    certification: Certification | None = None,
) -> Release:
    """One party's release in one of the stages.

    Args:
        folder: The party's directory for the protocol's state.
        party: The party.
        at_least: The fewest parties in a sum, by the party's own plan: its noise counts on them.
        request: The request of the stage.
        answer: Computes the release of the inner request.
        parties: The parties of the stage, by the party's own plan.
        certification: Signs this party's keys, and checks those of its neighbours.

    Raises:
        OutOfTurn: The request does not follow from what this party has done so far, or lacks
            something.
    """
    from fedsynth.privacy.secagg.client import SecAggClient

    arrays, scalars = request.arrays, request.scalars
    with _complete(request):
        question = str(scalars["question"])
        side = SecAggClient(folder, party, str(scalars["session"]))
        if request.kind == SETUP:
            keys = side.setup(question, int(scalars["threshold"]), at_least)
            made = {k: _tensor(v) for k, v in zip(_KINDS, keys, strict=True)}
            if certification is not None:
                signature = certification.sign(str(scalars["session"]), question, party, keys)
                made[_SIGNATURE] = _tensor(signature)
            return Release(party, made, ())
        if request.kind == SHARE:
            public = _public_keys(arrays)
            if certification is not None:
                signatures = {
                    int(name.split()[1]): _bytes(value)
                    for name, value in arrays.items()
                    if name.startswith(f"{_SIGNATURE} ")
                }
                session = str(scalars["session"])
                certification.check(session, question, public, signatures, party)
            sealed = side.share_keys(public, parties)
            return Release(party, {f"to {p}": _tensor(text) for p, text in sealed.items()}, ())
        if request.kind == UNMASK:
            given = side.unmask(arrays["answered"].tolist(), at_least, parties)
            names = {p: f"{'seed' if seed else 'key'} {p}" for p, (seed, _) in given.items()}
            return Release(party, {names[p]: _tensor(s) for p, (_, s) in given.items()}, ())
        texts = {
            int(name.split()[1]): _bytes(v) for name, v in arrays.items() if name[:5] == "from "
        }
        side.open_shares(question, texts)
        asked = _question(request)
    if asked.digest() != question:
        raise OutOfTurn("this sum was begun about another question")
    release = answer(asked)
    if not release.only_in_sum:
        raise OutOfTurn("this question is not answered in a sum: its answer has no shares")
    return Release(party, side.mask(release.arrays), release.entries, release.scalars)


@contextlib.contextmanager
def _complete(request: Request) -> Iterator[None]:
    """Refuse a request that lacks something or holds something of another form."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
        raise OutOfTurn(f"a request of the stage {request.kind!r} has another form") from error


def _public_keys(arrays: Arrays) -> dict[int, tuple[bytes, bytes]]:
    """The keys of the neighbours in a request, by party."""
    return {
        int(name.split()[-1]): (_bytes(value), _bytes(arrays[name.replace(*_KINDS)]))
        for name, value in arrays.items()
        if name.startswith(_KINDS[0])
    }


def _question(request: Request) -> Request:
    """The inner request of a stage."""
    scalars = {
        n.removeprefix(_INNER): v for n, v in request.scalars.items() if n.startswith(_INNER)
    }
    arrays = {n.removeprefix(_INNER): v for n, v in request.arrays.items() if n.startswith(_INNER)}
    return Request(str(scalars.pop("")), request.round, arrays, scalars)


def _tensor(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _bytes(value: torch.Tensor) -> bytes:
    return value.numpy().tobytes()
