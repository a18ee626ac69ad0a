"""Audits of whole methods: every claim can be attacked, and what is broken is found."""

from __future__ import annotations

import pytest

from fedsynth.core.enums import Relation, Unit
from fedsynth.core.types import Budget
from fedsynth.experiment.audited_method import AuditedMethod
from fedsynth.experiment.method_audit import (
    Options,
    audit_in_one_run,
    audit_in_two_worlds,
)
from fedsynth.privacy.auditing.breaks import Break
from fedsynth.privacy.auditing.findings import Finding

EPSILON, DELTA = 4.0, 1e-5
FEATURES = {"features": 3000}


def audited(name: str, epsilon: float = EPSILON, **named: object) -> AuditedMethod:
    """A method with a claim; `unit`, `relation` and the settings by name."""
    terms = {key: named.pop(key) for key in ("unit", "relation") if key in named}
    parties = named.pop("parties", None)
    return AuditedMethod.of(name, Budget(epsilon, DELTA, **terms), named, parties=parties)


def within_the_claim(finding: Finding) -> bool:
    """True if nothing contradicts the claim, and no bound is above it."""
    return not finding.found and finding.audited_epsilon <= finding.theoretical_epsilon


@pytest.mark.parametrize("choice", [Break.NO_NOISE, Break.FIXED_SEED, Break.FLOAT32], ids=str)
def test_a_broken_method_is_found(choice):
    """The release of 0.1 that the least bits told apart, among others."""
    method = audited("dp_merf_joint", 1.0, **FEATURES)
    findings = audit_in_two_worlds(method, Options(40, choice, noise_seed=3, candidates=2))
    found = [finding for finding in findings if finding.found]
    assert found
    assert max(finding.power for finding in found) >= 0.95


@pytest.mark.parametrize("choice", [Break.HALF_NOISE, Break.BIASED_SAMPLING], ids=str)
def test_too_little_noise_and_too_large_samples_of_a_method_are_found(choice):
    """Errors that show in few numbers of a whole run, of one that samples records."""
    name = "dp_merf" if choice == Break.HALF_NOISE else "dpmix"
    method = audited(name, 10.0)
    findings = audit_in_two_worlds(method, Options(250, choice, noise_seed=3, candidates=1))
    assert any(finding.found for finding in findings)


@pytest.mark.parametrize("choice", [Break.NO_CLIP, Break.WRONG_DENOMINATOR], ids=str)
def test_a_method_that_trusts_the_length_of_its_contributions_is_found(choice):
    method = audited("dp_sgd")
    findings = audit_in_two_worlds(method, Options(60, choice, noise_seed=3))
    assert any(finding.found for finding in findings)


@pytest.mark.parametrize("placement", ["party", "aggregate", "distributed"])
def test_an_honest_method_is_not_contradicted_wherever_its_noise_is_added(placement):
    method = audited("dp_merf_joint", noise_at=placement)
    expected = {"party": "server", "aggregate": "public", "distributed": "sums of 2"}[placement]
    first, *others = audit_in_two_worlds(method, Options(24, noise_seed=1, candidates=2))
    assert expected in first.view
    for finding in (first, *others):
        assert within_the_claim(finding)
        assert 0.99 * finding.theoretical_mu < finding.canary_mu <= finding.theoretical_mu
    assert sum(1 - f.confidence for f in (first, *others)) <= 0.05 + 1e-9


def test_a_server_that_knows_the_noise_of_other_parties_sees_what_is_left_of_it():
    """Two of three shares are known. The claim of this view holds and is reached; that of the view
    without collusion is broken by such a server."""
    method = audited("dp_merf_joint", noise_at="distributed", colluding=2, parties=3)
    alone, colluding, _ = audit_in_two_worlds(method, Options(60, noise_seed=1, candidates=2))
    assert "2 colluding parties" in colluding.view
    assert within_the_claim(alone)
    assert within_the_claim(colluding)
    assert colluding.theoretical_mu == pytest.approx(3**0.5 * alone.theoretical_mu)
    assert colluding.canary_mu == pytest.approx(3**0.5 * alone.canary_mu, rel=1e-5)
    assert colluding.claimed_epsilon > alone.claimed_epsilon == EPSILON
    assert colluding.audited_mu > alone.audited_mu


def test_a_replaced_record_moves_a_method_further_than_an_added_one():
    """The gradients of two among ten classes are nearly orthogonal: sqrt(2) of what one moves."""
    method = audited("dp_sgd", relation=Relation.REPLACE_ONE)
    findings = audit_in_two_worlds(method, Options(24, noise_seed=1, candidates=11))
    for finding in findings:
        assert within_the_claim(finding)
        assert finding.relation == "replace_one"
        assert " in place of " in finding.canary
        assert 0.7 * finding.theoretical_mu < finding.canary_mu <= finding.theoretical_mu


def test_a_replaced_record_of_a_method_that_samples():
    method = audited("dpmix", 10.0, relation=Relation.REPLACE_ONE)
    ratio, _ = audit_in_two_worlds(method, Options(150, noise_seed=1, candidates=3))
    assert within_the_claim(ratio)
    assert ratio.theoretical_mu is None
    assert ratio.audited_epsilon > 0


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("dp_merf_joint", {"noise_at": "distributed", **FEATURES}),
        ("datalens", {"unit": Unit.USER}),
    ],
)
def test_a_party_that_takes_part_is_hidden_as_claimed(name, named):
    """What joins=hidden rests on, through a whole joint method: a party with all that its unit
    protects, against one that answers with noise alone."""
    method = audited(name, 1.0, **named)
    honest = audit_in_two_worlds(method, Options(24, noise_seed=1, hidden=True, candidates=2))
    for finding in honest:
        assert within_the_claim(finding)
        assert "no records" in finding.canary
        assert finding.unit == named.get("unit", Unit.RECORD)
        assert finding.canary_mu > 0


def test_least_bits_tell_who_takes_part_if_noise_is_added_in_floats():
    method = audited("dp_merf_joint", 1.0, **FEATURES)
    options = Options(40, Break.FLOAT32, noise_seed=1, hidden=True, candidates=2)
    *_, bits = audit_in_two_worlds(method, options)
    assert bits.found
    assert bits.power >= 0.95


def test_one_run_with_many_canaries():
    method = audited("dp_merf")
    (honest,) = audit_in_one_run(method, Options(40, noise_seed=1))
    (broken,) = audit_in_one_run(method, Options(40, Break.NO_NOISE, noise_seed=1))
    assert not honest.found
    assert honest.form == broken.form == "one_run"
    assert broken.audited_epsilon >= honest.audited_epsilon
