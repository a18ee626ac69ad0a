"""Answers that are no answers: refused by name, with the method, the round and what is wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_runs as tiny
import torch

from fedsynth.core.messages import Release, Request
from fedsynth.engine.client_app import Node
from fedsynth.engine.messages import BadReply
from fedsynth.engine.validation import check_answers
from fedsynth.experiment.flower_apps import answer_request, open_job_engine
from fedsynth.storage.run_directory import RunDirectory


def answer(party: int, **arrays: torch.Tensor) -> Release:
    return Release(party, arrays, ())


def test_what_is_asked_for_passes():
    some = [answer(p, a=torch.zeros(2, 3), b=torch.ones(4)) for p in range(3)]
    check_answers(some, {"a": (2, 3), "b": torch.Size([4])})
    check_answers(some)
    check_answers([])
    check_answers([answer(p, images=torch.zeros(p, 1, 8, 8)) for p in range(3)])
    check_answers([answer(0, n=torch.tensor(2)), answer(1, n=torch.tensor(5))])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_not_finite_are_refused(value):
    bad = torch.zeros(2, 3)
    bad[1, 2] = value
    with pytest.raises(BadReply, match="party 4 answered 1 of 6 numbers in 'a' that are not fin"):
        check_answers([answer(3, a=torch.zeros(2, 3)), answer(4, a=bad)])


@pytest.mark.parametrize(
    ("other", "match"),
    [
        (
            {"a": torch.zeros(3, 2)},
            r"party 7 answered 'a' as float32 \[3, 2\], and float32 \[2, 3\]",
        ),
        ({"a": torch.zeros(2, 3).double()}, r"'a' as float64 \[2, 3\]"),
        (
            {"b": torch.zeros(2, 3)},
            r"party 7 answered the arrays \['b'\], and \['a'\] is requested",
        ),
        ({}, r"arrays \[\]"),
    ],
)
def test_another_form_than_asked_for_is_refused(other, match):
    with pytest.raises(BadReply, match=match):
        check_answers([answer(6, a=torch.zeros(2, 3)), answer(7, **other)], {"a": (2, 3)})


def test_a_form_unlike_the_others_is_refused():
    first = answer(0, images=torch.zeros(5, 1, 8, 8))
    with pytest.raises(BadReply, match=r"as float32 \[n, 1, 8, 9\], and party 0 as float32 \[n, 1"):
        check_answers([first, answer(1, images=torch.zeros(5, 1, 8, 9))])
    with pytest.raises(BadReply, match=r"as int64 \[n, 1, 8, 8\]"):
        check_answers([first, answer(1, images=torch.zeros(5, 1, 8, 8, dtype=torch.int64))])
    with pytest.raises(BadReply, match=r"\['labels'\], and \['images'\] is what party 0 answered"):
        check_answers([first, answer(1, labels=torch.zeros(5))])


def not_a_number(release: Release) -> Release:
    return dataclasses.replace(
        release, arrays={name: value * float("nan") for name, value in release.arrays.items()}
    )


def too_short(release: Release) -> Release:
    return dataclasses.replace(
        release, arrays={name: value[:-1] for name, value in release.arrays.items()}
    )


@pytest.mark.parametrize(
    ("name", "changes", "spoil", "match"),
    [
        ("ndpdc_joint", {}, not_a_number, r"ndpdc_joint, 'features' round 1 of stage 1 is refused"),
        (
            "ndpdc_joint",
            {"noise_at": "distributed"},
            too_short,
            r"party 1 answered 'sums' as int64 \[9,",
        ),
        (
            "psg_joint",
            {"noise_at": "aggregate"},
            too_short,
            r"psg_joint, 'gradient' round 1 .* party 1",
        ),
        (
            "psg",
            {},
            not_a_number,
            r"psg, 'release' round 0 of stage 1 is refused: party 1 answered",
        ),
    ],
)
def test_a_run_ends_with_the_name_of_the_party_and_releases_nothing(
    tmp_path: Path, name: str, changes: dict, spoil: Callable[[Release], Release], match: str
):
    job = tiny.tiny_job(name, tmp_path / "run", "together", changes)

    def spoilt(text: str, node: Node, stage: int, request: Request) -> Release:
        release = answer_request(text, node, stage, request)
        bad = node.party == 1 and request.round == (0 if name == "psg" else 1)
        return spoil(release) if bad else release

    with (
        open_job_engine("inprocess", answer=spoilt) as engine,
        pytest.raises(BadReply, match=match),
    ):
        tiny.release(job, engine)
    assert not RunDirectory(Path(job.out)).releases.exists(job.name, 1)
