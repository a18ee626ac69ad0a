"""A party's policy: strict to read, and it allows no more than it says."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import pytest

from fedsynth.core.enums import Relation, SecureSum, Unit
from fedsynth.core.errors import Refusal, Refused, UserError
from fedsynth.core.plan import SERVER_VIEW, PartyPlan
from fedsynth.core.types import Budget
from fedsynth.privacy.accounting.events import composed, disclosed, gaussian
from fedsynth.privacy.policy import PartyPolicy, parse_policy, policy_text, read_policy

LEAST = "data: {name: mnist}\nlifetime: {epsilon: 3}\n"


def test_a_policy_of_few_lines_has_safe_defaults() -> None:
    policy = parse_policy(LEAST)
    assert policy.noise_seed is None
    assert not policy.simulation
    assert not policy.trusted_aggregator
    assert policy.methods == ("private",)
    assert policy.accounting == ("pld",)
    assert policy.most_epsilon == 3
    assert policy.lifetime.delta == 1e-5
    assert math.isfinite(policy.lifetime.epsilon)


def test_the_guides_example_is_a_policy() -> None:
    """With the values that the text beside it states, and a name for each key that it explains."""
    guide = (Path(__file__).parents[2] / "docs/guides/real_nodes.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    policy = parse_policy(example)
    assert (policy.lifetime.epsilon, policy.lifetime.delta, policy.job_epsilon) == (4, 1e-5, 2)
    assert policy.methods == ("psg", "ldpdc")
    assert policy.noise_seed is None
    names = {f.name for f in dataclasses.fields(PartyPolicy)}
    assert {name for name in names if name not in guide} == set()
    policy.check_job(**JOB)
    assert "at most 2" in str(refused(policy, budget=Budget(2.5, 1e-5)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LEAST + "lifetme: 3", "unknown key 'lifetme'. Did you mean 'lifetime'?"),
        (LEAST + "out: here", "unknown key 'out'"),
        (LEAST.replace("name", "nam"), "unknown key 'data.nam'. Did you mean 'name'?"),
        (LEAST.replace("epsilon", "epsilonn"), "unknown key 'lifetime.epsilonn'"),
        ("lifetime: {epsilon: 3}", "data is missing"),
        ("data: {name: mnist}", "lifetime is missing"),
        ("data: {parties: 3}\nlifetime: {epsilon: 3}", "data.name is missing"),
        ("data: {name: x}\nlifetime: {delta: 0.1}", "lifetime.epsilon is missing"),
        ("data: mnist\nlifetime: {epsilon: 3}", "data is 'mnist'"),
        (LEAST.replace("3", "-1"), "lifetime.epsilon=-1.0 must be above 0"),
        (LEAST.replace("3", ".nan"), "lifetime.epsilon=nan is not a number"),
        (LEAST.replace("3}", "3, epsilon: 99}"), "the key 'epsilon' is given twice"),
        (LEAST.replace("3}", "3, order: 1.1}"), "proves nothing about epsilon=3"),
        (LEAST + "kinds: [picture]", "kinds='picture' is unknown"),
        (LEAST + "noise: seed:7", "needs simulation: true"),
        (LEAST + "noise: seed:x\nsimulation: true", "Allowed: system, or seed:NUMBER"),
        (LEAST + "accounting: [paper]", "accounting='paper' is unknown"),
        (LEAST + "secure_sum: never", "secure_sum='never' is unknown"),
        (LEAST + "most_rounds: 0", "most_rounds=0 must be at least 1"),
        (LEAST + "simulation: yes please", "simulation='yes please' is not true or false"),
        ("- a list", "a policy holds keys and values"),
        ("a: [", "no YAML"),
        ("[" * 9000, "no YAML"),
        (LEAST + "device: !!python/object:os.system x", "no YAML"),
    ],
)
def test_a_mistake_is_named(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "party.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        read_policy(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_a_missing_or_huge_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_policy(tmp_path / "party.yaml")
    (tmp_path / "party.yaml").write_text("# " + "x" * 200_000)
    with pytest.raises(UserError, match="bytes at most"):
        read_policy(tmp_path / "party.yaml")


def test_a_written_policy_is_read_back() -> None:
    policy = parse_policy(LEAST + "simulation: true\nnoise: seed:7\nplugins: [a.py]\n")
    policy = dataclasses.replace(policy, methods=("psg", "ldpdc"), kinds=("image",))
    assert parse_policy(policy_text(policy)) == policy
    assert policy.noise_seed == 7


def test_paths_start_from_the_policys_folder() -> None:
    policy = parse_policy(
        "data: {name: x, file: own.npz, folder: /data}\nlifetime: {epsilon: 1}\nplugins: [p/a.py]"
    ).at(Path("/home/ward"))
    assert (policy.data.file, policy.data.folder) == ("/home/ward/own.npz", "/data")
    assert policy.plugins == ("/home/ward/p/a.py",)
    assert policy.at(Path("/elsewhere")) is policy


JOB: dict[str, Any] = {
    "method": "psg",
    "private": True,
    "kind": "image",
    "budget": Budget(1.0, 1e-5),
    "secure_sum": SecureSum.IDEAL,
}


def refused(policy: PartyPolicy, **changes: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        policy.check_job(**{**JOB, **changes})
    return caught.value


def test_a_job_within_the_policy_is_allowed() -> None:
    parse_policy(LEAST).check_job(**JOB)
    parse_policy(LEAST + "methods: [upper_bound]").check_job(
        **{**JOB, "method": "upper_bound", "private": False}
    )


def test_each_limit_of_a_job_refuses_with_its_own_text() -> None:
    policy = parse_policy(LEAST + "job_epsilon: 2\nkinds: [image]")
    budget = Budget(1.0, 1e-5)
    texts = {
        str(refused(policy, method="upper_bound", private=False)),
        str(refused(policy, kind="table")),
        str(refused(policy, budget=dataclasses.replace(budget, accounting="rdp"))),
        str(refused(policy, budget=dataclasses.replace(budget, unit=Unit.USER))),
        str(refused(policy, budget=dataclasses.replace(budget, relation=Relation.REPLACE_ONE))),
        str(refused(policy, budget=dataclasses.replace(budget, epsilon=2.001))),
        str(refused(policy, budget=dataclasses.replace(budget, delta=1.1e-5))),
    }
    assert len(texts) == 7
    secure = parse_policy(LEAST + "secure_sum: required")
    assert "secagg" in str(refused(secure))
    secure.check_job(**{**JOB, "secure_sum": SecureSum.SECAGG})


def test_amounts_are_refused_as_budget_and_the_rest_as_policy() -> None:
    policy = parse_policy(LEAST)
    assert refused(policy, budget=Budget(4.0, 1e-5)).code is Refusal.BUDGET
    assert refused(policy, budget=Budget(1.0, 1e-3)).code is Refusal.BUDGET
    assert refused(policy, kind="sound").code is Refusal.POLICY


def test_the_ledger_gets_the_smaller_budget() -> None:
    policy = parse_policy(LEAST + "job_epsilon: 2")
    assert policy.job_budget(Budget(100.0, 0.5)) == Budget(2.0, 1e-5)
    assert policy.job_budget(Budget(0.1, 1e-9)) == Budget(0.1, 1e-9)


def plan(**changes: Any) -> PartyPlan:
    return PartyPlan(**{"party": 0, "records": 50, "event": gaussian(3.0), **changes})


@pytest.mark.parametrize(
    ("keys", "changes", "rounds", "match"),
    [
        ("", {"event": composed([gaussian(1.0), disclosed()])}, 1, "without noise"),
        ("", {"views": {SERVER_VIEW: disclosed()}}, 1, "trusts no aggregator"),
        ("", {"shares": 3}, 1, "needs masks"),
        ("least_shares: 4", {"shares": 3}, 1, "fewer than 4 shares"),
        ("secure_sum: required", {}, 1, "secure sums only"),
        ("most_records: 49", {}, 1, "at most 49 records"),
        ("most_rounds: 9", {}, 10, "at most 9"),
    ],
)
def test_each_limit_of_a_plan_refuses(keys: str, changes: dict, rounds: int, match: str) -> None:
    with pytest.raises(Refused, match=match) as caught:
        parse_policy(LEAST + keys).check_plan(plan(**changes), rounds=rounds, secure_sum="ideal")
    assert caught.value.code is Refusal.POLICY


def test_a_plan_within_the_policy_is_allowed() -> None:
    policy = parse_policy(LEAST + "most_records: 50\nmost_rounds: 9")
    policy.check_plan(plan(), rounds=9, secure_sum="ideal")
    policy.check_plan(plan(shares=3), rounds=9, secure_sum="secagg")
    trusting = parse_policy(LEAST + "trusted_aggregator: true")
    trusting.check_plan(plan(views={SERVER_VIEW: disclosed()}), rounds=1, secure_sum="ideal")
    open_ = parse_policy(LEAST.replace("3}", ".inf}"))
    open_.check_plan(plan(event=disclosed()), rounds=1, secure_sum="ideal")


def test_peers_are_numbers_with_public_keys() -> None:
    key = "0a" * 32
    assert parse_policy(LEAST).peer_keys == {}
    policy = parse_policy(LEAST + f'peers: {{1: "{key}", "2": "{key}"}}')
    assert policy.peer_keys == {1: key, 2: key}
    assert parse_policy(policy_text(policy)).peer_keys == policy.peer_keys
    for wrong in ('{one: "' + key + '"}', '{1: "0a"}', "{1: 17}", '{-1: "' + key + '"}'):
        with pytest.raises(UserError, match=r"peers\.(one|1|-1)"):
            parse_policy(LEAST + f"peers: {wrong}")


@pytest.mark.parametrize(
    "value", ["2026-13-45", "0x", "? [a]: b", "!!int x", "9" * 5000, "[" * 90_000, "- " * 40_000]
)
def test_a_value_that_yaml_cannot_build_is_a_message(value: str) -> None:
    with pytest.raises(UserError):
        parse_policy(f"{LEAST}most_rounds: {value}\n")
