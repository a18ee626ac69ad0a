"""Methods at small size for audits: every one runs, with the claims of every observer."""

from __future__ import annotations

import math

import pytest

from fedsynth.core.enums import Unit
from fedsynth.core.errors import UserError
from fedsynth.core.types import Budget
from fedsynth.experiment.audit_worlds import strongest
from fedsynth.experiment.audited_method import AuditedMethod
from fedsynth.experiment.method_audit import run_trial
from fedsynth.methods.registry import all_methods
from fedsynth.privacy.auditing.recording import Recording

EPSILON, DELTA = 4.0, 1e-5
QUIET = ("pate_gan",)  # whose votes few canaries change
CLAIMS = [
    (name, unit) for name, some in all_methods().items() if some.private for unit in some.units
]


@pytest.mark.parametrize(("name", "unit"), CLAIMS)
def test_every_method_can_be_audited(name, unit):
    """One trial in each world: the canary has an effect, and no more than the claim allows."""
    audited = AuditedMethod.of(name, Budget(EPSILON, DELTA, unit))
    worlds, uses = strongest(audited, 3, hidden=True, most=None if name in QUIET else 1)
    for world in (0, 1):
        trial = run_trial(audited, worlds, 5 + world, world, uses)
        for view, claim in audited.claims.items():
            assert claim.epsilon <= EPSILON * (1 + 1e-3)
            assert math.isfinite(trial.ratio(view.colluding))
            reached = trial.distance(view.colluding)
            assert reached > 0
            if claim.mu is not None:
                assert reached <= claim.mu * (1 + 1e-3)


def test_a_method_that_discloses_is_not_audited():
    budget = Budget(EPSILON, DELTA)
    with pytest.raises(UserError, match="nothing to audit"):
        AuditedMethod.of("upper_bound", budget)
    with pytest.raises(UserError, match="made_table"):
        AuditedMethod.of("psg", budget, data="made_table")
    with pytest.raises(UserError, match="protects a record only"):
        AuditedMethod.of("psg", Budget(EPSILON, DELTA, Unit.USER))


def test_a_run_ends_after_its_last_mechanism_and_is_repeated_to_the_bit():
    audited = AuditedMethod.of("dp_merf_joint", Budget(EPSILON, DELTA))
    whole = audited.run(audited.natural, 4, Recording())
    ended = audited.run(audited.natural, 4, Recording(stop=1))
    assert (len(whole.uses), len(ended.uses)) == (2, 1)
    assert whole.uses[0].outputs[0].equal(ended.uses[0].outputs[0])
