"""Joint releases: the published epsilons, the noise in their sums, and who may count on what."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import tiny_runs as tiny
import torch

from fedsynth.core.errors import UserError
from fedsynth.core.messages import AggregatedSum, Release, Request
from fedsynth.core.plan import PUBLIC_VIEW, SERVER_VIEW, Plan
from fedsynth.core.settings import build
from fedsynth.core.types import Budget
from fedsynth.data.records import Records
from fedsynth.engine.messages import PartyRefused
from fedsynth.experiment import client_session, party_extracts, server_session
from fedsynth.experiment.flower_apps import open_job_engine
from fedsynth.experiment.job import Job
from fedsynth.experiment.scenario import ScenarioConfig, party_records, scenario_stages
from fedsynth.methods.registry import method
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import disclosed, flatten, gaussian
from fedsynth.privacy.ledger import read_entries
from fedsynth.privacy.secagg.distributed_noise import weakened
from fedsynth.report.report_data import published_event
from fedsynth.storage.releases import CERTIFICATE_SUFFIX, REGISTRY_SUFFIX

JOINT = ("psg_joint", "ndpdc_joint", "dp_merf_joint", "sketch_teach_joint")
SHARED = ("psg_joint", "ndpdc_joint", "dp_merf_joint")  # these may lose parties
MNIST = {
    parties: ScenarioConfig(data="mnist", partition="iid", parties=parties, stages="together")
    for parties in (1, 5, 100)
}


def plan(name: str, parties: int = 5, budget: Budget | None = None, **changes: Any) -> Plan:
    """The plan of a method on MNIST, split evenly."""
    some = method(name)
    stage = scenario_stages(MNIST[parties])[0]
    return some.plan(build(some.Config, changes), stage, budget or Budget(10.0, 1e-5))


# Published epsilons: those of one party with all records, whatever the number of parties


@pytest.mark.parametrize("parties", [1, 5, 100])
def test_ndpdc_with_the_published_noise_costs_the_published_epsilon(parties):
    """sigma 1, 10,000 steps, groups of 50: 6.1144 as published, 5.635 by PLD."""
    share = plan("ndpdc_joint", parties, noise=1.0, noise_at="distributed").parties[0]
    assert share.sampling_rate == 50 / 5421
    assert epsilon(share.event, 1e-5, "rdp_improved_2000") == pytest.approx(6.1144, abs=1e-4)
    assert epsilon(share.event, 1e-5) == pytest.approx(5.635, abs=5e-3)


@pytest.mark.parametrize("parties", [1, 5])
def test_psg_at_the_published_epsilon_takes_the_published_noise(parties):
    """Ten images a class: 100,000 gradients of 256 of 60,000 records; 10.000 at sigma 0.96571."""
    changes = {"runs": 1000, "noise_at": "distributed"}
    budget = Budget(10.0, 1e-5, accounting="rdp_improved")
    share = plan("psg_joint", parties, budget, **changes).parties[0]
    assert share.steps == 100_000
    assert share.noise_multiplier == pytest.approx(0.96571, abs=2e-4)
    assert epsilon(share.event, 1e-5) == pytest.approx(9.3176, rel=5e-3)


@pytest.mark.parametrize(("sigma", "exact"), [(5.0, 0.7255), (0.568, 8.553), (0.5, 9.997)])
def test_dp_merf_costs_what_one_gaussian_costs(sigma, exact):
    """The published multiplier is over a sensitivity of 2/m, twice that of one record more."""
    share = plan("dp_merf_joint", 100, noise=2 * sigma, noise_at="distributed").parties[0]
    assert share.paper_event is not None
    assert epsilon(share.paper_event, 1e-5) == pytest.approx(exact, abs=2e-3)
    assert flatten(share.event) == flatten(gaussian(2 * sigma))


# Views


@pytest.mark.parametrize("name", JOINT)
def test_every_view_of_distributed_noise_is_reported(name):
    """Full noise to who sees sums; a fifth of it away to who has one of five on his side."""
    share = plan(name, noise_at="distributed").parties[3]
    (sums, alone), (with_one, colluding) = share.views.items()
    assert sums.text == "server that sees sums of 5 or more shares"
    assert alone == share.event
    assert with_one.text == "server with 1 colluding party"
    assert epsilon(alone, 1e-5) <= 10.0 < epsilon(colluding, 1e-5)
    assert share.shares == 5


def test_the_published_count_follows_the_views():
    """A view without some of the noise costs more by the convention too, and a trusted aggregator's
    view has no epsilon by any convention."""
    share = plan("dp_merf_joint", noise_at="distributed").parties[0]
    assert share.paper_event is not None
    full, less = (published_event(share, view) for view in share.views)
    assert full == share.paper_event
    assert flatten(less) == flatten(weakened(share.paper_event, 5, 1))
    trusted = plan("dp_merf_joint", noise_at="aggregate").parties[0]
    assert published_event(trusted, SERVER_VIEW) == disclosed()
    assert published_event(trusted, PUBLIC_VIEW) == trusted.paper_event


@pytest.mark.parametrize("name", SHARED)
def test_shares_are_made_for_those_who_must_answer(name):
    """With three of five enough, each adds a third: the sum of all five has more than it needs."""
    share = plan(name, noise_at="distributed", min_answers=3, colluding=2).parties[0]
    assert share.shares == 3
    assert [view.text for view in share.views] == [
        "server that sees sums of 3 or more shares",
        "server with 2 colluding parties",
    ]
    with pytest.raises(UserError, match="min_answers=6 is more than the 5 parties of stage 1"):
        plan(name, min_answers=6)


def test_a_party_alone_is_seen_by_the_server_and_has_nobody_to_collude_with():
    share = plan("ndpdc_joint", 1, noise_at="distributed").parties[0]
    assert [view.text for view in share.views] == ["server"]
    assert share.shares == 1


# The noise in the sum


class Curious:
    """Answers of a whole stage, party by party, and the sum the method was given."""

    def __init__(self, job: Job, patch: pytest.MonkeyPatch) -> None:
        self.sums: list[AggregatedSum] = []
        real = server_session.StageConnection.ask_sum

        def ask_sum(parties: Any, who: Any, request: Request, **named: Any) -> AggregatedSum:
            total = real(parties, who, request, **named)
            self.sums.append(total)
            return total

        patch.setattr(server_session.StageConnection, "ask_sum", ask_sum)


def nobody(scenario: ScenarioConfig, party: int) -> Records:
    """A party that holds no records after all."""
    some = party_records(scenario, party)
    return Records(some.images[:0], some.labels[:0])


@pytest.mark.parametrize("min_answers", [None, 1])
def test_the_sum_has_one_partys_noise(tmp_path, monkeypatch, min_answers):
    """Without records the sum is noise: its deviation is the multiplier times the bound, or, where
    one share of three would do, sqrt(3) times as much."""
    changes = {"noise_at": "distributed", "min_answers": min_answers, "width": 32}
    job = tiny.tiny_job("ndpdc_joint", tmp_path / "run", "together", changes)
    seen = Curious(job, monkeypatch)
    monkeypatch.setattr(client_session, "party_records", nobody)
    with open_job_engine("inprocess") as engine:
        tiny.release(job, engine)
    noise = torch.cat([total.arrays["sums"].flatten() for total in seen.sums])
    expected = job.plan(0).parties[0].noise_multiplier * (1.0 if min_answers is None else 3**0.5)
    assert len(noise) > 5000
    assert float(noise.std()) == pytest.approx(expected, rel=5 / math.sqrt(2 * len(noise)))


def test_with_next_to_no_noise_the_sum_is_that_of_one_party_with_all_records(tmp_path, monkeypatch):
    """Three parties' embeddings add up to what DP-MERF computes over everybody."""
    job = tiny.tiny_job(
        "dp_merf_joint", tmp_path / "run", "together", {"noise_at": "distributed", "noise": 0.01}
    )
    job = dataclasses.replace(job, budget=Budget(1e9, 1e-3))
    seen = Curious(job, monkeypatch)
    with open_job_engine("inprocess") as engine:
        tiny.release(job, engine)
    (total,) = seen.sums
    stage = job.plan(0).stage
    frequencies = method("dp_merf_joint").features(job.config, stage.data, job.seed)  # type: ignore[attr-defined]
    expected = torch.zeros(len(stage.classes), frequencies.width, dtype=torch.float64)
    for party in range(3):
        some = party_records(job.scenario, party)
        expected.index_add_(0, some.labels, frequencies(some.pixels()).double())
    assert expected.abs().max() > 1
    assert (total.arrays["sums"] - expected).abs().max() < 0.06


# Only the sum


def test_a_share_is_not_sent_by_itself(tmp_path):
    """A party in a run with real secure sums refuses a plain question, whoever asks."""
    job = tiny.tiny_job("ndpdc_joint", tmp_path / "run", "together", {"noise_at": "distributed"})
    job = dataclasses.replace(job, secure_sum="secagg")

    def serve(text: str, ask: Any, *_: Any) -> None:
        ask([0, 1, 2], 0, Request("features", 0, scalars={"seed": 0}))

    with (
        open_job_engine("inprocess", serve=serve) as engine,
        pytest.raises(PartyRefused, match="holds a share of the noise only"),
    ):
        tiny.release(job, engine)


def test_no_masked_message_is_the_answer(tmp_path, monkeypatch):
    """The messages of a secure sum hold none of the numbers that are added."""
    job = tiny.tiny_job("dp_merf_joint", tmp_path / "run", "together", {"noise_at": "distributed"})
    job = dataclasses.replace(job, secure_sum="secagg")
    made: list[Release] = []
    sent: list[Release] = []
    real = client_session._answer

    def overheard(*arguments: Any) -> Release:
        made.append(real(*arguments))
        return made[-1]

    def answer(*arguments: Any) -> Release:
        sent.append(client_session.answer_request(*arguments))
        return sent[-1]

    monkeypatch.setattr(client_session, "_answer", overheard)
    with open_job_engine("inprocess", answer=answer) as engine:
        tiny.release(job, engine)
    assert len(made) == 3
    assert len(sent) == 12 + 3  # four messages per party, and the statement of each
    plain = torch.cat([release.arrays["sums"].flatten() for release in made])
    for release in sent:
        for value in release.arrays.values():
            assert not torch.isin(value.flatten().long(), plain).any() or value.dtype != torch.int64


@pytest.mark.parametrize("name", JOINT)
def test_a_real_secure_sum_gives_the_same_bytes(name, two_workers, here, tmp_path):
    """SecAgg+ on workers that pass parties between them, against the ideal sum in one process.

    The certificates differ in the sentence that says which of them it was."""
    certificates = (CERTIFICATE_SUFFIX, REGISTRY_SUFFIX)
    found = []
    for way, engine in (("ideal", here), ("secagg", two_workers)):
        job = tiny.tiny_job(name, tmp_path / way, "together", {"noise_at": "distributed"})
        tiny.release(dataclasses.replace(job, secure_sum=way), engine)
        files = tiny.outputs(job.out).items()
        found.append({name: data for name, data in files if not name.endswith(certificates)})
    assert found[0] == found[1]


def test_the_secrets_of_a_sum_are_gone_with_the_run(here, tmp_path):
    job = tiny.tiny_job("ndpdc_joint", tmp_path / "run", "together", {"noise_at": "distributed"})
    job = dataclasses.replace(job, secure_sum="secagg", noise_seed=None)
    tiny.release(job, here)
    kept = list(Path(job.out).rglob("secure-sum*")) + list(Path(job.out).rglob("noise.key"))
    assert kept
    party_extracts.destroy_keys(job)
    assert not any(path.exists() for path in kept)
    entries = read_entries(job.party_folder(0) / "ledger.jsonl")
    assert {e.view for e in entries} == {"server that sees sums of 3 or more shares"}
