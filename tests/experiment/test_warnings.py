"""Warnings: each appears where its cause is, once, and nowhere else."""

from __future__ import annotations

import pytest

from fedsynth.experiment.config import resolve
from fedsynth.experiment.experiment import Experiment
from fedsynth.experiment.stage_extension import INVERSION_ESTIMATE
from fedsynth.experiment.warnings import warnings

PLAIN = {
    "data": "shapes",
    "preset": "smoke",
    "accounting": "rdp",
    "delta": 1e-4,
    "parties": 2,
    "options": None,
    "method": ["ldpdc"],
    "epsilon": [1],
}
DELTA, BATCH = "one over the smallest party's records", "without amplification by sampling"
SEED, WORKERS = "the noise can be subtracted by anyone", "CPUs each is more than"
IDEAL, SECAGG = "as a trusted third party would", "by SecAgg+ between the parties"
SAMPLED = {"method": ["dp_sgd"]}
JOINT = {"stages": "together", "method": ["ndpdc_joint"]}
SHARES = {**JOINT, "ndpdc_joint": {"noise_at": "distributed"}}
USERS = {"data": "mnist_virtual", "partition": "users", "parties": 20}


def texts(**keys: object) -> list[str]:
    """The warnings of a plain run with these keys changed."""
    return warnings(Experiment.of(resolve({**PLAIN, **keys})))


def test_a_plain_run_has_none() -> None:
    assert texts() == []


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"delta": 1e-2}, DELTA),
        ({**SAMPLED, "dp_sgd": {"batch": 5000}}, BATCH),
        ({"noise_seed": 1}, SEED),
        ({"workers": 1000}, WORKERS),
        (SHARES, IDEAL),
        ({**SHARES, "secure_sum": "secagg"}, SECAGG),
    ],
    ids=["delta", "batch", "noise seed", "workers", "ideal sum", "secagg"],
)
def test_each_cause_has_its_warning(keys: dict[str, object], expected: str) -> None:
    assert sum(expected in text for text in texts(**keys)) == 1


@pytest.mark.parametrize(
    "keys", [{"delta": 1e-3}, {"method": ["dp_sgd"], "dp_sgd": {"batch": 100}}, JOINT]
)
def test_no_warning_without_its_cause(keys: dict[str, object]) -> None:
    """A smaller delta, a batch that the smallest party has, noise at each party."""
    assert texts(**keys) == []


def test_inverted_users_without_the_estimate_of_their_share() -> None:
    keys = {**USERS, "options": {"flip": 0.5}}
    missing = f"without extensions={INVERSION_ESTIMATE}"
    assert sum(missing in text for text in texts(**keys)) == 1
    assert not any(missing in text for text in texts(**keys, extensions=[INVERSION_ESTIMATE]))
    assert not any(missing in text for text in texts(**USERS))
