"""Audits of whole methods: every method can be attacked, and what is broken is found."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedsynth.core.errors import UserError
from fedsynth.experiment import method_audit
from fedsynth.experiment.method_audit import (
    MethodAudit,
    Options,
    audit_in_one_run,
    audit_in_two_worlds,
)
from fedsynth.methods.registry import all_methods
from fedsynth.privacy.auditing.breaks import Break
from fedsynth.privacy.auditing.recording import distance, log_likelihood_ratio

PRIVATE = [name for name, some in all_methods().items() if some.private]
EPSILON, DELTA = 4.0, 1e-5


@pytest.mark.parametrize("name", PRIVATE)
def test_every_method_can_be_audited(name):
    """One trial in each world: the canary has an effect, and no more than the claim allows."""
    audit = MethodAudit.of(name, EPSILON, DELTA)
    assert audit.claim.epsilon <= EPSILON * (1 + 1e-3)
    canary, stop = method_audit._prepared(audit, np.random.default_rng(3))
    for world in (0, 1):
        without, with_canary = method_audit._trial(audit, canary, 5 + world, world, stop)
        assert math.isfinite(log_likelihood_ratio(without, with_canary))
        reached = distance(without, with_canary)
        assert reached > 0
        if audit.claim.mu is not None:
            assert reached <= audit.claim.mu * (1 + 1e-3)


def test_a_method_that_discloses_is_not_audited():
    with pytest.raises(UserError, match="nothing to audit"):
        MethodAudit.of("upper_bound", EPSILON, DELTA)
    with pytest.raises(UserError, match="made_table"):
        MethodAudit.of("psg", EPSILON, DELTA, data="made_table")


FEATURES = {"features": 3000}


@pytest.mark.parametrize("choice", [Break.NO_NOISE, Break.FIXED_SEED, Break.FLOAT32], ids=str)
def test_a_broken_method_is_found(choice):
    """The release of 0.1 that the least bits told apart, among others."""
    audit = MethodAudit.of("dp_merf_joint", 1.0, DELTA, FEATURES)
    findings = audit_in_two_worlds(audit, Options(40, choice, noise_seed=3))
    found = [finding for finding in findings if finding.found]
    assert found
    assert max(finding.power for finding in found) >= 0.95


@pytest.mark.parametrize("placement", ["party", "aggregate", "distributed"])
def test_an_honest_method_is_not_contradicted_wherever_its_noise_is_added(placement):
    audit = MethodAudit.of("dp_merf_joint", EPSILON, DELTA, {"noise_at": placement})
    expected = {"party": "server", "aggregate": "public", "distributed": "sums of 2"}[placement]
    findings = audit_in_two_worlds(audit, Options(24, noise_seed=1))
    assert not any(finding.found for finding in findings)
    for finding in findings:
        assert expected in finding.view
        assert 0.99 * finding.theoretical_mu < finding.canary_mu <= finding.theoretical_mu


def test_one_run_with_many_canaries():
    audit = MethodAudit.of("dp_merf", EPSILON, DELTA)
    (honest,) = audit_in_one_run(audit, Options(40, noise_seed=1))
    (broken,) = audit_in_one_run(audit, Options(40, Break.NO_NOISE, noise_seed=1))
    assert not honest.found
    assert honest.form == broken.form == "one_run"
    assert broken.audited_epsilon >= honest.audited_epsilon
