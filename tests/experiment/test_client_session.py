"""A party answers by its own policy, and a server that cheats gets nothing."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_runs as tiny
import torch
from real_party import POLICY, RealParty, Reply

from fedsynth.core.errors import Refusal
from fedsynth.core.messages import Request
from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import Budget
from fedsynth.engine.base import Engine
from fedsynth.engine.messages import PartyRefused
from fedsynth.experiment.events import ANSWER
from fedsynth.experiment.progress import PROGRESS
from fedsynth.experiment.proposal import proposal_text
from fedsynth.experiment.simulated_parties import run_job
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.ledger import read_charges, read_entries, total
from fedsynth.storage.message_log import MessageReader

ASK = Request("release", 0, scalars={"seed": 0})


def wanted(name: str = "dp_merf", **changes: Any) -> dict[str, Any]:
    """An honest proposal that the policy of these tests allows, with changes."""
    job = tiny.tiny_job(name, Path("unused"), "together", changes.pop("settings", None))
    budget = Budget(2.0, 1e-3, accounting="rdp")
    fields = json.loads(proposal_text(dataclasses.replace(job, budget=budget)))
    return {**fields, **changes}


def with_budget(name: str = "dp_merf", **changes: Any) -> dict[str, Any]:
    proposal = wanted(name)
    return {**proposal, "budget": {**proposal["budget"], **changes}}


def with_data(**changes: Any) -> dict[str, Any]:
    proposal = wanted()
    return {**proposal, "scenario": {**proposal["scenario"], **changes}}


@pytest.fixture
def party(tmp_path: Path) -> RealParty:
    return RealParty(tmp_path / "party")


def assert_nothing_left(party: RealParty, reply: Reply, code: Refusal) -> None:
    assert reply.release is None
    assert reply.refusal is code
    assert not (party.folder / "ledger.jsonl").exists() or party.charged == []
    assert not (party.folder / "jobs.jsonl").exists()
    assert str(party.folder) not in reply.text


def test_an_honest_proposal_is_answered_and_charged(party: RealParty) -> None:
    reply = party.ask(wanted(), ASK)
    assert reply.release is not None
    assert 0 < epsilon(total(party.charged), 1e-3) <= 2
    assert {entry.noise for entry in party.charged} == {"operating system entropy"}


# One attack per test: what a server may try to get more than the policy allows


@pytest.mark.parametrize("asked", [100.0, 2.1, float("inf")])
def test_a_server_that_asks_for_a_large_epsilon_gets_nothing(party, asked: float) -> None:
    reply = party.ask(with_budget(epsilon=asked), ASK)
    assert_nothing_left(party, reply, Refusal.BUDGET)
    assert "at most 2" in reply.text


def test_a_server_that_asks_for_a_large_delta_gets_nothing(party: RealParty) -> None:
    assert_nothing_left(party, party.ask(with_budget(delta=0.1), ASK), Refusal.BUDGET)


@pytest.mark.parametrize(
    "change",
    [{"unit": "user"}, {"relation": "replace_one"}, {"accounting": "rdp_classic_sparse"}],
    ids=str,
)
def test_a_server_that_counts_otherwise_gets_nothing(party: RealParty, change: dict) -> None:
    """A published convention may call a release epsilon 2 that costs more."""
    assert_nothing_left(party, party.ask(with_budget(**change), ASK), Refusal.POLICY)


@pytest.mark.parametrize("name", ["upper_bound", "gradient_matching", "dm"])
def test_a_server_that_asks_for_records_gets_nothing(party: RealParty, name: str) -> None:
    for proposal in (wanted(name), with_budget(name, epsilon=float("inf"))):
        assert_nothing_left(party, party.ask(proposal, ASK), Refusal.POLICY)


def test_a_server_that_wants_to_add_the_noise_itself_gets_nothing(party: RealParty) -> None:
    proposal = wanted("dp_merf_joint", settings={"noise_at": "aggregate"})
    reply = party.ask(proposal, Request("sums", 0, scalars={"seed": 0}))
    assert_nothing_left(party, reply, Refusal.POLICY)
    assert "noise_at=aggregate" in reply.text


@pytest.mark.parametrize(
    "key", ["noise_seed", "out", "device", "plugins", "evaluation", "data_dir", "ledger", "noise"]
)
def test_a_server_that_names_what_is_the_partys_own_gets_nothing(party, key: str) -> None:
    """Its noise seed, a fresh folder, a device, code: no proposal has a place for them."""
    reply = party.ask({**wanted(), key: 7}, ASK)
    assert_nothing_left(party, reply, Refusal.REQUEST)
    assert f"unknown key {key!r}" in reply.text


def test_twenty_fresh_folders_are_one_lifetime(party: RealParty, tmp_path: Path) -> None:
    """A ledger per folder would be a budget per folder. Twenty jobs share one, whatever differs."""
    replies = []
    for number in range(20):
        proposal = wanted(seed=number)
        replies.append(party.ask({**proposal, "out": str(tmp_path / str(number))}, ASK))
        replies.append(party.ask(proposal, ASK))
        tiny.forget()
    answered = [reply for reply in replies if reply.release is not None]
    refused = {reply.refusal for reply in replies if reply.release is None}
    assert 1 <= len(answered) < 4
    assert refused == {Refusal.REQUEST, Refusal.BUDGET}
    assert epsilon(total(party.charged), 1e-3) <= 4
    assert not list(tmp_path.glob("[0-9]*"))


@pytest.mark.parametrize(
    "change",
    [
        {"data": "mnist"},
        {"data": "file:/etc/passwd"},
        {"parties": 1},
        {"partition": "single"},
        {"partition_seed": 1},
        {"holdout": 0.0},
        {"options": {"alpha": 1}},
    ],
    ids=str,
)
def test_a_server_that_asks_for_other_data_gets_nothing(party: RealParty, change: dict) -> None:
    assert_nothing_left(party, party.ask(with_data(**change), ASK), Refusal.POLICY)


def test_a_server_learns_of_no_file_whether_it_exists(party: RealParty, tmp_path: Path) -> None:
    """Data sets, folders and job files: the answer is the same for a file that exists."""
    there, gone = tmp_path / "there.npz", tmp_path / "gone.npz"
    np.savez(there, x_train=np.zeros((2, 4, 4), np.uint8))
    for make in (
        lambda path: with_data(data=f"file:{path}"),
        lambda path: with_data(data_dir=str(path)),
        lambda path: {**wanted(), "plugins": [str(path)]},
        str,
    ):
        texts = [party.ask(make(path), ASK) for path in (there, gone)]
        for reply in texts:
            assert reply.release is None
        plain = [reply.text.replace(str(there), "").replace(str(gone), "") for reply in texts]
        assert plain[0] == plain[1]
        assert texts[0].refusal == texts[1].refusal
    assert not (party.folder / "ledger.jsonl").exists()


DISTRIBUTED = {"noise_at": "distributed"}


def test_a_share_of_noise_leaves_a_real_party_under_masks_only(party: RealParty) -> None:
    """First the ideal sum, then a secure sum whose question is asked in the clear."""
    request = Request("sums", 0, scalars={"seed": 0})
    proposal = wanted("dp_merf_joint", settings=DISTRIBUTED)
    assert_nothing_left(party, party.ask(proposal, request), Refusal.POLICY)
    reply = party.ask({**proposal, "secure_sum": "secagg"}, request)
    assert reply.release is None
    assert reply.refusal is Refusal.POLICY
    assert "secure sum" in reply.text


def test_shares_that_left_under_masks_do_not_leave_in_the_clear(
    here: Engine, tmp_path: Path
) -> None:
    """Even at a simulated party, whose ideal sum stands for a secure one: the same request under
    the other proposal would lift its masks."""
    job = tiny.tiny_job("dp_merf_joint", tmp_path / "run", "together", DISTRIBUTED)
    masked = dataclasses.replace(job, secure_sum="secagg")
    tiny.release(masked, here)
    charged = read_entries(job.party_folder(0) / "ledger.jsonl")
    shutil.rmtree(tmp_path / "run" / "releases")
    with pytest.raises(PartyRefused, match="left in another kind of sum before") as caught:
        tiny.release(job, here)
    assert caught.value.code is Refusal.POLICY
    assert read_entries(job.party_folder(0) / "ledger.jsonl") == charged


def test_a_party_that_answers_in_secure_sums_only(tmp_path: Path) -> None:
    party = RealParty(tmp_path / "party", POLICY + "secure_sum: required\n")
    assert_nothing_left(party, party.ask(wanted(), ASK), Refusal.POLICY)
    reply = party.ask({**wanted(), "secure_sum": "secagg"}, ASK)
    assert_nothing_left(party, reply, Refusal.POLICY)


def test_a_sum_of_too_few_shares_is_not_planned(tmp_path: Path) -> None:
    party = RealParty(tmp_path / "party", POLICY + "least_shares: 4\n")
    proposal = wanted("dp_merf_joint", settings=DISTRIBUTED, secure_sum="secagg")
    reply = party.ask(proposal, Request("sum: setup", 0))
    assert_nothing_left(party, reply, Refusal.POLICY)


def test_thousands_of_rounds_are_not_answered(tmp_path: Path) -> None:
    """Neither planned ones nor requests that cost nothing; a repetition is not a further one."""
    party = RealParty(tmp_path / "party", POLICY + "most_rounds: 3\n")
    proposal = wanted("dp_sgd_joint", settings={"steps": 4000, "epochs": 4000})
    assert party.ask(proposal, ASK).refusal in (Refusal.POLICY, Refusal.REQUEST)
    assert not (party.folder / "jobs.jsonl").exists()
    replies = [party.ask(wanted(), Request("release", n, scalars={"seed": 0})) for n in range(50)]
    tiny.forget()
    again = party.ask(wanted(), Request("release", 60, scalars={"seed": 0}))
    assert sum(reply.release is not None for reply in replies) <= 3
    assert all(reply.refusal is Refusal.POLICY for reply in [*replies[3:], again])
    assert party.ask(wanted(), Request("release", 0, scalars={"seed": 0})).release is not None


def test_records_beyond_the_most_are_not_used(tmp_path: Path) -> None:
    party = RealParty(tmp_path / "party", POLICY + "most_records: 100\n")
    assert_nothing_left(party, party.ask(wanted(), ASK), Refusal.POLICY)


@pytest.mark.parametrize("stage", [-1, 1, 10**12])
def test_a_stage_that_does_not_exist_is_not_answered(party: RealParty, stage: int) -> None:
    reply = party.ask(wanted(), ASK, stage)
    assert reply.release is None
    assert reply.refusal is Refusal.REQUEST
    assert not (party.folder / "ledger.jsonl").exists()


def test_a_second_run_is_refused_when_the_lifetime_is_spent(party: RealParty) -> None:
    """Another method, another server, the same records: the ledger spans them."""
    replies = []
    for name in ("dp_merf", "dp_hp", "ldpdc", "dp_ntk", "dp_cgan"):
        replies.append(party.ask(with_budget(name, epsilon=2.0), ASK))
        tiny.forget()
    answered = [reply.release is not None for reply in replies]
    assert answered[0]
    assert not any(answered[3:])
    for reply in replies[3:]:
        assert reply.refusal is Refusal.BUDGET
        assert "the lifetime budget of this party is epsilon=4" in reply.text
    charged = party.charged
    assert epsilon(total(charged), 1e-3) <= 4
    assert len({entry.job for entry in charged}) == sum(answered)
    assert party.ask(with_budget(epsilon=2.0), ASK).release is not None  # a replay costs nothing
    assert party.charged == charged


def test_a_policy_that_cannot_be_used_is_no_oracle(tmp_path: Path) -> None:
    """The reason is for its owner: neither the folder nor the mistake is told to the server."""
    texts = set()
    for number, policy in enumerate(("lifetime: 3", "nonsense: [", POLICY + "plugins: [gone.py]")):
        party = RealParty(tmp_path / str(number), policy)
        reply = party.ask(wanted(), ASK)
        assert reply.release is None
        assert str(tmp_path) not in reply.text
        texts.add(reply.text)
    party.folder.joinpath("party.yaml").unlink()
    texts.add(party.ask(wanted(), ASK).text)
    assert texts <= {
        "this party's own policy cannot be used; its log has the reason.",
        "this party's data cannot be used; its log has the reason.",
    }


def test_data_with_a_mistake_are_refused_without_a_word_about_them(tmp_path: Path) -> None:
    """A label outside the classes, a record of the wrong shape: their owner reads which."""
    folder = tmp_path / "party"
    folder.mkdir()
    arrays = {"x_train": np.zeros((9, 8, 8), np.uint8), "y_train": np.arange(9) % 3 - 1}
    arrays |= {"x_test": arrays["x_train"], "y_test": np.arange(9) % 3}
    np.savez(folder / "own.npz", **arrays)
    policy = POLICY.replace(
        "{name: shapes, partition: iid, parties: 3, holdout: 1600}",
        "{name: ward, file: own.npz, partition: single, parties: 1}",
    )
    party = RealParty(folder, policy)
    proposal = with_data(data="ward", partition="single", parties=1, holdout=0.0)
    reply = party.ask(proposal, ASK)
    assert_nothing_left(party, reply, Refusal.DATA)
    assert reply.text == "this party's data cannot be used; its log has the reason."


def test_altered_proposals_have_a_code_and_spend_nothing_more(party: RealParty) -> None:
    """2,000 proposals with a value changed, removed, nested or cut: an answer within the budget, or
    a refusal with a code that is not `internal`."""
    rng = np.random.default_rng(5)
    strange = [None, -1, 0, 1e999, 10**400, "x", "", [], {}, [[]], True, "../..", "\0", {"a": {}}]
    honest = json.dumps(wanted())
    for number in range(2000):
        fields = json.loads(honest)
        target = fields
        while True:
            key = list(target)[rng.integers(len(target))]
            if isinstance(target[key], dict) and target[key] and rng.random() < 0.7:
                target = target[key]
            else:
                break
        value = strange[rng.integers(len(strange))]
        if number % 5 == 0:
            del target[key]
        elif number % 5 == 1:
            target[f"{key}x"] = value
        else:
            target[key] = value
        text = json.dumps(fields)
        if number % 7 == 0:
            text = text[: rng.integers(len(text))]
        reply = party.ask(text, ASK)
        assert reply.release is not None or reply.refusal in set(Refusal) - {Refusal.INTERNAL}, text
    assert party.ask("[" * 100_000, ASK).refusal is Refusal.REQUEST
    assert party.ask('{"a":' * 100_000, ASK).refusal is Refusal.REQUEST
    if party.folder.joinpath("ledger.jsonl").exists():
        assert epsilon(total(party.charged), 1e-3) <= 4


def certain_of(label: int, **settings: Any) -> tuple[dict[str, Any], Request]:
    """A proposal of one gradient over all records, and the request with weights of which all
    features are about 1e18 and all records of one class, but for 1e-22."""
    whole = {"batch": 1000, "epochs": 1}
    job = tiny.tiny_job("dp_sgd_joint", Path("unused"), "together", whole)
    data = job.plan(0).stage.data
    state = {n: torch.zeros(v.shape) for n, v in job.config.empty_model(data).state_dict().items()}
    for name, value in state.items():
        if value.dim() == 4:
            value.copy_(torch.randn(value.shape, generator=torch_generator("cheat", name)))
        elif value.dim() == 1 and name.endswith("weight"):
            value.fill_(1.0)
    last = [name for name, value in state.items() if value.dim() == 1 and bool((value == 1).any())]
    state[last[-1]].fill_(1e18)
    state["classifier.bias"] = 52.0 * (torch.arange(data.classes) == label)
    return wanted("dp_sgd_joint", settings={**whole, **settings}), Request("gradient", arrays=state)


def test_weights_and_a_clip_of_a_servers_choice_lift_no_record_above_the_noise(party) -> None:
    """With norms in float32 the rows of the other classes held 82 deviations of the noise."""
    reply = party.ask(*certain_of(0, clip=1e-6))
    assert reply.release is not None, reply.text
    rows = reply.release.arrays["classifier.weight"][1:].double() / 1e-6
    (charge,) = read_charges(party.folder / "ledger.jsonl")
    assert 0.8 < float(rows.square().mean().sqrt()) / charge.event["event"]["sigma"] < 1.5


@pytest.mark.parametrize("clip", [1e-30, 1e30])
def test_a_clip_beyond_what_float32_bounds_gets_nothing_and_costs_nothing(party, clip) -> None:
    reply = party.ask(*certain_of(0, clip=clip))
    assert (reply.release, reply.refusal) == (None, Refusal.REQUEST)
    assert not (party.folder / "ledger.jsonl").exists()


def test_only_a_simulated_party_states_its_times(here: Engine, tmp_path: Path) -> None:
    party = RealParty(tmp_path / "party", POLICY + "progress: messages\n")
    real = MessageReader(party.folder / "messages")
    real.start()
    assert party.ask(wanted(), ASK).release is not None
    assert {message["kind"] for message in real.new()} <= {PROGRESS}
    tiny.forget()
    job = tiny.tiny_job("psg", tmp_path / "run", "together")
    simulated = MessageReader(job.progress_folder())
    simulated.start()
    run_job(here, job)
    events = [message for message in simulated.new() if message["kind"] == ANSWER]
    assert {event["party"] for event in events} == {0, 1, 2}
    for event in events:
        assert 0 < event["noise_seconds"] < event["seconds"]
        assert event["bytes_up"] > 0
