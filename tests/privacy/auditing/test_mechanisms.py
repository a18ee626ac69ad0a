"""Audits of mechanisms: tight for Gaussian ones, and never above the claim."""

from __future__ import annotations

import pytest

from fedsynth.core.enums import Relation
from fedsynth.core.errors import UserError
from fedsynth.privacy.accounting.gdp import gdp_mu
from fedsynth.privacy.auditing.breaks import Break
from fedsynth.privacy.auditing.cases import MECHANISMS, cases_of
from fedsynth.privacy.auditing.mechanisms import (
    RATIO,
    _attack,
    audit_mechanism,
)

EPSILON, DELTA = 16.0, 1e-5  # mu = 2.8, where the least runs suffice


@pytest.mark.parametrize(
    ("name", "seed"),
    [("class_sums", 3), ("record_sum", 1), ("gradients", 1), ("outer_products", 1)],
)
def test_gaussian_mechanisms_are_bounded_within_a_twentieth_of_their_mu(name, seed):
    """Sums (embeddings are sums per class), gradients and outer products."""
    case = cases_of(name)[0]
    finding = _attack(
        case, RATIO, EPSILON, DELTA, runs=6000, choice=None, noise_seed=seed, confidence=0.95
    )
    assert finding.reached >= 0.95
    assert not finding.found
    assert finding.audited_mu <= finding.theoretical_mu == pytest.approx(gdp_mu(EPSILON, DELTA))
    assert finding.audited_epsilon <= finding.claimed_epsilon
    assert finding.audited_epsilon_any < finding.audited_epsilon


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism_is_audited_and_none_is_above_its_claim(name):
    findings = audit_mechanism(name, EPSILON, DELTA, runs=40, noise_seed=2)
    assert not any(finding.found for finding in findings)
    for finding in findings:
        assert finding.audited_epsilon <= finding.theoretical_epsilon
        assert finding.theoretical_epsilon == pytest.approx(EPSILON, rel=2e-3)
        assert finding.view
        assert (finding.unit, finding.relation) == ("record", "add_remove")
    together = sum(1 - finding.confidence for finding in findings)
    assert together <= 0.05 + 1e-9


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("name", MECHANISMS)
def test_no_bound_is_above_its_claim_in_a_thousand_runs(name, relation):
    """With 95% each, by the family of the event and by the definition alone."""
    finding = _attack(
        cases_of(name)[0],
        RATIO,
        1.0,
        DELTA,
        runs=1000,
        choice=None,
        noise_seed=6,
        confidence=0.95,
        relation=relation,
    )
    assert finding.audited_epsilon <= finding.claimed_epsilon
    assert finding.audited_epsilon_any <= finding.claimed_epsilon
    assert not finding.found


@pytest.mark.parametrize("name", ["record_sum", "gradients", "vote_sums"])
def test_mechanisms_are_audited_for_replaced_records(name):
    """Calibrated to the relation; sampled ones by the pair of outputs of two canaries."""
    findings = audit_mechanism(
        name, EPSILON, DELTA, runs=200, noise_seed=2, relation=Relation.REPLACE_ONE
    )
    for finding in findings:
        assert finding.relation == "replace_one"
        assert not finding.found
        assert finding.audited_epsilon <= finding.theoretical_epsilon
        assert finding.theoretical_epsilon == pytest.approx(EPSILON, rel=2e-3)
    assert findings[0].canary_mu <= findings[0].theoretical_mu * (1 + 1e-6)


def test_too_little_noise_for_replaced_records_is_found():
    """Noise that covers an added record contradicts the claim for a replaced one."""
    case = cases_of("record_sum")[0]
    finding = _attack(
        case,
        RATIO,
        EPSILON,
        DELTA,
        runs=400,
        choice=Break.HALF_NOISE,
        noise_seed=2,
        confidence=0.95,
        relation=Relation.REPLACE_ONE,
    )
    assert finding.found
    assert finding.power >= 0.95


def test_a_server_with_the_noise_of_all_other_parties_is_held_to_what_is_left():
    (case,) = (case for case in cases_of("shared_sum") if case.colluding)
    finding = _attack(
        case, RATIO, EPSILON, DELTA, runs=1000, choice=None, noise_seed=2, confidence=0.95
    )
    assert finding.view == "server with 1 colluding party"
    assert not finding.found
    assert 0.85 < finding.reached <= 1
    assert finding.canary_mu == pytest.approx(finding.theoretical_mu, rel=1e-3)


def test_an_audit_without_a_seed_differs_each_time():
    first, second = (
        audit_mechanism("vote_maxima", 1.0, DELTA, runs=60)[0].as_dict() for _ in range(2)
    )
    assert first.keys() == second.keys()


def test_an_unknown_mechanism_is_refused_by_name():
    with pytest.raises(UserError, match="Did you mean 'record_sum'"):
        audit_mechanism("record_sums", 1.0, DELTA)
