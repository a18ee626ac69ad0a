"""Deliberate errors: each one is found, and nothing but an audit can make one."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest
import torch
from tiny_runs import ROOT

from fedsynth.cli.run import main
from fedsynth.privacy.auditing.breaks import Break, broken
from fedsynth.privacy.auditing.mechanisms import audit_mechanism
from fedsynth.privacy.guard import CentralNoise, Guard
from fedsynth.privacy.mechanisms.votes import VoteBounds
from fedsynth.privacy.noise import NoiseKey

EPSILON, DELTA, RUNS = 4.0, 1e-5, 1000
POWER = 0.95
AUDITS = tuple(
    f"fedsynth.experiment.{name}" for name in ("method_audit", "audited_method", "audit_worlds")
)


@pytest.mark.parametrize("choice", list(Break), ids=str)
def test_every_error_is_found_with_power(choice):
    findings = audit_mechanism("record_sum", EPSILON, DELTA, runs=RUNS, choice=choice, noise_seed=5)
    found = [finding for finding in findings if finding.found]
    assert found
    assert max(finding.power for finding in found) >= POWER
    assert {finding.broken for finding in findings} == {choice.value}


def test_votes_outside_their_bounds_are_found():
    (found,) = (
        finding
        for finding in audit_mechanism(
            "vote_sums", EPSILON, DELTA, runs=300, choice=Break.NO_CLIP, noise_seed=5
        )
        if finding.found
    )
    assert "out of bounds" in found.name


def test_an_honest_mechanism_is_not_contradicted_by_any_seed():
    """Every bound holds with 95%, and all of a mechanism together: of 12 audits 5 or more would
    fail with a probability below 2e-4, and the seeds are fixed."""
    failed = 0
    for seed in range(12):
        findings = audit_mechanism("vote_sums", EPSILON, DELTA, runs=200, noise_seed=seed)
        failed += any(finding.found for finding in findings)
    assert failed == 0


def members() -> list[object]:
    """All that errors replace."""
    owners = ((Guard, ("apply", "_add_noise")), (CentralNoise, ("add",)), (NoiseKey, ("stream",)))
    found = [inspect.getattr_static(owner, name) for owner, names in owners for name in names]
    return [*found, VoteBounds.valid]


@pytest.mark.parametrize("choice", list(Break), ids=str)
def test_an_error_ends_with_its_block(choice):
    before = members()
    block = broken(choice)
    block.__enter__()
    assert members() != before
    assert not block.__exit__(RuntimeError, RuntimeError("in the middle"), None)
    assert members() == before


def test_a_known_seed_gives_the_same_noise_whatever_the_secret_is():
    keys = NoiseKey(b"a" * 32, "a"), NoiseKey(b"b" * 32, "b")
    with broken(Break.FIXED_SEED):
        first, second = (key.stream("f" * 64, 0, "noise").words(3).tolist() for key in keys)
    assert first == second
    assert keys[0].stream("f" * 64, 0, "noise").words(3).tolist() != first


def imported(path: Path) -> set[str]:
    """The modules that a source file names in its imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def test_only_the_audit_can_reach_the_errors():
    """Followed through all imports: no module of a run imports, or imports what imports, them."""
    package = ROOT / "fedsynth"
    reaching = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if any(name.startswith("fedsynth.privacy.auditing") for name in imported(path))
        or any(name.startswith(AUDITS) for name in imported(path))
    }
    allowed = {f"{name.removeprefix('fedsynth.').replace('.', '/')}.py" for name in AUDITS}
    allowed |= {"cli/audit.py"}
    assert {name for name in reaching if not name.startswith("privacy/auditing/")} <= allowed
    for path in package.rglob("*.py"):
        if path.name != "main.py":
            assert "fedsynth.cli.audit" not in imported(path), path


@pytest.mark.parametrize("words", [["scenario=split_mnist", "break=no_noise"]])
def test_a_run_refuses_an_error_by_name(words, capsys):
    assert main(words) == 2
    assert "break" in capsys.readouterr().err


def test_float32_noise_has_bits_that_a_sum_does_not_have():
    """The former arithmetic, in the error that stands for it: float32 values, off any grid."""
    findings = audit_mechanism(
        "record_sum", EPSILON, DELTA, runs=120, choice=Break.FLOAT32, noise_seed=1
    )
    (bits,) = (finding for finding in findings if finding.attack == "least bits")
    assert bits.found
    assert bits.audited_epsilon_any > 0.4 * EPSILON
    assert torch.tensor(bits.canary_mu) <= bits.theoretical_mu
