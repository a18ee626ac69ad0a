"""The settings of a method, and its contexts: keys of public randomness."""

from __future__ import annotations

from dataclasses import dataclass, replace

from guarded import guard, private, records

from fedsynth.core.messages import Request
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.types import Budget, DatasetInfo, PartyInfo, Stage
from fedsynth.methods.method import Method, PartyContext
from fedsynth.methods.registry import method
from fedsynth.privacy.accounting.events import composed, flatten, gaussian, poisson, repeated

RECORDS = records(4)


def test_a_random_key_names_seed_method_stage_and_party(tmp_path):
    party_plan = PartyPlan(0, len(RECORDS.labels), gaussian(1.0))
    info = PartyInfo(0, len(RECORDS.labels), dict.fromkeys(range(4), 1))
    stage = Stage(DatasetInfo("tiny", (1, 2, 2), 2, (0.5,), (0.25,)), 3, 5, (info,), (), ())
    plan = Plan("some_method", stage, Budget(1.0, 1e-5), (party_plan,))
    ctx = PartyContext(None, plan, private(RECORDS, tmp_path), guard(tmp_path, plan=party_plan))
    assert ctx.random_key(Request(scalars={"seed": 7})) == (7, "some_method", 3, ctx.party)
    assert plan.random_key(7) == (7, "some_method", 3)
    assert ctx.party_plan is party_plan


@dataclass(frozen=True)
class Settings:
    """The settings of the methods below."""

    size: int = 1


class Family(Method):
    """Methods whose settings are not chosen yet."""


def test_the_settings_of_a_method_stand_in_its_brackets():
    class Direct(Method[Settings]):
        name = "direct"

    class Further(Direct):
        name = "further"

    class ByName(Family):
        name = "by_name"
        Config = Settings

    assert Direct.Config is Further.Config is ByName.Config is Settings
    assert not hasattr(Family, "Config")


def test_the_event_of_the_first_equal_steps_is_counted_alone():
    step = poisson(0.01, gaussian(1.0))
    share = PartyPlan(0, 1000, repeated(step, 50), sampling_rate=0.01, steps=50)
    some = method("psg")
    assert flatten(some.event_after(None, None, share, 10)) == flatten(repeated(step, 10))
    assert some.event_after(None, None, share, 60) == share.event
    unequal = replace(share, event=composed([step, gaussian(2.0)]))
    assert some.event_after(None, None, unequal, 10) == unequal.event
