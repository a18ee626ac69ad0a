"""Certificates of a run: written by the server from what parties sign, also after a crash."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import certified
import pytest
import tiny_runs as tiny

from fedsynth.core.messages import Release, Request
from fedsynth.engine.base import Engine
from fedsynth.engine.messages import BadReply, PartyRefused
from fedsynth.experiment.certification import STATEMENT, certify
from fedsynth.experiment.job import Job
from fedsynth.privacy.certificate import check
from fedsynth.privacy.certificate.canonical import rendered, sealed
from fedsynth.privacy.noise import FROM_SYSTEM
from fedsynth.storage.run_directory import RunDirectory


class Parties:
    """Asks the parties of a job in this process; some are gone, refuse or answer otherwise."""

    def __init__(
        self,
        job: Job,
        gone: Sequence[int] = (),
        refusing: Sequence[int] = (),
        answers: Mapping[int, Release] | None = None,
    ) -> None:
        self.job, self.gone, self.refusing = job, gone, refusing
        self.answers = answers or {}

    def __call__(
        self, parties: Sequence[int], stage: int, request: Any, missing: Any = None
    ) -> list[Release]:
        if set(parties) & set(self.refusing):
            raise PartyRefused("no")
        missing.update({party: "late" for party in parties if party in self.gone})
        return [
            self.answers.get(party) or tiny.answer(self.job, party, stage, request)
            for party in parties
            if party not in self.gone
        ]


def uncertified(here: Engine, out: Path, method: str = "dp_merf_joint") -> tuple[Job, RunDirectory]:
    """A released job whose certificates are removed."""
    job = certified.released(method, out, here, "together")
    for file in certified.folder_of(job).glob("*.privacy.json"):
        file.unlink()
    return job, RunDirectory(out)


def certify_again(job: Job, run: RunDirectory, ask: Any) -> Path:
    return certify(job, run, 0, run.releases.load(job.name, 1), ask)


def test_a_certificate_that_a_crash_prevented_is_written_later(here: Engine, tmp_path) -> None:
    job = certified.released("dp_merf_joint", tmp_path / "run", here, "together")
    before = tiny.outputs(job.out)
    path = certified.folder_of(job) / "stage-1.privacy.json"
    path.unlink()
    path.with_name("stage-1.registry.yaml").unlink()
    tiny.run_job(here, job)
    assert tiny.outputs(job.out) == before


def test_one_that_is_there_is_not_written_again(here: Engine, tmp_path) -> None:
    job = certified.released("dp_merf_joint", tmp_path / "run", here, "together")
    path = certified.folder_of(job) / "stage-1.privacy.json"
    path.write_text("mine")
    tiny.run_job(here, job)
    assert path.read_text() == "mine"


def test_parties_without_a_statement_are_named(here: Engine, tmp_path) -> None:
    job, run = uncertified(here, tmp_path / "run")
    verdict = check(certify_again(job, run, Parties(job, gone=[0], refusing=[2])))
    assert not verdict.problems
    assert [s.party for s in verdict.statements] == [1]
    assert verdict.body["without_statement"] == [
        {"party": 0, "reason": "dropped out"},
        {"party": 2, "reason": "gave no statement"},
    ]


def test_a_statement_of_another_party_or_of_nobody_is_refused(here: Engine, tmp_path) -> None:
    job, run = uncertified(here, tmp_path / "run")
    other = tiny.answer(job, 1, 0, Request(STATEMENT))
    forged = json.loads(str(other.scalars["statement"]))
    for text in (
        other.scalars["statement"],
        "",
        "[" * 100_000,
        "{}",
        json.dumps({**forged, "signature": "00"}),
        rendered(sealed({"party": "0"}, certified.forger())).decode(),
    ):
        answer = Release(0, {}, (), {"statement": text})
        with pytest.raises((BadReply, Exception), match="statement"):
            certify_again(job, run, Parties(job, answers={0: answer}))
        assert not run.releases.certificate(job.name, 1).exists()


def test_stages_that_build_on_each_other_name_the_parties_of_all(here: Engine, tmp_path) -> None:
    """The model of each stage is trained on from the one before."""
    job = tiny.tiny_job("dp_sgd", tmp_path / "run", "in_turn", {"epochs": 1})
    tiny.release(job, here)
    folder = certified.folder_of(job)
    parties = [
        [s.party for s in check(folder / f"model-{stage}.privacy.json").statements]
        for stage in (1, 2)
    ]
    assert parties == [[0], [0, 1]]


def test_noise_from_the_system_is_no_simulation(here: Engine, tmp_path) -> None:
    job = tiny.tiny_job("dp_merf_joint", tmp_path / "run", "together", noise_seed=None)
    tiny.release(job, here)
    verdict = check(certified.folder_of(job) / "stage-1.privacy.json")
    assert not verdict.problems
    assert verdict.body["noise"]["sources"] == [FROM_SYSTEM]
    assert "operating system of the party" in verdict.body["noise"]["words"]


def test_a_statement_holds_no_array(here: Engine, tmp_path) -> None:
    job, _ = uncertified(here, tmp_path / "run")
    answer = tiny.answer(job, 0, 0, Request(STATEMENT))
    assert set(answer.scalars) == {"statement"}
    assert not answer.arrays
